"""What an evaluation prints: its figures, what to know before them, and published ones.

Published figures are data (``baselines.json``). Each table names its source, whom it measured
(models, people, chance), and what it showed them. A figure is in %, as printed there; null is one
that cannot be read there or is not given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import RESULTS
from sally_anne.data.items import Question
from sally_anne.harness.chat_endpoint import usage_line
from sally_anne.harness.config import EvalConfig, model_name, saved_options
from sally_anne.harness.parse import OFFICIAL
from sally_anne.harness.protocols import PROTOCOLS
from sally_anne.harness.score import JOINT
from sally_anne.harness.tasks import TaskItems
from sally_anne.models.loading import LoadedModel
from sally_anne.models.options import CATALOGUE
from sally_anne.models.processor import unknown_words

BELIEF = ("TB", "FB", "Both", "invalid")
ACCURACY = ("overall", "invalid")
# Without edges and wide gaps rows with intervals have room.
TIGHT: dict[str, Any] = {
    "box": SIMPLE_HEAD,
    "show_edge": False,
    "pad_edge": False,
    "padding": (0, 1, 0, 0),
}
FILE = "baselines.json"
KINDS = ("model", "human", "chance")
# In so many ways a published row can be asked as a run is, see Conditions.fits.
_WAYS = 4


def percent(estimate: Mapping[str, float], gap: str = " ") -> str:
    """A share and its interval in %, as rich's markup; with a sign if it is ``signed``."""
    # Rounded first, so that nothing is written as minus zero.
    value, low, high = (round(100 * estimate[name], 1) + 0.0 for name in ("value", "low", "high"))
    sign = "+" if estimate.get("signed") else ""
    return rf"{value:{sign}.1f}{gap}\[{low:.1f}, {high:.1f}]"


def print_table(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    caption: str | None = None,
    **style: Any,
) -> None:
    """A table whose first column stands left; rows hold texts, numbers and estimates (in %).

    Where the console has no room for them, intervals stand below their values.
    """
    rows = list(rows)

    def made(gap: str) -> Table:
        table = Table(title=escape(title), caption=caption, **style)
        for number, name in enumerate(columns):
            table.add_column(name, justify="right" if number else "left", overflow="fold")
        for row in rows:
            cells = (percent(c, gap) if isinstance(c, Mapping) else escape(str(c)) for c in row)
            table.add_row(*cells)
        return table

    table, unbounded = made(" "), console.options.update(max_width=10_000)
    fits = console.measure(table, options=unbounded).maximum <= console.width
    console.print(table if fits else made("\n"))


def save(
    console: Console,
    file: Path,
    table: pd.DataFrame,
    saved: Mapping[str, Any],
    loaded: LoadedModel | None,
    texts: Iterable[str],
) -> None:
    """Write a run's table and what else is saved; print which words of texts the model lacks."""
    unknown = None if loaded is None else unknown_words(loaded, texts)
    write_atomic(file, table.to_parquet(None, index=False))
    saved = {**saved, "unknown_words": unknown and asdict(unknown)}
    write_json(file.with_name(RESULTS), saved)
    if loaded and unknown and (warning := unknown.warning(loaded.name)):
        console.print(escape(warning), soft_wrap=True)


def print_evaluation(
    console: Console, config: EvalConfig, work: TaskItems, saved: Mapping[str, Any]
) -> None:
    """What a run of ``results.json`` found, with what a reader should know before and after."""
    counts, results = saved["counts"], expected_parsers(saved["results"], work.items)
    asked, hidden = counts["asked"], counts["hidden"]
    lines = list(warnings_for(results, counts, config.reply_tokens))
    if work.departs:
        lines.append(f"not as in the authors' protocol: {work.departs}")
    for line in lines:
        console.print(escape(line), soft_wrap=True)
    title = f"{model_name(config)}, {work.title}, {steered_by(config)}"
    if results and any("groups" in found for found in results.values()):
        _print_breakdown(console, results, title, work.cells)
    elif results:
        over_maps = any("over_stories" in found for found in results.values())
        columns = BELIEF if work.beliefs else ACCURACY
        rows = [[parser, *map(found.get, columns)] for parser, found in results.items()]
        note = "95 % intervals over maps" if over_maps else None
        print_table(console, f"{title} (%)", ["parser", *columns], rows, note)
    lines = list(work.remarks)
    if not results and hidden < asked:
        lines.append("replies to open questions are kept; --judge scores them")
    elif unscored := asked if not results else hidden:
        lines.append(f"{unscored} of {asked} items have a hidden key: not scored")
    if work.missing:
        why = f"their films or words are not here: {', '.join(work.missing[:3])}"
        lines.append(f"{len(work.missing)} items not asked, {why}")
    for line in lines:
        console.print(escape(line), soft_wrap=True)
    if results:
        about = Conditions(saved_options(config), saved["about"], asked - hidden)
        print_published(console, [about])
    lines = [usage_line(role, usage) for role, usage in saved["endpoints"].items()]
    if agreed := saved["agreement"]:
        share, kappa = f"{100 * agreed['agreement']:.1f} %", f"kappa {agreed['kappa']:.2f}"
        lines.insert(0, f"judge and people agree on {share} of {agreed['n']} replies ({kappa})")
    for line in [*lines, f"run folder: {config.folder}"]:
        console.print(escape(line), soft_wrap=True)


def expected_parsers(results: Mapping[str, Any], items: Iterable[Question]) -> dict[str, Any]:
    """Results without those of the authors' parser, where no prompt asked for its form."""
    asked = (OFFICIAL[i.official].asks.search(f"{i.system}\n{i.text}") for i in items)
    if len(results) < 2 or any(asked):
        return dict(results)
    return {parser: found for parser, found in results.items() if parser != "official"}


def warnings_for(
    results: Mapping[str, Any], counts: Mapping[str, int], reply_tokens: int
) -> Iterator[str]:
    """What a reader should know before the figures: cut replies, and that none was understood."""
    if cut := counts["cut"]:
        yield (
            f"warning: {cut} of {counts['asked']} replies were cut after {reply_tokens} tokens; "
            "--max-new-tokens gives them more"
        )
    if short := counts.get("perspectives_cut"):
        yield (
            f"warning: {short} of {counts['asked']} perspectives, simtom's first step, were cut; "
            "--max-new-tokens gives both steps more"
        )
    if results and all(found["invalid"]["value"] == 1 for found in results.values()):
        yield (
            "warning: no reply names one of the answers, so the figures say nothing of what the "
            "model knows: read column reply of answers.parquet, and try another --template or "
            "--style, or --options, which needs no reply"
        )


def steered_by(config: Any) -> str:
    """What steers a run, for a title."""
    if getattr(config, "endpoint", None) is not None:
        return "behind an endpoint"
    return "not steered" if config.steer is None else f"steered by {config.steer.name}"


def part_name(kind: str, value: str, measure: str) -> str:
    """A row of a table: of which items, and which measure of them."""
    if kind == "cells":
        return f"{value}: {measure}"
    if kind == JOINT:
        return f"all right: {value}"
    if kind:
        return f"{kind}: {value}"
    return "all" if measure == "overall" else measure


def _print_breakdown(
    console: Console, results: Mapping[str, Any], title: str, kinds: Sequence[str]
) -> None:
    """Accuracy overall and by tags, one column a parser; then TB, FB and both of each cell."""
    rows: dict[str, dict[str, Mapping[str, Any]]] = {}
    for parser, found in results.items():
        parts = [("", "", found["overall"])]
        for kind, values in (found["groups"] | {JOINT: found.get(JOINT, {})}).items():
            parts += [(kind, value, estimate) for value, estimate in values.items()]
        parts += [("belief", name, one) for name, one in found.get("belief", {}).items()]
        for kind, value, estimate in parts:
            rows.setdefault(part_name(kind, value, "overall"), {})[parser] = estimate
    for parser, found in results.items():
        rows.setdefault("invalid", {})[parser] = found["invalid"]
    cells = [
        [name, next(iter(each.values()))["n"], *(each.get(parser, "") for parser in results)]
        for name, each in rows.items()
    ]
    print_table(console, f"{title} (% right)", ["items", "n", *results], cells)
    cells = [
        [cell, parser, numbers["Both"]["n"], *map(numbers.get, BELIEF[:3])]
        for parser, found in results.items()
        for cell, numbers in found.get("cells", {}).items()
    ]
    if cells:
        what = ", ".join(kind.replace("_", " ") for kind in kinds)
        print_table(console, f"by {what} (% right)", [what, "parser", "n", *BELIEF[:3]], cells)


@dataclass(frozen=True)
class Baseline:
    """One row of a published table.

    Attributes:
        who: as the table has it, or ``human`` or ``chance``.
        kind: one of :data:`KINDS`.
        values: one for each of the table's measures, in %.
        view: what was shown, as ``--view`` (GridToM: ``--setting``) names it; None if unknown.
        window: as ``--window`` names it; None where there is one alone.
        prompting: as ``--prompting`` names it.
        steered: whether the authors steered it.
        model: its name in our catalogue, if it is there.
    """

    who: str
    kind: str
    values: tuple[float | None, ...]
    view: str | None = None
    window: str | None = None
    prompting: str = "direct"
    steered: bool = False
    model: str | None = None


@dataclass(frozen=True)
class Published:
    """One published table.

    Attributes:
        task: as ``--task`` names it.
        source: paper and table.
        note: of what the figures are, in words.
        measures: the columns; ``best_by`` is the one by which rows are chosen.
        rows: who was measured.
        order: as ``--order`` names it; empty for tasks without.
        split: as ``--split`` names theirs, of tasks that make stories of their own without --data.
        questions: how many were asked; None if that is not known.
        frames: how many were shown, where that is the same for all.
    """

    task: str
    source: str
    note: str
    measures: tuple[str, ...]
    best_by: str
    rows: tuple[Baseline, ...]
    order: str = ""
    split: str = ""
    questions: int | None = None
    frames: int | None = None


@dataclass(frozen=True)
class Conditions:
    """How a run asked, as far as published figures depend on it; of a run's options and facts."""

    options: Mapping[str, Any]
    about: Mapping[str, Any]
    questions: int

    def fits(self, row: Baseline) -> int:
        """In how many ways a row was asked as this run; what it does not say, fits."""
        model = row.kind == "model"
        return sum(
            (
                self.same_view(row),
                row.window in (None, self.about.get("window")),
                not model or row.prompting == self.options.get("prompting", "direct"),
                not model or row.steered == (self.options.get("steer") is not None),
            )
        )

    def same_view(self, row: Baseline) -> bool:
        """Whether the row is of this run's view, or does not say of which."""
        return row.view in (None, self.about.get("view", self.about.get("setting")))

    def tables(self) -> Iterator[tuple[Published, list[Baseline]]]:
        """The published tables of the run's task, each with the rows to compare the run with.

        They are the run's own model, the best model, people and chance, each as it was asked most
        like the run. Tables of other views alone are left out, unless there is no other.
        """
        key = (self.options["task"], self.about.get("order", ""))
        tables = [table for table in published() if (table.task, table.order) == key]
        name = self.options.get("model") if self.options.get("endpoint") is None else None
        for table in [t for t in tables if any(map(self.same_view, t.rows))] or tables:
            own = [
                row
                for row in table.rows
                if row.model in CATALOGUE and name in (row.model, CATALOGUE[row.model].source)
            ]
            kinds = ([row for row in table.rows if row.kind == kind] for kind in KINDS)
            best = table.measures.index(table.best_by)
            chosen = [
                max(rows, key=lambda row: (self.fits(row), row.values[best] or 0.0))
                for rows in (own, *kinds)
                if rows
            ]
            yield table, list(dict.fromkeys(chosen))

    def differences(self, table: Published) -> Iterator[str]:
        """How the run was not asked as the table's figures were, in words."""
        options = self.options
        split, limit = options.get("split"), options.get("limit")
        if table.split and options.get("data") is None:
            yield "stories are made here, theirs are the release's"
        elif table.questions not in (None, self.questions):
            yield f"{self.questions:,} of their {table.questions:,} questions"
        elif table.split and split != table.split:
            yield f"--split {split}, theirs is {table.split}"
        if limit is not None and table.questions is None:
            yield f"--limit {limit}"
        known = {table.task, f"{table.task} {table.order}"} & PROTOCOLS.keys()
        if known and options.get("protocol", "sally-anne") != "official":
            yield "asked in this project's words (--protocol official: in theirs)"
        frames = options.get("frames")
        if None not in (frames, table.frames) and frames != table.frames:
            yield f"{frames} frames, theirs {table.frames}"


@cache
def published() -> tuple[Published, ...]:
    """All tables, in the order of the file."""
    tables = json.loads((files("sally_anne.harness") / FILE).read_text(encoding="utf-8"))
    for table in tables:
        rows = (row | {"values": tuple(row["values"])} for row in table["rows"])
        table |= {"measures": tuple(table["measures"]), "rows": tuple(Baseline(**r) for r in rows)}
    return tuple(Published(**table) for table in tables)


def print_published(console: Console, runs: Sequence[Conditions]) -> None:
    """A small table for each source that has figures for the task of these runs, if any."""
    for table, rows in _tables_of(runs).items():
        cells = []
        for row in rows:
            mark = "" if any(run.fits(row) == _WAYS for run in runs) else " *"
            how = [row.view, row.window, row.prompting if row.prompting != "direct" else None]
            how += ["steered"] if row.steered else []
            values = ("" if value is None else str(float(value)) for value in row.values)
            cells.append([row.who + mark, ", ".join(filter(None, how)), *values])
        console.print()
        columns = ["published", "conditions", *table.measures]
        print_table(console, f"{table.source} (%)", columns, cells, **TIGHT)
        console.print(escape(f"theirs: {table.note}"), soft_wrap=True)
        if lines := dict.fromkeys(line for run in runs for line in run.differences(table)):
            console.print(escape(f"otherwise here: {'; '.join(lines)}"), soft_wrap=True)
        if any(cell[0].endswith(" *") for cell in cells):
            console.print("* not shown or asked as here")


def published_for(runs: Sequence[Conditions]) -> list[dict[str, Any]]:
    """The same, for a file: the tables with the rows to compare these runs with."""
    found = _tables_of(runs).items()
    return [asdict(table) | {"rows": [asdict(row) for row in rows]} for table, rows in found]


def _tables_of(runs: Iterable[Conditions]) -> dict[Published, list[Baseline]]:
    tables: dict[Published, list[Baseline]] = {}
    for run in runs:
        for table, rows in run.tables():
            have = tables.setdefault(table, [])
            have += [row for row in rows if row not in have]
    return tables
