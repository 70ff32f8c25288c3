"""Choosing K and alpha on validation stories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pandas as pd

from sally_anne.core.bootstrap import Estimate
from sally_anne.core.errors import SteeringError
from sally_anne.harness.metrics import Metrics, Unit, belief_metrics, paired_accuracy
from sally_anne.harness.results import scores
from steering.grid import BASELINE, Cell


def cell_metrics(
    table: pd.DataFrame, reader: str = "robust", unit: Unit | None = None
) -> dict[str, Metrics]:
    """Belief metrics of every cell, by the cell's name, in the table's order."""
    return {
        str(name): belief_metrics(scores(rows, reader), unit=unit)
        for name, rows in table.groupby("cell", sort=False)
    }


def best_first(
    table: pd.DataFrame, candidates: Iterable[Cell], reader: str = "robust"
) -> list[Cell]:
    """Steered cells by their Both; ties go to the smaller alpha, then to fewer heads.

    Args:
        table: answers on validation stories, from :func:`steering.sweeping.run_cells`.
        candidates: the cells to choose from, the baseline left out.
        reader: who reads the answers.

    Raises:
        SteeringError: no candidates, or an answer on a test story among the table's.
    """
    _without_test(table)
    metrics = cell_metrics(table, reader)
    ranked = sorted(
        (-metrics[cell.name].Both.value, abs(cell.alpha), cell.k, cell.name, cell)
        for cell in candidates
        if cell.k
    )
    if not ranked:
        raise SteeringError("there is no steered cell to choose from")
    return [row[-1] for row in ranked]


def choose(
    ranked: Sequence[Cell],
    initial: Callable[[Cell], pd.DataFrame],
    most: float,
    reader: str = "robust",
) -> Cell:
    """The best cell that leaves the initial belief alone.

    Cells are tried from the best on, so that few of them are asked the initial-belief questions.
    If none passes, it is the one with the smallest fall.

    Args:
        ranked: from :func:`best_first`.
        initial: answers to the initial-belief questions on validation stories, in the baseline and
            in a cell.
        most: largest fall of their accuracy that passes, as a share.
        reader: who reads the answers.

    Raises:
        SteeringError: an answer on a test story.
    """
    falls: list[float] = []
    for cell in ranked:
        table = initial(cell)
        _without_test(table)
        falls.append(-initial_gain(table, cell, reader).value)
        # Shares of few questions are not exact in binary.
        if falls[-1] <= most + 1e-9:
            return cell
    return ranked[min(range(len(falls)), key=falls.__getitem__)]


def initial_gain(table: pd.DataFrame, cell: Cell, reader: str) -> Estimate:
    """How much more often initial-belief questions are answered rightly in a cell."""
    before, after = (
        scores(table[table["cell"] == name], reader) for name in (BASELINE.name, cell.name)
    )
    return paired_accuracy(before, after)["overall"]


def _without_test(table: pd.DataFrame) -> None:
    if (table["split"] == "test").any():
        raise SteeringError("K and alpha must not be chosen on test stories")
