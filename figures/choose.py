"""What a figure shows: which head, always chosen on validation samples, and which samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from sally_anne.core.errors import ChoiceError
from sally_anne.hooks.geometry import Head

SPLITS: dict[str, tuple[str, ...]] = {
    "held-out": ("validation", "test"),
    "validation": ("validation",),
    "test": ("test",),
    "train": ("train",),
    "all": ("train", "validation", "test"),
}


def best(heads: pd.DataFrame, label: str) -> Head:
    """The head with rank 1 for ``label`` (best validation accuracy); ChoiceError if none has."""
    ranked = heads.dropna(subset=[f"{label}_rank"]).sort_values([f"{label}_rank", "layer", "head"])
    if ranked.empty:
        raise ChoiceError(f"the table of heads ranks none by {label}")
    return _heads(ranked)[0]


def row_of(heads: pd.DataFrame, head: Head) -> pd.Series:
    """A head's row of the table; a ChoiceError says which heads there are instead."""
    rows = heads[(heads["layer"] == head.layer) & (heads["head"] == head.head)]
    if rows.empty:
        last = Head(int(heads["layer"].max()), int(heads["head"].max()))
        raise ChoiceError(f"this run has no head {head}; its last is {last}")
    return rows.iloc[0]


def sensitive(heads: pd.DataFrame, labels: Sequence[str]) -> Head:
    """The head whose worse label is best: highest min of the labels' validation accuracies.

    Ties go to the better sum of both accuracies, then to the lower layer and head.
    """
    order = {"worse": False, "total": False, "layer": True, "head": True}
    return _by_accuracy(heads, labels, order)[0]


def insensitive(
    heads: pd.DataFrame, labels: Sequence[str], other: Head, has_weights: Callable[[Head], bool]
) -> Head:
    """The head whose better label is worst: lowest max of the labels' validation accuracies.

    A probe that has stayed at zero has no boundary to show: only heads with ``has_weights`` take
    part, unless none is left. ``other`` is passed over unless it is the only head.
    """
    order = {"better": True, "total": True, "layer": False, "head": False}
    every = _by_accuracy(heads, labels, order)
    others = [head for head in every if head != other] or every
    return next(filter(has_weights, others), others[0])


def _by_accuracy(heads: pd.DataFrame, labels: Sequence[str], order: dict[str, bool]) -> list[Head]:
    """Heads in the order of columns that rise (True) or fall."""
    columns = [f"{label}_validation_accuracy" for label in labels]
    scored = heads.dropna(subset=columns)
    if scored.empty:
        raise ChoiceError("the table of heads has no validation accuracy for any head")
    shares = scored[columns].agg(["min", "max", "sum"], axis=1)
    table = scored.assign(worse=shares["min"], better=shares["max"], total=shares["sum"])
    return _heads(table.sort_values(list(order), ascending=list(order.values())))


def _heads(table: pd.DataFrame) -> list[Head]:
    return [Head(int(layer), int(head)) for layer, head in table[["layer", "head"]].to_numpy()]


def select(samples: pd.DataFrame, split: str) -> np.ndarray:
    """Rows of ``samples`` in the splits shown: a bool mask ``[N]``; ChoiceError if all False."""
    mask = samples["split"].isin(SPLITS[split]).to_numpy()
    if not mask.any():
        there = ", ".join(sorted(map(str, samples["split"].unique()))) or "none"
        raise ChoiceError(f"this run has no sample in split {split} (splits there: {there})")
    return mask
