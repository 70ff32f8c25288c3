"""Published figures as data (``baselines.json``), to stand beside a run's own.

Each table names its source, whom it measured (models, people, chance), and what it showed them. A
figure is in %, as printed there; null is one that cannot be read there or is not given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from rich.console import Console
from rich.markup import escape

from sally_anne.harness.protocols import PROTOCOLS, protocol_of
from sally_anne.harness.reporting import TIGHT, print_table
from sally_anne.models.options import CATALOGUE

FILE = "baselines.json"
KINDS = ("model", "human", "chance")


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

    @property
    def shown(self) -> tuple[str, ...]:
        """How it was asked, in words."""
        how = [part for part in (self.view, self.window) if part]
        how += [self.prompting] if self.prompting != "direct" else []
        return (*how, *(["steered"] if self.steered else []))


@dataclass(frozen=True)
class Published:
    """One published table.

    Attributes:
        task: as ``--task`` names it.
        source: paper and table.
        note: of what the figures are, in words.
        measures: what the columns hold; ``best_by`` is the one by which rows are chosen.
        rows: who was measured.
        order: GridToM's ``--order``; empty for other tasks.
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
    questions: int | None = None
    frames: int | None = None

    def best(self, row: Baseline) -> float:
        """The figure by which rows are chosen."""
        return row.values[self.measures.index(self.best_by)] or 0.0


@dataclass(frozen=True)
class Asked:
    """How a run asked, as far as published figures depend on it; of a run's options and facts."""

    options: Mapping[str, Any]
    about: Mapping[str, Any]
    questions: int

    @property
    def task(self) -> str:
        return self.options.get("task", "gridtom")

    @property
    def order(self) -> str:
        return self.options.get("order", "1") if self.task == "gridtom" else ""

    def fits(self, row: Baseline) -> int:
        """In how many ways a row was asked as this run; what it does not say, fits."""
        asked = row.kind == "model"
        return sum(
            (
                self.shows(row),
                row.window in (None, self.about.get("window")),
                not asked or row.prompting == self.options.get("prompting", "direct"),
                not asked or row.steered == (self.options.get("steer") is not None),
            )
        )

    def shows(self, row: Baseline) -> bool:
        """Whether the row is of this run's view, or does not say of which."""
        return row.view in (None, self.about.get("view", self.about.get("setting")))

    def is_of(self, row: Baseline) -> bool:
        """Whether the row is of this run's model."""
        name = self.options.get("model")
        known = CATALOGUE.get(row.model or "")
        same = known is not None and name in (row.model, known.source)
        return same and self.options.get("endpoint") is None


ALIKE = 4  # the most that Asked.fits gives


@cache
def published() -> tuple[Published, ...]:
    """All tables, in the order of the file."""
    tables = json.loads((files("sally_anne.harness") / FILE).read_text(encoding="utf-8"))
    return tuple(
        Published(
            **table
            | {
                "measures": tuple(table["measures"]),
                "rows": tuple(
                    Baseline(**row | {"values": tuple(row["values"])}) for row in table["rows"]
                ),
            }
        )
        for table in tables
    )


def beside(asked: Asked) -> Iterator[tuple[Published, list[Baseline]]]:
    """The tables of a run's task, each with the few rows that belong beside the run.

    They are the run's own model, the best model, people and chance, each as it was asked most like
    the run. Tables of other views alone are left out, unless there is no other.
    """
    tables = [t for t in published() if (t.task, t.order) == (asked.task, asked.order)]
    like_it = [table for table in tables if any(map(asked.shows, table.rows))]
    for table in like_it or tables:
        own = [row for row in table.rows if asked.is_of(row)]
        of_kind = [[row for row in table.rows if row.kind == kind] for kind in KINDS]
        found = []
        for rows in (own, *of_kind):
            if rows:
                found.append(max(rows, key=lambda row: (asked.fits(row), table.best(row))))
        yield table, list(dict.fromkeys(found))


def differs(table: Published, asked: Asked) -> Iterator[str]:
    """How the run was not asked as the table's figures were, in words."""
    options = asked.options
    split, limit = options.get("split"), options.get("limit")
    if asked.task == "gridtom" and options.get("data") is None:
        yield "stories are made here, theirs are the release's"
    elif table.questions not in (None, asked.questions):
        yield f"{asked.questions:,} of their {table.questions:,} questions"
    elif asked.task == "gridtom" and split != "published":
        yield f"--split {split}, theirs is published"
    if limit is not None and table.questions is None:
        yield f"--limit {limit}"
    known = protocol_of(asked.task, asked.order) in PROTOCOLS
    if known and options.get("protocol", "sally-anne") != "official":
        yield "asked in this project's words (--protocol official: in theirs)"
    frames = options.get("frames")
    if None not in (frames, table.frames) and frames != table.frames:
        yield f"{frames} frames, theirs {table.frames}"


def print_published(console: Console, runs: Sequence[Asked]) -> None:
    """A small table for each source that has figures for the task of these runs, if any."""
    for table, rows in _together(runs):
        cells = []
        for row in rows:
            mark = "" if any(asked.fits(row) == ALIKE for asked in runs) else " *"
            values = ("" if value is None else str(float(value)) for value in row.values)
            cells.append([row.who + mark, ", ".join(row.shown), *values])
        console.print()
        columns = ["published", "shown", *table.measures]
        print_table(console, f"{table.source} (%)", columns, cells, **TIGHT)
        console.print(escape(f"theirs: {table.note}"), soft_wrap=True)
        if lines := dict.fromkeys(line for asked in runs for line in differs(table, asked)):
            console.print(escape(f"otherwise here: {'; '.join(lines)}"), soft_wrap=True)
        if any(cell[0].endswith(" *") for cell in cells):
            console.print("* not shown or asked as here")


def as_saved(runs: Sequence[Asked]) -> list[dict[str, Any]]:
    """The same, for a file: the tables with the rows that stand beside these runs."""
    return [
        asdict(table) | {"rows": [asdict(row) for row in rows]} for table, rows in _together(runs)
    ]


def _together(runs: Iterable[Asked]) -> list[tuple[Published, list[Baseline]]]:
    """What stands beside any of several runs, none twice."""
    found: dict[Published, list[Baseline]] = {}
    for asked in runs:
        for table, rows in beside(asked):
            have = found.setdefault(table, [])
            have += [row for row in rows if row not in have]
    return list(found.items())
