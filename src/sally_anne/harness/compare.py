"""``sally-anne compare A B``: finished evaluations of the same questions, pair by pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape

from sally_anne.core.console import Console as PlainConsole
from sally_anne.core.errors import FigureError, HarnessError, RunFolderError
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import RESULTS, claims, save_config
from sally_anne.core.run import read_table, require_columns, saved_results
from sally_anne.figures.comparison import draw_comparison
from sally_anne.harness.config import CompareConfig
from sally_anne.harness.report import (
    TIGHT,
    Conditions,
    part_name,
    print_published,
    print_table,
    published_for,
)
from sally_anne.harness.score import Part, over, paired, parsers, parts
from sally_anne.harness.tasks import find_task, short_name

MADE_BY = "sally-anne evaluate"
ANSWERS, TABLE = "answers.parquet", "comparison.parquet"
FACTS = ("item_id", "story", "condition", "first", "hidden")
ESTIMATES, ENDS = ("first", "second", "difference"), ("value", "low", "high")
# Options by which answers, or what is compared of them, do not differ.
_SILENT = frozenset(
    ("out", "data", "batch_size", "device", "device_map", "dry_run", "allow_mismatch", "human")
    + ("limit", "split", "split_seed", "judge_key", "judge_prices", "endpoint")
    + tuple(f"endpoint_{n}" for n in ("key", "rate", "prices", "limit", "timeout", "model"))
)
# Options whose values name themselves.
_PLAIN = ("model", "setting", "view", "window", "prompting")
# Beyond so many options that differ a run is called by its folder.
_MOST_WORDS = 2


@dataclass(frozen=True)
class Finished:
    """A finished evaluation: its folder, its ``results.json``, and its answers, one row an item."""

    folder: Path
    saved: Mapping[str, Any]
    answers: pd.DataFrame

    @classmethod
    def open(cls, folder: Path) -> Finished:
        """RunFolderError if it is not finished, RunFolderError if it is of another kind."""
        saved = saved_results(folder / RESULTS, MADE_BY)
        if saved is None:
            raise RunFolderError(
                f"{folder} holds no finished evaluation: {RESULTS} is missing; `{MADE_BY}` makes it"
            )
        if "task" not in saved["config"] or "results" not in saved or "about" not in saved:
            raise RunFolderError(f"{folder} is a run of another command than `{MADE_BY}`")
        answers = read_table(folder / ANSWERS, MADE_BY)
        require_columns(answers, FACTS, folder / ANSWERS)
        return cls(folder, saved, answers)

    @property
    def options(self) -> dict[str, Any]:
        """The options by which runs can differ, with the views and windows taken by default.

        A model behind an endpoint goes by its name there.
        """
        config, about = self.saved["config"], self.saved["about"]
        found = {name: value for name, value in config.items() if name not in _SILENT}
        found |= {name: about[name] for name in ("view", "window") if name in about}
        if config.get("endpoint") is not None:
            found["model"] = config.get("endpoint_model")
        return found

    @property
    def task(self) -> str:
        """What was asked, which all runs of a comparison have in common."""
        order = self.saved["about"].get("order")
        return short_name(self.saved["config"]["task"]) + (f" order {order}" if order else "")

    @property
    def protocol(self) -> str:
        return self.saved["config"].get("protocol", "sally-anne")

    @property
    def kinds(self) -> list[str]:
        """The kinds of tags that its figures are broken down by."""
        found = (kind for own in self.saved["results"].values() for kind in own.get("groups", ()))
        return list(dict.fromkeys(found))

    @property
    def conditions(self) -> Conditions:
        """As published figures are chosen by."""
        keyed = int((~self.answers["hidden"]).sum())
        return Conditions(self.saved["config"], self.saved["about"], keyed)

    def parts(self, table: pd.DataFrame, parser: str) -> Iterator[Part]:
        """As the run's own figures are reported."""
        own = self.saved["results"].get(parser, {})
        cells = find_task(self.saved["config"]["task"]).cells if "cells" in own else ()
        return parts(table, parser, self.kinds, cells, self.saved["beliefs"])


@dataclass(frozen=True)
class Shared:
    """What several runs have in common.

    Attributes:
        runs: in the order given.
        labels: what each is called, by how it differs from the others.
        tables: answers of each to the same items in the same order; those with a key.
        notes: what was left out or cannot be checked, in words.
    """

    runs: tuple[Finished, ...]
    labels: tuple[str, ...]
    tables: tuple[pd.DataFrame, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, runs: Sequence[Finished]) -> Shared:
        """A HarnessError names the first run that did not ask the same."""
        first = runs[0]
        ids = first.answers["item_id"]
        for run in runs[1:]:
            ids = ids[ids.isin(run.answers["item_id"])]
            stories = [one.saved["about"].get("stories") for one in (first, run)]
            if run.task != first.task or stories[0] != stories[1] or ids.empty:
                raise HarnessError(
                    f"{run.folder} ({run.task}) and {first.folder} ({first.task}) have no item in "
                    "common: give runs of the same task, --split, --data and --limit"
                )
        there = [run.answers.set_index("item_id", drop=False).loc[ids] for run in runs]
        notes = [
            f"{len(run.answers) - len(ids)} of {len(run.answers)} items of {run.folder} left out: "
            "another run did not ask them"
            for run in runs
            if len(run.answers) > len(ids)
        ]
        for run, table in zip(runs[1:], there[1:], strict=True):
            _require_same(first, there[0], run, table)
            if run.protocol != first.protocol:
                notes.append(
                    f"the keys of {run.folder} are not compared with those of {first.folder}: the "
                    "protocols name and order options in ways of their own"
                )
        if hidden := int(there[0]["hidden"].sum()):
            notes.append(f"{hidden} of {len(ids)} items have a hidden key: not compared")
        tables = tuple(table[~table["hidden"]].reset_index(drop=True) for table in there)
        if tables[0].empty:
            raise HarnessError(f"{first.folder} has no item whose key is known")
        return cls(tuple(runs), tuple(_labels(runs)), tables, tuple(notes))

    def parsers(self, parser: str | None = None) -> list[str]:
        """Those that have read all runs, or ``parser`` alone; a HarnessError if there are none."""
        each = [parsers(table) for table in self.tables]
        common = [p for p in each[0] if all(p in own for own in each) and parser in (None, p)]
        if not common:
            raise HarnessError(
                f"the runs have no {parser or 'parser'} in common ({each}); open replies need "
                "--judge"
            )
        return common


def run(config: CompareConfig) -> None:
    """Compare, print, save and draw."""
    if len(config.runs) < 2:
        raise FigureError("give two run folders or more, as `sally-anne evaluate` leaves them")
    compare_runs(config)


@claims("a comparison of evaluations")
def compare_runs(config: CompareConfig, console: Console | None = None) -> pd.DataFrame:
    """Do it in ``config.folder``; the table is that of :func:`compare`."""
    console = console or PlainConsole()
    shared = Shared.of([Finished.open(folder) for folder in config.runs])
    table = compare(shared, shared.parsers(config.parser))
    conditions = [run.conditions for run in shared.runs]
    save_config(config.folder, asdict(config))
    write_atomic(config.folder / TABLE, table.to_parquet(None, index=False))
    saved = {
        "config": asdict(config),
        "labels": shared.labels,
        "differences": differences(shared.runs),
        "left_out": shared.notes,
        "items": len(shared.tables[0]),
        "results": table.to_dict("records"),
        "published": published_for(conditions),
    }
    write_json(config.folder / RESULTS, saved)
    print_comparison(console, shared, table)
    print_published(console, conditions)
    drawn = draw_comparison(understood(table), [shared.runs[0].task], config.folder)
    console.print(f"comparison: {escape(str(config.folder))} ({drawn[0].name})", soft_wrap=True)
    return table


def compare(shared: Shared, read_by: Sequence[str]) -> pd.DataFrame:
    """The figures of each later run against the first, on the items that all of them asked.

    Returns:
        One row a run, parser, part and measure: ``run, against`` (labels), ``parser``, ``kind`` and
        ``value`` of a tag (``cells`` and a combination; both empty of all items), ``items`` (these
        in words), ``measure`` (overall, TB, FB, Both, invalid), ``n``, value and 95 % interval of
        the first run, of the second and of the difference (``first, first_low, first_high, second,
        ...``), in how many items or pairs only one has it (``only_first, only_second``) and
        McNemar's ``p``.
    """
    rows = []
    for label, other in zip(shared.labels[1:], shared.tables[1:], strict=True):
        for parser in read_by:
            about = {"run": label, "against": shared.labels[0], "parser": parser}
            # The same items, tags and all, with the other run's outcomes.
            names = [f"{parser}_{outcome}" for outcome in ("correct", "invalid")]
            second = shared.tables[0].assign(**{name: other[name].to_numpy() for name in names})
            both = (shared.runs[0].parts(table, parser) for table in (shared.tables[0], second))
            for number, (part, against) in enumerate(zip(*both, strict=True)):
                found = paired(part.rows, against.rows, beliefs=part.beliefs, unit=part.unit)
                for measure, one in found.items():
                    if measure == "invalid" and number:  # counted once, over all items
                        continue
                    named = {"kind": part.kind, "value": part.value, "measure": measure}
                    row = about | named | {"n": one["difference"].n}
                    for name in ESTIMATES:
                        for end in ENDS:
                            key = name if end == "value" else f"{name}_{end}"
                            row[key] = getattr(one[name], end)
                    row |= {n: one[n] for n in ("only_first", "only_second", "p")}
                    rows.append(row | {"items": part_name(**named)})
    return pd.DataFrame(rows)


def differences(runs: Sequence[Finished]) -> dict[str, list[Any]]:
    """The options that are not the same in all runs, each with its value in every run."""
    every = [run.options for run in runs]
    names = dict.fromkeys(name for options in every for name in options)
    values = {name: [options.get(name) for options in every] for name in names}
    return {name: each for name, each in values.items() if any(v != each[0] for v in each)}


def _require_same(first: Finished, table: pd.DataFrame, run: Finished, other: pd.DataFrame) -> None:
    """HarnessError for the first item that is another question in ``run``.

    The authors' own protocols name and order options in their way, so keys are labels of their own.
    """
    names = [*FACTS[1:], *(name for name in ("question", "reference") if name in table)]
    tags = {f"tag_{kind}" for kind in ("condition", *first.kinds)}
    names += [name for name in table if name in tags]
    for name in names + (["answer"] if first.protocol == run.protocol else []):
        there = other[name] if name in other else pd.Series(None, other.index, object)
        if (wrong := table[name].astype(str) != there.astype(str)).any():
            item = table["item_id"][wrong].iloc[0]
            what = "key" if name == "answer" else name.removeprefix("tag_").replace("_", " ")
            raise HarnessError(
                f"{run.folder}: item {item!r} has another {what} than in {first.folder} "
                f"({there[item]!r}, not {table[name][item]!r}): these are not the same questions"
            )


def _labels(runs: Sequence[Finished]) -> Iterator[str]:
    """What each run is called: the values in which they differ, its folder where these are many."""
    different = differences(runs)
    names = [run.folder.resolve().name for run in runs]
    if 0 < len(different) <= _MOST_WORDS:
        columns = [[_word(name, value) for value in values] for name, values in different.items()]
        names = [", ".join(filter(None, words)) for words in zip(*columns, strict=True)]
    count = Counter(names)
    for number, name in enumerate(names, 1):
        yield name if count[name] == 1 else f"{number}: {name}"


def _word(name: str, value: Any) -> str:
    if name == "steer":
        return "not steered" if value is None else f"steered by {Path(value).name}"
    if name == "alpha" and value is None:
        return ""
    word = "by default" if value is None else Path(str(value)).name
    return word if name in _PLAIN else f"{name.replace('_', ' ')} {word}"


def understood(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of parsers that could read some reply of some run, if there are such."""
    invalid = table[table["measure"] == "invalid"]
    nothing = (invalid[["first", "second"]] == 1).all(axis=1).groupby(invalid["parser"]).all()
    kept = table[~table["parser"].map(nothing).astype(bool)]
    return table if kept.empty else kept


def print_comparison(console: Console, shared: Shared, table: pd.DataFrame) -> None:
    """A table for each later run and parser; before them how runs differ, and what is left out."""
    for name, values in differences(shared.runs).items():
        each = dict.fromkeys("none" if value is None else str(value) for value in values)
        line = f"{name.replace('_', ' ')}: {' against '.join(each)}"
        console.print(escape(line), soft_wrap=True)
    for line in shared.notes:
        console.print(escape(line), soft_wrap=True)
    first = shared.labels[0]
    for (label, parser), own in understood(table).groupby(["run", "parser"], sort=False):
        rows = []
        for row in own.to_dict("records"):
            before, after, gain = (
                {end: row[name if end == "value" else f"{name}_{end}"] for end in ENDS}
                for name in ESTIMATES
            )
            alone = f"{row['only_first']}, {row['only_second']}"
            p = f"{row['p']:.3f}" if row["p"] >= 0.001 else "< .001"
            rows.append([row["items"], row["n"], before, after, gain | {"signed": True}, alone, p])
        title = f"{shared.runs[0].task}, parsed by {parser}: {label} against {first} (%)"
        columns = ["items", "n", first, label, "difference", "alone", "p"]
        print_table(console, title, columns, rows, **TIGHT)
    unit = {"map": "maps", "story": "stories"}[over(shared.tables[0])]
    if shared.runs[0].kinds:
        unit = "groups (films, episodes, stories)"
    console.print(
        f"95 % intervals over {unit}, paired. alone: in how many items, or pairs of TB and FB, "
        "only the first and only the second run has it. p: McNemar's exact test of that row",
        soft_wrap=True,
    )
