"""The table of heads: accuracies of both probes on each split, and the ranking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from probing.config import Solver
from probing.probes import HeadProbes
from sally_anne.benchmarks.gridtom.splits import SPLITS
from sally_anne.core.errors import ProbingError

LABELS = ("y_p", "y_o")


@dataclass(frozen=True)
class ProbeSet:
    """Probes of one run: ``y_p`` and ``y_o`` binary, ``op`` with classes 2 * y_o + y_p."""

    y_p: HeadProbes
    y_o: HeadProbes
    op: HeadProbes


def four_way(items: pd.DataFrame) -> np.ndarray:
    """The four-way label 2 * y_o + y_p: o0p0, o0p1, o1p0, o1p1 (section 4.2)."""
    return (2 * items["y_o"].astype(int) + items["y_p"].astype(int)).to_numpy()


def fit_probes(
    x: np.ndarray, items: pd.DataFrame, c: float, max_iter: int, solver: Solver = "sklearn"
) -> ProbeSet:
    """Fit all probes on the training stories alone.

    Args:
        x: activations ``[N, L, H, D]``.
        items: their labels and splits, in the same order.
        c: inverse penalty.
        max_iter: solver's limit.
        solver: see :class:`probing.probes.HeadProbes`.
    """
    train = _rows(items, "train")
    labels = {
        "y_p": items["y_p"].to_numpy(bool),
        "y_o": items["y_o"].to_numpy(bool),
        "op": four_way(items),
    }
    return ProbeSet(
        **{
            name: HeadProbes(c, max_iter, solver).fit(x[train], y[train])
            for name, y in labels.items()
        }
    )


def rank_heads(x: np.ndarray, items: pd.DataFrame, probes: ProbeSet) -> pd.DataFrame:
    """Accuracy, log-loss, AUC, sigma and rank of every head.

    Heads are ranked by validation accuracy, ties by validation log-loss. The test stories enter
    their own columns only.

    Returns:
        One row a head, in the order of layers and heads.
    """
    _, layers, heads, _ = x.shape
    columns: dict[str, np.ndarray] = {
        "layer": np.repeat(np.arange(layers), heads),
        "head": np.tile(np.arange(heads), layers),
    }
    for label in LABELS:
        probe: HeadProbes = getattr(probes, label)
        y = items[label].to_numpy(bool)
        for split in SPLITS:
            rows = _rows(items, split)
            accuracy = probe.score(x[rows], y[rows]) if rows.any() else _nothing(layers, heads)
            columns[f"{label}_{split}_accuracy"] = accuracy.ravel()
            if split == "train":
                continue
            for name, measure in (("log_loss", probe.log_loss), ("auc", probe.auc)):
                value = measure(x[rows], y[rows]) if rows.any() else _nothing(layers, heads)
                columns[f"{label}_{split}_{name}"] = value.ravel()
        columns[f"{label}_sigma"] = probe.sigma(x[_rows(items, "train")]).ravel()
        best_first = np.lexsort(
            (
                columns[f"{label}_validation_log_loss"],
                -columns[f"{label}_validation_accuracy"],
            )
        )
        rank = np.empty(layers * heads, dtype=int)
        rank[best_first] = np.arange(1, layers * heads + 1)
        columns[f"{label}_rank"] = rank
    return pd.DataFrame(columns)


def _nothing(layers: int, heads: int) -> np.ndarray:
    return np.full((layers, heads), np.nan)


def _rows(items: pd.DataFrame, split: str) -> np.ndarray:
    rows = (items["split"] == split).to_numpy()
    if split != "test" and not rows.any():
        raise ProbingError(f"no {split} samples: use more stories (--stories)")
    return rows
