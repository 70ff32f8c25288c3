"""Pairs: two inputs that differ in one thing, and the words between which they decide."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from sally_anne.data.samples import Sample, Split, fingerprint, paired

# What a model that judges statements says of them at once.
VERDICT = ("right", "wrong")
T = TypeVar("T")


@dataclass(frozen=True)
class ContrastPair:
    """Two inputs of one group and split, with what each decides for; intervals draw clusters."""

    samples: tuple[Sample, Sample]
    answers: tuple[str, str]
    cluster: str

    @property
    def name(self) -> str:
        return " | ".join(sample.item_id for sample in self.samples)

    @property
    def fingerprint(self) -> str:
        asked = f"{self.name} {fingerprint(self.samples)} {self.answers}"
        return hashlib.sha256(asked.encode()).hexdigest()

    @property
    def split(self) -> Split | None:
        return self.samples[0].split


@dataclass(frozen=True)
class PairSet:
    """Pairs of one kind.

    Attributes:
        reply: whether the answer is asked for in a turn of its own; else it follows the text.
        asks: what the pairs decide, in words.
        conditions: what the first and what the second sample of each pair is, as TB and FB; empty
            where it means nothing which is first.
    """

    kind: str
    pairs: list[ContrastPair]
    reply: bool
    asks: str
    place: str = "the last prompt token"
    clusters: str = "groups"
    conditions: tuple[str, str] = ("", "")

    @property
    def fingerprint(self) -> str:
        every = "".join(f"{pair.fingerprint} {pair.split} {pair.cluster}\n" for pair in self.pairs)
        return hashlib.sha256(every.encode()).hexdigest()

    def choose(self, split: Split, most: int) -> list[ContrastPair]:
        """At most so many of a split, from all clusters in turn; always the same."""
        found = [pair for pair in self.pairs if pair.split == split]
        return in_turn(found, lambda t: t.cluster, lambda t: t.name)[:most]


def in_turn(things: Iterable[T], cluster: Callable[[T], str], name: Callable[[T], str]) -> list[T]:
    """All of them, one of each cluster after the other, ordered by hashes of their names."""
    found = sorted(things, key=lambda t: (cluster(t), hashlib.sha256(name(t).encode()).digest()))
    turns = [list(enumerate(group)) for _, group in groupby(found, cluster)]
    return [thing for _, thing in sorted(sum(turns, []), key=lambda turn: turn[0])]


def statement_pairs(
    samples: Iterable[Sample], label: str, clusters: Mapping[str, str], reply: bool = False
) -> PairSet:
    """Two statements of a group and context of which a true-or-false label holds for one alone."""
    by_context: dict[tuple[str, str], dict[object, Sample]] = {}
    for sample in samples:
        if sample.context and isinstance(sample.labels[label], bool):
            by_context.setdefault((sample.group, sample.context), {})[sample.labels[label]] = sample
    pairs = [
        ContrastPair((sides[True], sides[False]), VERDICT, clusters.get(group, group))
        for (group, _), sides in by_context.items()
        if len(sides) == 2
    ]
    noun, asks = "maps" if clusters else "groups", "truth of the statement"
    place = PairSet.place if reply else "the statement's end"
    return PairSet("statement", pairs, reply, asks, place, noun, VERDICT)


def own_pairs(samples: Sequence[Sample]) -> PairSet:
    """Samples of your own that share a ``pair``, each with its ``answer``; RecordError if not."""
    pairs = [ContrastPair((a, b), (a.answer, b.answer), a.group) for a, b in paired(samples)]
    return PairSet("question", pairs, True, "answer")
