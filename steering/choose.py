"""Choosing K and alpha on validation stories."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from harness.metrics import Metrics, belief_metrics
from harness.pipeline import sheet_of
from steering.errors import SteeringError
from steering.grid import Cell


def cell_metrics(table: pd.DataFrame, reader: str = "robust") -> dict[str, Metrics]:
    """Belief metrics of every cell, by the cell's name, in the table's order."""
    return {
        str(name): belief_metrics(sheet_of(rows, reader))
        for name, rows in table.groupby("cell", sort=False)
    }


def choose(table: pd.DataFrame, candidates: Iterable[Cell], reader: str = "robust") -> Cell:
    """The cell with the best Both; ties go to the smaller alpha, then to fewer heads.

    Args:
        table: answers on validation stories, from :func:`steering.sweeping.run_cells`.
        candidates: the cells to choose from, the baseline left out.
        reader: who reads the answers.

    Raises:
        SteeringError: no candidates, or an answer on a test story among the table's.
    """
    if (table["split"] == "test").any():
        raise SteeringError("K and alpha must not be chosen on test stories")
    metrics = cell_metrics(table, reader)
    ranked = sorted(
        (-metrics[cell.name].Both.value, abs(cell.alpha), cell.k, cell.name, cell)
        for cell in candidates
        if cell.k
    )
    if not ranked:
        raise SteeringError("there is no steered cell to choose from")
    return ranked[0][-1]
