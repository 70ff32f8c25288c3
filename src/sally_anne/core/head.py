"""An attention head: the type and spelling that all rooms use, and heads and samples to show.

Heads are always chosen on validation samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from sally_anne.core.errors import FigureError


class Head(NamedTuple):
    """One attention head; printed and read as ``L4H0``."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"L{self.layer}H{self.head}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """The head of a text such as ``L4H0``; ValueError for any other text."""
        match = re.fullmatch(r"L(\d+)H(\d+)", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no head; write one as L4H0")
        return cls(int(match[1]), int(match[2]))


HELD_OUT = ("validation", "test")


SPLITS = {"held-out": HELD_OUT, "all": ("train", *HELD_OUT)}


SPLITS |= {split: (split,) for split in SPLITS["all"]}


def best(heads: pd.DataFrame, label: str) -> Head:
    """The head with rank 1 for ``label`` (best validation accuracy); FigureError if none has."""
    ranked = heads.dropna(subset=[f"{label}_rank"]).sort_values([f"{label}_rank", "layer", "head"])
    if ranked.empty:
        raise FigureError(f"the table of heads ranks none by {label}")
    return heads_of(ranked)[0]


def heads_of(table: pd.DataFrame) -> list[Head]:
    """The heads of a table's rows."""
    return [Head(int(layer), int(head)) for layer, head in table[["layer", "head"]].to_numpy()]


def row_of(heads: pd.DataFrame, head: Head) -> pd.Series:
    """A head's row of the table; FigureError if there is no such head."""
    rows = heads[(heads["layer"] == head.layer) & (heads["head"] == head.head)]
    if rows.empty:
        raise FigureError(f"this run has no head {head}; its last is {heads_of(heads)[-1]}")
    return rows.iloc[0]


def extremes(
    heads: pd.DataFrame, labels: Sequence[str], has_weights: Callable[[Head], bool]
) -> tuple[Head, Head]:
    """The head whose worse label is best, and another one whose better label is worst.

    By validation accuracy; ties go by the sum over labels. A probe that has stayed at zero has no
    boundary to show: the second head is one with ``has_weights``, unless there is none.
    """
    columns = [f"{label}_validation_accuracy" for label in labels]
    scores = heads.dropna(subset=columns)
    scores = scores.assign(**scores[columns].agg(["min", "max", "sum"], axis=1))
    upwards = [False, False, True, True]
    first = heads_of(scores.sort_values(["min", "sum", "layer", "head"], ascending=upwards))[0]
    worst = scores.sort_values(
        ["max", "sum", "layer", "head"], ascending=[True, True, False, False]
    )
    others = [head for head in heads_of(worst) if head != first] or [first]
    return first, next(filter(has_weights, others), others[0])


def select(samples: pd.DataFrame, split: str) -> np.ndarray:
    """Rows of ``samples`` in the splits shown: a bool mask ``[N]``; FigureError if all False."""
    mask = samples["split"].isin(SPLITS[split]).to_numpy()
    if not mask.any():
        raise FigureError(f"this run has no sample in split {split}")
    return mask
