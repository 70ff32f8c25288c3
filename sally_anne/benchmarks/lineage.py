"""What was seen in fitting: the stories, by content, that chose directions, heads, K or alpha.

Kept with every run and vector, so that whoever reports on test stories with it can leave out those
that it has seen, whatever split seed, part of the data or numbering they came by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hooks.identity import SEEN
from sally_anne.core.errors import BenchmarkError


@dataclass(frozen=True)
class Lineage:
    """Hashes of what the stories say, as `benchmarks.gridtom.records.Identity` has them.

    Attributes:
        train: gave probes, directions and sigma.
        validation: chose heads, and in a sweep K and alpha.
    """

    train: frozenset[str] = frozenset()
    validation: frozenset[str] = frozenset()

    @classmethod
    def of_splits(cls, splits: Mapping[int, str], content: Callable[[int], str]) -> Lineage:
        """From the split of each story that a run used, and what each of them says."""
        train, validation = (
            frozenset(content(index) for index, split in splits.items() if split == name)
            for name in ("train", "validation")
        )
        return cls(train, validation)

    @classmethod
    def read(cls, facts: Mapping[str, Any] | None, where: str) -> Lineage | None:
        """From a run's config or a vector's facts; ``where`` names them in errors.

        Returns:
            None where nothing was kept: made by hand, or by an earlier version.

        Raises:
            BenchmarkError: the entry is not as it was written.
        """
        kept = (facts or {}).get(SEEN)
        if kept is None:
            return None
        try:
            parts = [kept[name] for name in ("train", "validation")]
            if not all(isinstance(h, str) for part in parts for h in part):
                raise TypeError("hashes must be text")
        except (KeyError, TypeError) as error:
            raise BenchmarkError(f"{where}: its entry {SEEN!r} cannot be read ({error})") from error
        return cls(*map(frozenset, parts))

    @property
    def seen(self) -> frozenset[str]:
        """All of them."""
        return self.train | self.validation

    def chosen_on(self, content: Iterable[str]) -> Lineage:
        """The same after a choice on further stories."""
        return replace(self, validation=self.validation | frozenset(content))

    def facts(self) -> dict[str, list[str]]:
        """As it is kept."""
        return {"train": sorted(self.train), "validation": sorted(self.validation)}
