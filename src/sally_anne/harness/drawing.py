"""What ``--limit`` draws: whole groups, evenly over a task's breakdowns, the same in every run."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sally_anne.data.items import BenchmarkItem

# An item's group (story, film, episode) and its tags, by kind.
Row = tuple[str, Mapping[str, Sequence[str]]]


@dataclass(frozen=True)
class Drawn:
    """What was drawn: ``by`` counts items by kind and value of their tags."""

    seed: int
    groups: tuple[str, ...]
    items: int
    by: dict[str, dict[str, int]]

    @classmethod
    def of(cls, rows: Sequence[Row], kinds: Sequence[str], seed: int) -> Drawn:
        """Of the rows that are left after :func:`sample_groups`."""
        by: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
        for _, tags in rows:
            for kind, counter in by.items():
                counter.update(tags.get(kind, ()))
        groups = tuple(dict.fromkeys(group for group, _ in rows))
        counts = {kind: dict(sorted(counter.items())) for kind, counter in by.items()}
        return cls(seed, groups, len(rows), counts)

    def __str__(self) -> str:
        evenly = f", evenly over {', '.join(self.by)}" if self.by else ""
        many = f"{len(self.groups)} groups, {self.items} items"
        return f"drawn by --limit{evenly} (seed {self.seed}): {many}"


def sample_groups(
    rows: Iterable[Row], kinds: Sequence[str], limit: int | None, seed: int
) -> set[str]:
    """So many groups, or all; of each kind of tag as many items with one value as with another.

    Always that group is next which leaves the counts of values most even (by their variance, over
    all kinds), and of equal ones that whose name has the lowest hash. So neither the order of the
    items nor the model matters, and a smaller limit draws a part of what a larger one does.
    """
    counts: dict[str, Counter[tuple[str, str]]] = {}
    for group, tags in rows:
        tagged = ((kind, value) for kind in kinds for value in tags.get(kind, ()))
        counts.setdefault(group, Counter()).update(tagged)
    if limit is None or limit >= len(counts):
        return set(counts)
    names = sorted(counts, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())
    parts = []
    for kind in kinds:
        values = sorted({value for found in counts.values() for k, value in found if k == kind})
        parts.append(np.array([[counts[n][kind, v] for v in values] for n in names], np.int64))
    left = np.ones(len(names), bool)
    sums = [np.zeros(part.shape[1], np.int64) for part in parts]
    for _ in range(limit):
        uneven = np.zeros(len(names), np.int64)
        for part, total in zip(parts, sums, strict=True):
            after = part + total
            uneven += part.shape[1] * (after**2).sum(1) - after.sum(1) ** 2
        best = np.flatnonzero(left)[uneven[left].argmin()]
        left[best] = False
        sums = [total + part[best] for part, total in zip(parts, sums, strict=True)]
    return {name for name, waits in zip(names, left, strict=True) if not waits}


def draw_items(
    items: Sequence[BenchmarkItem], kinds: Sequence[str], limit: int | None, seed: int
) -> tuple[list[BenchmarkItem], Drawn | None]:
    """The items of the drawn groups, and what was drawn; all and None without a limit."""
    if limit is None:
        return list(items), None
    groups = sample_groups(((item.group, item.tags) for item in items), kinds, limit, seed)
    kept = [item for item in items if item.group in groups]
    return kept, Drawn.of([(item.group, item.tags) for item in kept], kinds, seed)
