"""What a figure shows: which head, always chosen on validation samples, and which samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from sally_anne.core.errors import ChoiceError
from sally_anne.hooks.geometry import Head
from sally_anne.hooks.saved_run import Run, require_columns

Split = Literal["train", "validation", "test"]
Shown = Literal["held-out", "validation", "test", "train", "all"]
SPLITS: dict[str, tuple[str, ...]] = {
    "held-out": ("validation", "test"),
    "validation": ("validation",),
    "test": ("test",),
    "train": ("train",),
    "all": ("train", "validation", "test"),
}


def best(heads: pd.DataFrame, label: str) -> Head:
    """The head with rank 1 for ``label`` (best validation accuracy); ChoiceError if none has."""
    column = f"{label}_rank"
    require_columns(heads, [column], "heads.parquet")
    ranked = heads.dropna(subset=[column]).sort_values([column, "layer", "head"])
    if ranked.empty:
        raise ChoiceError(f"heads.parquet ranks no head in {column}")
    return _head(ranked.iloc[0])


def sensitive(heads: pd.DataFrame, labels: Sequence[str] = ("y_p", "y_o")) -> Head:
    """The head whose worse label is best: highest min(Y_p, Y_o) validation accuracy.

    Ties go to the better sum of both accuracies, then to the lower layer and head.
    """
    order = {"worse": False, "total": False, "layer": True, "head": True}
    return _by_accuracy(heads, labels, order)[0]


def insensitive(
    heads: pd.DataFrame,
    has_weights: Callable[[int, int], bool],
    other_than: Head,
    labels: Sequence[str] = ("y_p", "y_o"),
) -> Head:
    """The head whose better label is worst: lowest max(Y_p, Y_o) validation accuracy.

    A probe that has stayed at zero has no boundary to show: only heads for which
    ``has_weights(layer, head)`` holds take part, unless none is left. ``other_than`` is passed over
    unless it is the only head. Ties go to the worse sum, then to the higher layer and head.
    """
    order = {"better": True, "total": True, "layer": False, "head": False}
    every = _by_accuracy(heads, labels, order)
    others = [head for head in every if head != other_than] or every
    return next((head for head in others if has_weights(*head)), others[0])


def named(heads: pd.DataFrame, layer: int, head: int) -> Head:
    """The head asked for; a ChoiceError says which heads there are instead."""
    if heads[(heads["layer"] == layer) & (heads["head"] == head)].empty:
        raise ChoiceError(
            f"this run has no {Head(layer, head)}: "
            f"layers {heads['layer'].min()} to {heads['layer'].max()}, "
            f"heads {heads['head'].min()} to {heads['head'].max()}"
        )
    return Head(layer, head)


def label_of(run: Run, label: str | None) -> str:
    """The label asked for, or the run's first; a ChoiceError says which labels it has instead."""
    if label is not None and label not in run.labels or not run.labels:
        there = ", ".join(run.labels) or "none"
        raise ChoiceError(f"{run.folder} ranks no heads by label {label} (labels: {there})")
    return label or run.labels[0]


def select(samples: pd.DataFrame, shown: str) -> np.ndarray:
    """Rows of ``samples`` in the splits shown: a bool mask ``[N]``; ChoiceError if all False."""
    if shown not in SPLITS:
        raise ChoiceError(f"no split named {shown!r}; one of {', '.join(SPLITS)}")
    mask = samples["split"].isin(SPLITS[shown]).to_numpy()
    if not mask.any():
        there = ", ".join(sorted(map(str, samples["split"].unique()))) or "none"
        raise ChoiceError(f"this run has no sample in split {shown} (splits there: {there})")
    return mask


def _by_accuracy(heads: pd.DataFrame, labels: Sequence[str], order: dict[str, bool]) -> list[Head]:
    """Heads that have all labels' validation accuracies, by columns that rise (True) or fall."""
    columns = [f"{label}_validation_accuracy" for label in labels]
    require_columns(heads, columns, "heads.parquet")
    found = heads.dropna(subset=columns)
    if found.empty:
        raise ChoiceError("heads.parquet has no validation accuracy for any head")
    shares = found[columns].agg(["min", "max", "sum"], axis=1)
    table = found.assign(worse=shares["min"], better=shares["max"], total=shares["sum"])
    ranked = table.sort_values(list(order), ascending=list(order.values()))
    return [_head(row) for _, row in ranked.iterrows()]


def _head(row: pd.Series) -> Head:
    return Head(int(row["layer"]), int(row["head"]))
