"""Runs that can be compared: what is read of each, that they asked the same, how they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from sally_anne.core.errors import HarnessError, MissingRunFileError, RunFolderError
from sally_anne.core.folder import RESULTS
from sally_anne.core.run import read_table, require_columns, saved_results
from sally_anne.harness.baselines import Asked
from sally_anne.harness.tasks import short_name

MADE_BY = "sally-anne evaluate"
TABLE = "answers.parquet"
FACTS = ("item_id", "story", "condition", "first", "hidden")
# Options by which answers, or what is compared of them, do not differ.
_SILENT = frozenset(
    (
        "out",
        "data",
        "batch_size",
        "device",
        "device_map",
        "dry_run",
        "allow_mismatch",
        "human",
        "limit",
    )
    + ("split", "split_seed", "judge_key", "judge_prices", "endpoint")
    + tuple(f"endpoint_{n}" for n in ("key", "rate", "prices", "limit", "timeout", "model"))
)
# Options whose values say of themselves what they are of.
_PLAIN = ("model", "setting", "view", "window", "prompting")
# Beyond so many options that differ a run is called by its folder.
_MOST_WORDS = 2


@dataclass(frozen=True)
class Finished:
    """A finished evaluation.

    Attributes:
        folder: where it lies.
        options: its options by name.
        about: what its answers depend on beside them.
        results: its own numbers, by reader.
        answers: one row an item.
    """

    folder: Path
    options: Mapping[str, Any]
    about: Mapping[str, Any]
    results: Mapping[str, Any]
    answers: pd.DataFrame

    @property
    def task(self) -> str:
        """What was asked, as a comparison must have it alike."""
        task = short_name(self.options["task"])
        return f"{task} order {self.options.get('order')}" if task == "gridtom" else task

    @property
    def order(self) -> str | None:
        """GridToM's order; None of other tasks."""
        return self.options.get("order") if self.options["task"] == "gridtom" else None

    @property
    def asked(self) -> Asked:
        """As published figures are chosen by."""
        return Asked(self.options, self.about, int((~self.answers["hidden"]).sum()))


@dataclass(frozen=True)
class Shared:
    """What several runs have in common.

    Attributes:
        runs: in the order given.
        labels: what each is called, by how it differs from the others.
        tables: answers of each to the same items in the same order; those with a key.
        said: what was left out or cannot be checked, in words.
    """

    runs: tuple[Finished, ...]
    labels: tuple[str, ...]
    tables: tuple[pd.DataFrame, ...]
    said: tuple[str, ...]


def open_run(folder: Path) -> Finished:
    """Read a finished evaluation.

    Raises:
        MissingRunFileError: there is none, or it has not come to its end.
        RunFolderError: it is of another kind, or damaged.
    """
    if not folder.is_dir():
        raise MissingRunFileError(f"no run folder at {folder}; make one with `{MADE_BY}`")
    saved = saved_results(folder / RESULTS, MADE_BY)
    if saved is None:
        raise MissingRunFileError(
            f"{folder} holds no finished evaluation: {RESULTS} is missing; `{MADE_BY}` makes it, "
            "and goes on where it was stopped"
        )
    if "task" not in saved["config"] or "results" not in saved:
        raise RunFolderError(f"{folder} is a run of another command than `{MADE_BY}`")
    answers = read_table(folder / TABLE, MADE_BY)
    require_columns(answers, FACTS, folder / TABLE)
    if (twice := answers["item_id"][answers["item_id"].duplicated()]).any():
        raise RunFolderError(f"{folder / TABLE} has item {twice.iloc[0]!r} more than once")
    return Finished(folder, saved["config"], saved.get("about", {}), saved["results"], answers)


def share(runs: Sequence[Finished]) -> Shared:
    """What the runs have in common; a HarnessError names the first that did not ask the same."""
    first = runs[0]
    ids = first.answers["item_id"]
    for run in runs[1:]:
        if run.task != first.task:
            raise HarnessError(
                f"{run.folder} asked {run.task} and {first.folder} {first.task}: only runs of one "
                "task can be compared"
            )
        if first.order and run.about.get("data") != first.about.get("data"):
            raise HarnessError(
                f"{run.folder} asked of other stories than {first.folder}: give both runs the same "
                "--data or --data-seed"
            )
        ids = ids[ids.isin(run.answers["item_id"])]
        if ids.empty:
            raise HarnessError(
                f"{run.folder} has no item in common with {first.folder}: give runs of the same "
                "--split, --data and --limit"
            )
    there = [run.answers.set_index("item_id", drop=False).loc[ids] for run in runs]
    said = [
        f"{len(run.answers) - len(ids)} of {len(run.answers)} items of {run.folder} left out: "
        "another run did not ask them"
        for run in runs
        if len(run.answers) > len(ids)
    ]
    for run, table in zip(runs[1:], there[1:], strict=True):
        if said_more := _require_same(first, there[0], run, table):
            said.append(said_more)
    if hidden := int(there[0]["hidden"].sum()):
        said.append(f"{hidden} of {len(ids)} items have a hidden key: not compared")
    tables = [table[~table["hidden"]].reset_index(drop=True) for table in there]
    if tables[0].empty:
        raise HarnessError(f"{first.folder} has no item whose key is known: nothing to compare")
    return Shared(tuple(runs), tuple(_labels(runs)), tuple(tables), tuple(said))


def differences(runs: Sequence[Finished]) -> dict[str, list[Any]]:
    """The options that are not the same in all runs, each with its value in every run."""
    every = [_options(run) for run in runs]
    names = dict.fromkeys(name for options in every for name in options)
    values = {name: [options.get(name) for options in every] for name in names}
    return {name: found for name, found in values.items() if any(v != found[0] for v in found)}


def in_words(runs: Sequence[Finished]) -> Iterator[str]:
    """Each difference on a line, e.g. ``view: video against text``."""
    for name, values in differences(runs).items():
        told = dict.fromkeys("none" if value is None else str(value) for value in values)
        yield f"{name.replace('_', ' ')}: {' against '.join(told)}"


def _require_same(first: Finished, here: pd.DataFrame, run: Finished, there: pd.DataFrame) -> str:
    """HarnessError for the first item that is another question in ``run``; what is not checked.

    The authors' own protocols name and order options in their way, so keys are labels of their own.
    """
    names = [*FACTS[1:], *(name for name in ("question", "reference") if name in here)]
    same_labels = _protocol(first) == _protocol(run)
    kinds = {f"tag_{kind}" for kind in ("condition", *_kinds(first))}
    names += [name for name in here if name in kinds]
    for name in names + (["answer"] if same_labels else []):
        other = there[name] if name in there else pd.Series(None, there.index, object)
        if (wrong := here[name].astype(str) != other.astype(str)).any():
            item = here["item_id"][wrong].iloc[0]
            what = "key" if name == "answer" else name.removeprefix("tag_").replace("_", " ")
            raise HarnessError(
                f"{run.folder}: item {item!r} has another {what} than in {first.folder} "
                f"({other[item]!r}, not {here[name][item]!r}): these are not the same questions"
            )
    if same_labels:
        return ""
    return (
        f"the keys of {run.folder} are not compared with those of {first.folder}: the protocols "
        "name and order options in ways of their own"
    )


def _kinds(run: Finished) -> set[str]:
    """The kinds of tags that its numbers are broken down by."""
    return {kind for found in run.results.values() for kind in found.get("groups", ())}


def _protocol(run: Finished) -> str:
    return run.options.get("protocol", "sally-anne")


def _options(run: Finished) -> dict[str, Any]:
    """The options by which runs can differ; views and windows that were not chosen as they were.

    A model behind an endpoint goes by its name there.
    """
    found = {name: value for name, value in run.options.items() if name not in _SILENT}
    found |= {name: run.about[name] for name in ("view", "window") if name in run.about}
    if run.options.get("endpoint") is not None:
        found["model"] = run.options.get("endpoint_model")
    return found


def _labels(runs: Sequence[Finished]) -> Iterator[str]:
    """What each run is called: the values in which they differ, its folder where these are many."""
    found = differences(runs)
    names = [run.folder.resolve().name for run in runs]
    if 0 < len(found) <= _MOST_WORDS:
        columns = [[_word(name, value) for value in values] for name, values in found.items()]
        names = [", ".join(filter(None, words)) for words in zip(*columns, strict=True)]
    count = Counter(names)
    for number, name in enumerate(names, 1):
        yield name if count[name] == 1 else f"{number}: {name}"


def _word(name: str, value: Any) -> str:
    if name == "steer":
        return "not steered" if value is None else f"steered by {Path(value).name}"
    if name == "alpha" and value is None:
        return ""
    said = "by default" if value is None else Path(str(value)).name
    return said if name in _PLAIN else f"{name.replace('_', ' ')} {said}"
