"""``sally-anne compare A B``: finished evaluations of the same questions, pair by pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from sally_anne.core.console import Console, print_lines, print_table
from sally_anne.core.errors import HarnessError, RunFolderError
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import RESULTS, claims, save_config
from sally_anne.core.run import read_table, saved_results
from sally_anne.data.items import short_name
from sally_anne.data.tasks import find_task
from sally_anne.figures.comparison import draw_comparison
from sally_anne.harness.config import CompareConfig
from sally_anne.harness.report import part_name
from sally_anne.harness.score import JOINT, Part, over, paired, parsers, parts
from sally_anne.models.options import ModelOptions

MADE_BY = "sally-anne evaluate"
ANSWERS, TABLE = "answers.parquet", "comparison.parquet"
FACTS = ("item_id", "story", "condition", "first", "hidden")
# The columns of three estimates, and what follows their names.
ESTIMATES, ENDS = ("first", "second", "difference"), {"value": "", "low": "_low", "high": "_high"}
# Options by which answers, or what is compared of them, do not differ.
_SILENT = frozenset(
    ("out", "data", "batch_size", "device", "device_map", "dry_run", "allow_mismatch", "human")
    + ("limit", "split", "split_seed", "judge_key", "endpoint")
    + tuple(f"endpoint_{n}" for n in ("key", "rate", "limit", "model"))
)


# Those by which runs of one side differ.
_OF_MODELS = {*ModelOptions.__dataclass_fields__, "endpoint_fields", "replies"}


@dataclass(frozen=True)
class Finished:
    """A finished evaluation: its folder, its ``results.json``, and its answers, one row an item."""

    folder: Path
    saved: Mapping[str, Any]
    answers: pd.DataFrame

    @classmethod
    def open(cls, folder: Path) -> Finished:
        """RunFolderError if it is not finished, or of another kind."""
        saved = saved_results(folder / RESULTS, MADE_BY, {"config": ()})
        finished = "task" in saved.get("config", {}) and "about" in saved
        if not finished or not isinstance(saved.get("results"), list):
            raise RunFolderError(f"{folder} holds no finished evaluation: `{MADE_BY}` makes it")
        answers = read_table(folder / ANSWERS, MADE_BY, FACTS)
        return cls(folder, saved, answers)

    @property
    def options(self) -> dict[str, Any]:
        config, about = self.saved["config"], self.saved["about"]
        found = {name: value for name, value in config.items() if name not in _SILENT}
        return found | {name: about[name] for name in ("view", "window") if name in about}

    @property
    def task(self) -> str:
        order = self.saved["about"].get("order")
        return short_name(self.saved["config"]["task"]) + (f" order {order}" if order else "")

    @property
    def kinds(self) -> list[str]:
        kinds = dict.fromkeys(row["kind"] for row in self.saved["results"])
        return [kind for kind in kinds if kind not in ("", "cells", JOINT)]

    def parts(self, table: pd.DataFrame, parser: str) -> Iterator[Part]:
        celled = any(row["kind"] == "cells" for row in self.saved["results"])
        cells = find_task(self.saved["config"]["task"]).cells if celled else ()
        return parts(table, parser, self.kinds, cells, self.saved["beliefs"])


@claims("a comparison of evaluations")
def compare_runs(config: CompareConfig, console: Console | None = None) -> pd.DataFrame:
    """Write a comparison to ``config.folder`` and print it; the table of :func:`compare`."""
    console = console or Console()
    runs = [Finished.open(folder) for folder in config.runs]
    answers, notes = shared_answers(runs)
    table = compare(runs, answers, config.means)
    save_config(config.folder, asdict(config))
    write_atomic(config.folder / TABLE, table.to_parquet(None, index=False))
    different = differences(runs)
    saved = {
        "config": asdict(config),
        "labels": [*sides_of(runs, config.means)],
        "differences": different,
        "left_out": notes,
        "items": len(answers[0]),
        "results": table.to_dict("records"),
    }
    write_json(config.folder / RESULTS, saved)
    how = {name.replace("_", " "): " against ".join(map(str, v)) for name, v in different.items()}
    print_lines(console, [*(f"{name}: {values}" for name, values in how.items()), *notes])
    _print(console, runs[0].task, understood(table))
    unit = "groups (films, episodes, stories)" if runs[0].kinds else over(answers[0])
    alone = "more models of one side are" if config.means else "one run alone is"
    console.print(
        f"95 % intervals, paired, by {unit}. alone: in how many items, or pairs of TB and FB, "
        f"{alone} right. p: McNemar's exact test of that row",
        soft_wrap=True,
    )
    drawn = draw_comparison(understood(table), [runs[0].task], config.folder)
    print_lines(console, [f"comparison: {config.folder} ({drawn[0].name})"])
    return table


def shared_answers(runs: Sequence[Finished]) -> tuple[list[pd.DataFrame], list[str]]:
    """Each run's answers to the items that all have asked and whose key is known, in one order.

    Also what was left out, in words. A HarnessError names the first run that did not ask the same.
    """
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
    protocols = [run.saved["config"].get("protocol", "sally-anne") for run in runs]
    names = [*FACTS[1:], "question", "reference", "tag_condition"]
    names += [f"tag_{kind}" for kind in first.kinds]
    for run, table, protocol in zip(runs[1:], there[1:], protocols[1:], strict=True):
        # The authors' own protocols name and order options in their way.
        if protocol != protocols[0]:
            notes.append(f"the keys of {run.folder} are not compared: it has another protocol")
        compared = [*names, *(["answer"] if protocol == protocols[0] else [])]
        for name in (name for name in compared if name in there[0]):
            other = table.get(name, pd.Series(None, table.index, object))
            if (wrong := there[0][name].astype(str) != other.astype(str)).any():
                item = ids[wrong.to_numpy()].iloc[0]
                what = "key" if name == "answer" else name.removeprefix("tag_").replace("_", " ")
                raise HarnessError(
                    f"{run.folder}: item {item!r} has another {what} than in {first.folder} "
                    f"({other[item]!r}, not {there[0][name][item]!r}): these are not the same "
                    "questions"
                )
    if hidden := int(there[0]["hidden"].sum()):
        notes.append(f"{hidden} of {len(ids)} items have a hidden key: not compared")
    tables = [table[~table["hidden"]].reset_index(drop=True) for table in there]
    if tables[0].empty:
        raise HarnessError(f"{first.folder} has no item whose key is known")
    return tables, notes


def compare(
    runs: Sequence[Finished],
    answers: Sequence[pd.DataFrame],
    means: bool = False,
) -> pd.DataFrame:
    """The figures of each later run against the first, on the items that all of them asked.

    With ``means`` of each later side of :func:`sides_of`.

    One row a run, parser that all share, part (``kind`` and ``value`` as of
    :class:`Part`; ``items`` in words) and measure: value and 95 % interval of the first run, of the
    second and of the difference, and what :func:`paired` counts.
    """
    each = [parsers(table) for table in answers]
    common = [parser for parser in each[0] if all(parser in own for own in each)]
    if not common:
        raise HarnessError(f"the runs have no parser in common ({each}); open replies need --judge")
    rows = []
    (first, own), *others = sides_of(runs, means).items()
    for label, other in others:
        for parser in common:
            about = {"run": label, "against": first, "parser": parser}
            # The same items, tags and all, with each run's outcomes.
            names = [f"{parser}_{outcome}" for outcome in ("correct", "invalid")]
            tables = (
                answers[0].assign(**{name: answers[at][name].to_numpy() for name in names})
                for at in (*own, *other)
            )
            each_run = (runs[0].parts(table, parser) for table in tables)
            for number, (part, *more) in enumerate(zip(*each_run, strict=True)):
                scored = [part.rows, *(one.rows for one in more)]
                both = scored[: len(own)], scored[len(own) :]
                found = paired(*both, beliefs=part.beliefs, unit=part.unit)
                for measure, one in found.items():
                    if measure == "invalid" and number:  # counted once, over all items
                        continue
                    row = {"kind": part.kind, "value": part.value, "measure": measure}
                    row = about | row | {"n": one["difference"].n}
                    for name, (end, tail) in product(ESTIMATES, ENDS.items()):
                        row[name + tail] = getattr(one[name], end)
                    row |= {n: one[n] for n in ("only_first", "only_second", "p")}
                    rows.append(row | {"items": part_name(part.name, measure)})
    return pd.DataFrame(rows)


def sides_of(runs: Sequence[Finished], means: bool) -> dict[str, list[int]]:
    """Places of the runs of each side, by its name: each run, or all that differ in their model.

    A run is called as its folder, with a number where two have one name. HarnessError unless the
    sides of ``means`` have the same models.
    """
    if not means:
        names = [run.folder.resolve().name for run in runs]
        return {n if names.count(n) == 1 else f"{i}: {n}": [i - 1] for i, n in enumerate(names, 1)}
    different = [each for name, each in differences(runs).items() if name not in _OF_MODELS]
    sides: dict[str, list[int]] = {}
    for place in range(len(runs)):
        sides.setdefault(", ".join(str(each[place]) for each in different), []).append(place)
    models = [sorted(str(runs[at].options["model"]) for at in side) for side in sides.values()]
    if len(sides) < 2 or any(found != models[0] for found in models):
        raise HarnessError(f"--means takes the same models on each of two sides, got {models}")
    return sides


def differences(runs: Sequence[Finished]) -> dict[str, list[Any]]:
    """The options that are not the same in all runs, with each run's value."""
    every = [run.options for run in runs]
    names = dict.fromkeys(name for options in every for name in options)
    values = {name: [options.get(name) for options in every] for name in names}
    return {name: each for name, each in values.items() if any(v != each[0] for v in each)}


def understood(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of parsers that could read some reply of some run, if there are such."""
    invalid = table[table["measure"] == "invalid"]
    nothing = (invalid[["first", "second"]] == 1).all(axis=1).groupby(invalid["parser"]).all()
    kept = table[~table["parser"].map(nothing).astype(bool)]
    return table if kept.empty else kept


def _print(console: Console, task: str, table: pd.DataFrame) -> None:
    for (label, first, parser), part in table.groupby(["run", "against", "parser"], sort=False):
        rows = []
        for row in part.to_dict("records"):
            before, after, gain = (
                {end: row[name + tail] for end, tail in ENDS.items()} for name in ESTIMATES
            )
            alone = f"{row['only_first']}, {row['only_second']}"
            p = f"{row['p']:.3f}" if row["p"] >= 0.001 else "< .001"
            rows.append([row["items"], row["n"], before, after, gain | {"signed": True}, alone, p])
        title = f"{task}, parsed by {parser}: {label} against {first} (%)"
        columns = ["items", "n", first, label, "difference", "alone", "p"]
        print_table(console, title, columns, rows)
