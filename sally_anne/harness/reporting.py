"""The printed table of an evaluation, in the shape of the paper's table 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sally_anne.harness.config import EvalConfig

BELIEF = ("TB", "FB", "Both", "invalid")
INITIAL = ("overall", "invalid")


def asked_readers(results: Mapping[str, Any], prompts: Iterable[str]) -> dict[str, Any]:
    """Results without those of the reader of JSON objects, where no prompt asked for one."""
    if len(results) < 2 or any("json" in prompt.casefold() for prompt in prompts):
        return dict(results)
    return {reader: found for reader, found in results.items() if reader != "official"}


def print_results(console: Console, results: Mapping[str, Any], config: EvalConfig) -> None:
    """One row a reader, with 95 % intervals."""
    columns = INITIAL if config.order == "initial" else BELIEF
    what = "initial belief" if config.order == "initial" else f"belief of order {config.order}"
    steered = "not steered" if config.steer is None else f"steered by {config.steer.name}"
    table = Table(title=escape(f"{config.model}, {what}, {config.setting}, {steered} (%)"))
    if any("over_stories" in metrics for metrics in results.values()):
        table.caption = "95 % intervals over maps"
    table.add_column("answers read by")
    for column in columns:
        table.add_column(column, justify="right")
    for reader, metrics in results.items():
        table.add_row(reader, *(shown(metrics[column]) for column in columns))
    console.print(table)


def print_breakdown(
    console: Console,
    results: Mapping[str, Any],
    counts: Mapping[str, int],
    config: EvalConfig,
    missing: Sequence[str] = (),
) -> None:
    """Accuracy overall and by tags, one column a reader, and what was not scored.

    Args:
        console: where to.
        results: from :func:`sally_anne.harness.results.break_down`.
        counts: from :func:`sally_anne.harness.results.counts`.
        config: what was asked.
        missing: ids of items whose films or words are not here.
    """
    steered = "not steered" if config.steer is None else f"steered by {config.steer.name}"
    table = Table(title=escape(f"{config.model}, {config.task}, {steered} (% right)"))
    table.add_column("items")
    table.add_column("n", justify="right")
    for reader in results:
        table.add_column(f"read by {reader}", justify="right")
    for name, cells in _rows(results).items():
        table.add_row(escape(name), str(cells[0]["n"]), *(shown(cell) for cell in cells))
    if results:
        console.print(table)
    unscored = counts["asked"] if not results else counts["hidden"]
    if not results and counts["hidden"] < counts["asked"]:
        console.print("replies to open questions are kept; --judge scores them")
    elif unscored:
        console.print(f"{unscored} of {counts['asked']} items have a hidden key: not scored")
    if missing:
        some = ", ".join(missing[:3])
        why = "their films or words are not here"
        console.print(escape(f"{len(missing)} items not asked, {why}: {some}"))


def _rows(results: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Name of each row and its cells, one a reader."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for found in results.values():
        cells = {"all": found["overall"]}
        for kind, values in found["groups"].items():
            cells |= {f"{kind}: {value}": cell for value, cell in values.items()}
        cells |= {f"belief: {name}": found["belief"][name] for name in BELIEF if "belief" in found}
        cells["invalid"] = found["invalid"]
        for name, cell in cells.items():
            rows.setdefault(name, []).append(cell)
    return rows


def shown(estimate: Mapping[str, float]) -> str:
    """A share with its interval, in %."""
    return (
        f"{100 * estimate['value']:.1f} [{100 * estimate['low']:.1f}, {100 * estimate['high']:.1f}]"
    ).replace("[", r"\[")
