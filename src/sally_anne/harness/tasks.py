"""Tasks by name, and what each gives an evaluation to ask.

`--task` takes gridtom and all that :func:`sally_anne.data.tasks.find_task` knows.
"""

from __future__ import annotations

import hashlib
import pkgutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sally_anne.core.console import many
from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Question
from sally_anne.data.tasks import BENCHMARKS, find_task
from sally_anne.harness.protocols import PROTOCOLS, THOUGHTS, Protocol

if TYPE_CHECKING:
    from sally_anne.harness.config import EvalConfig

# Tasks that make their own questions, by name; the other names are of benchmarks' records.
_MADE = {"gridtom": "sally_anne.harness.gridtom:GridToM"}
TASKS = (*_MADE, *BENCHMARKS)
# An item's group (story, film, episode) and its tags, by kind.
Row = tuple[str, Mapping[str, Sequence[str]]]


@dataclass(frozen=True)
class LeftOut:
    """How many of the test stories were left out, as a vector was fitted on them."""

    left_out: int
    of: int
    known: bool = True  # whether the vector says what it was fitted on

    def __bool__(self) -> bool:
        return self.left_out > 0 or not self.known

    def __str__(self) -> str:
        if not self.known:
            return "warning: the vector does not say on which stories, maybe these, it was fitted"
        return f"{self.left_out} of {self.of} test stories left out: seen in fitting the vector"


@dataclass(frozen=True)
class TaskItems:
    """What a run asks, and what is reported of it.

    Attributes:
        about: what answers depend on, model and vector aside.
        breakdowns: kinds of tags by which accuracy is reported.
        cells: those whose combinations have a TB, FB and both of their own.
        beliefs: whether TB, FB and Both are the figures, rather than accuracy.
        missing: ids of items whose films or words are not here.
        notes: lines for the user.
        departs: what of the authors' protocol is not known, or not as theirs.
    """

    items: list[Question]
    about: dict[str, Any]
    title: str
    breakdowns: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    beliefs: bool = False
    missing: tuple[str, ...] = ()
    left_out: LeftOut | None = None
    notes: tuple[str, ...] = ()
    departs: str = ""

    def lines(self) -> list[str]:
        """What is to be known before they are asked."""
        said = [str(one) for one in (self.left_out, *self.notes) if one]
        if self.missing:
            why = f"their films or words are not here: {', '.join(self.missing[:3])}"
            said.append(f"{many(len(self.missing), 'items')} not asked, {why}")
        return said


class Task(ABC):
    """Something that ``--task`` names, and the options of TASK_OPTIONS that it takes.

    With ``submission`` answers are also written in the form that the authors collect.
    """

    options: tuple[str, ...]
    submission = False

    @abstractmethod
    def load(self, config: EvalConfig, fitted: Mapping[str, Any] | None = None) -> TaskItems:
        """The questions, without test stories that a vector of these facts was fitted on."""

    def protocol(self, config: EvalConfig, name: str = "") -> Protocol | None:
        """The authors' own way to ask, if the run has that; HarnessError if there is none."""
        if config.protocol != "official":
            return None
        if (known := PROTOCOLS.get(name or config.task)) is None:
            raise HarnessError(
                f"--protocol official is not known of {config.task}, but of {', '.join(PROTOCOLS)}"
            )
        return known

    def folder_words(self, config: EvalConfig) -> list[str]:
        return []

    def reply_tokens(self, config: EvalConfig) -> int:
        if known := self.protocol(config):
            return known.reply_tokens
        return THOUGHTS if config.prompting == "cot" else self.answer_tokens(config)

    @abstractmethod
    def answer_tokens(self, config: EvalConfig) -> int:
        """Of answers in our own words."""


def open_task(task: str) -> Task:
    """What ``--task`` names, or a HarnessError."""
    if task in _MADE:
        return cast(Task, pkgutil.resolve_name(_MADE[task])())
    kind = pkgutil.resolve_name("sally_anne.harness.questions:BenchmarkTask")
    return cast(Task, kind(find_task(task)))


def load_items(config: EvalConfig, fitted: Mapping[str, Any] | None = None) -> TaskItems:
    return open_task(config.task).load(config, fitted)


def sample_groups(
    rows: Iterable[Row], kinds: Sequence[str], limit: int | None, seed: int
) -> set[str]:
    """So many groups, or all; of each kind of tag as many items with one value as with another.

    Always that group is next which leaves the counts of values most even (by their variance), and
    of equal ones that whose name has the lowest hash: a smaller limit takes a part of a larger one.
    """
    counts: dict[str, Counter[tuple[str, str]]] = {}
    for group, tags in rows:
        tagged = ((kind, value) for kind in kinds for value in tags.get(kind, ()))
        counts.setdefault(group, Counter()).update(tagged)
    if limit is None or limit >= len(counts):
        return set(counts)
    names = sorted(counts, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())
    seen = list(dict.fromkeys(tag for tagged in counts.values() for tag in tagged))
    import pandas as pd  # the help of commands loads without it

    table = pd.DataFrame([counts[name] for name in names], columns=seen).fillna(0).to_numpy(int)
    of = np.zeros((len(seen), len(kinds)), int)
    for place, (kind, _) in enumerate(seen):
        of[place, kinds.index(kind)] = 1
    left, total = np.ones(len(names), bool), np.zeros(len(seen), int)
    for _ in range(limit):
        after = table + total
        uneven = after**2 @ of @ of.sum(0) - ((after @ of) ** 2).sum(1)
        best = np.flatnonzero(left)[uneven[left].argmin()]
        left[best] = False
        total += table[best]
    return {name for name, waits in zip(names, left, strict=True) if not waits}


def sample_items(items: Sequence[Question], kinds: Sequence[str], config: Any) -> list[Question]:
    rows = ((item.group, item.tags) for item in items)
    groups = sample_groups(rows, kinds, config.limit, config.limit_seed)
    return [item for item in items if item.group in groups]


def subset_note(items: Sequence[Question], kinds: Sequence[str], config: Any) -> str:
    if config.limit is None:
        return ""
    evenly = f", evenly over {', '.join(kinds)}" if kinds else ""
    counts = many(len({item.group for item in items}), "groups"), many(len(items), "items")
    return f"drawn by --limit{evenly} (seed {config.limit_seed}): {', '.join(counts)}"
