"""Pairs: two inputs that differ in one thing, and the words between which they decide.

What a head carries is asked by exchanging its output between the two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from sally_anne.core.errors import RecordError
from sally_anne.data.samples import Sample, Split, fingerprint

# What a model that judges statements says of them at once.
VERDICT = ("right", "wrong")
T = TypeVar("T")


@dataclass(frozen=True)
class ContrastPair:
    """A pair.

    Attributes:
        samples: the two inputs, of one group and split.
        answers: what the first decides for, and what the second.
        cluster: what is drawn anew for intervals, as a map.
    """

    samples: tuple[Sample, Sample]
    answers: tuple[str, str]
    cluster: str

    @property
    def name(self) -> str:
        """Of both samples."""
        return " | ".join(sample.item_id for sample in self.samples)

    @property
    def fingerprint(self) -> str:
        """Hash of what is asked and shown, and of the answers."""
        asked = f"{self.name} {fingerprint(self.samples)} {self.answers}"
        return hashlib.sha256(asked.encode()).hexdigest()

    @property
    def split(self) -> Split | None:
        """Where they are used."""
        return self.samples[0].split


@dataclass(frozen=True)
class PairSet:
    """Pairs of one kind.

    Attributes:
        kind: ``question`` or ``verdict``.
        pairs: all of them.
        reply: whether the answer is asked for in a turn of its own; else it follows the text.
        place: where heads are exchanged, in words.
        clusters: what clusters are.
        conditions: what the first and what the second sample of each pair is, as TB and FB; empty
            where it means nothing which is first.
    """

    kind: str
    pairs: list[ContrastPair]
    reply: bool
    place: str
    clusters: str = "groups"
    conditions: tuple[str, str] = ("", "")

    @property
    def fingerprint(self) -> str:
        """Hash of all pairs."""
        every = "".join(f"{pair.fingerprint} {pair.split} {pair.cluster}\n" for pair in self.pairs)
        return hashlib.sha256(every.encode()).hexdigest()

    def choose(self, split: Split, most: int) -> list[ContrastPair]:
        """At most so many of a split, from all clusters in turn; always the same."""
        found = [pairs for pairs in self.pairs if pairs.split == split]
        return in_turn(found, lambda t: t.cluster, lambda t: t.name)[:most]


def in_turn(things: Iterable[T], cluster: Callable[[T], str], name: Callable[[T], str]) -> list[T]:
    """All of them, one of each cluster after the other, ordered by hashes of their names."""
    found = sorted(things, key=lambda t: (cluster(t), hashlib.sha256(name(t).encode()).digest()))
    turns = [list(enumerate(group)) for _, group in groupby(found, cluster)]
    return [thing for _, thing in sorted(sum(turns, []), key=lambda turn: turn[0])]


def statement_pairs(samples: Iterable[Sample], label: str, clusters: Mapping[str, str]) -> PairSet:
    """Two statements on one context of which a true-or-false label holds for one alone.

    Args:
        samples: those of one group and context are compared; those without a context are left out.
        label: its name.
        clusters: cluster, as a map, of each group; where there are none, it is its own.
    """
    by_context: dict[tuple[str, str], dict[object, Sample]] = {}
    for sample in samples:
        if sample.context and isinstance(sample.labels[label], bool):
            by_context.setdefault((sample.group, sample.context), {})[sample.labels[label]] = sample
    pairs = [
        ContrastPair((sides[True], sides[False]), VERDICT, clusters.get(group, group))
        for (group, _), sides in by_context.items()
        if len(sides) == 2
    ]
    noun = "maps" if clusters else "groups"
    return PairSet("statement", pairs, False, "the statement's end", noun)


def own_pairs(samples: Sequence[Sample]) -> PairSet:
    """Samples of your own that share a ``pair``, each with its ``answer``.

    Raises:
        RecordError: a key is that of one sample or of more than two, or of two groups or splits, or
            a sample has no answer or that of its counterpart; names the key.
    """
    sides: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.pair:
            sides.setdefault(sample.pair, []).append(sample)
    for key, pair in sides.items():
        if len(pair) != 2:
            raise RecordError(f"pair {key!r} is named by {len(pair)} samples, and must be by two")
        if pair[0].group != pair[1].group or pair[0].split != pair[1].split:
            raise RecordError(f"the samples of pair {key!r} must be of one group and split")
        if not all(s.answer for s in pair) or pair[0].answer == pair[1].answer:
            raise RecordError(
                f"the samples of pair {key!r} need an answer each, and not the same: the word that "
                "the model should say"
            )
    pairs = [ContrastPair((a, b), (a.answer, b.answer), a.group) for a, b in sides.values()]
    return PairSet("question", pairs, True, "the last prompt token")
