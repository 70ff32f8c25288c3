"""The printed table of an evaluation, in the shape of the paper's table 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.config import EvalConfig

BELIEF = ("TB", "FB", "Both", "invalid")
INITIAL = ("overall", "invalid")


def print_results(console: Console, results: Mapping[str, Any], config: EvalConfig) -> None:
    """One row a reader, with 95 % intervals."""
    columns = INITIAL if config.order == "initial" else BELIEF
    what = "initial belief" if config.order == "initial" else f"belief of order {config.order}"
    steered = "not steered" if config.steer is None else f"steered by {config.steer.name}"
    table = Table(title=escape(f"{config.model}, {what}, {config.setting}, {steered} (%)"))
    table.add_column("answers read by")
    for column in columns:
        table.add_column(column, justify="right")
    for reader, metrics in results.items():
        table.add_row(reader, *(shown(metrics[column]) for column in columns))
    console.print(table)


def shown(estimate: Mapping[str, float]) -> str:
    """A share with its interval, in %."""
    return (
        f"{100 * estimate['value']:.1f} [{100 * estimate['low']:.1f}, {100 * estimate['high']:.1f}]"
    ).replace("[", r"\[")
