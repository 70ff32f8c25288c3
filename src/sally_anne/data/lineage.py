"""What was seen in fitting: the stories, by content, that chose directions, heads, K or alpha.

Kept with every run and vector, so that test stories that it has seen can be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sally_anne.core.errors import BenchmarkError
from sally_anne.hooks.identity import SEEN


@dataclass(frozen=True)
class Lineage:
    """Hashes of what the stories say.

    Attributes:
        train: gave probes, directions and sigma.
        validation: chose heads, and in a sweep K and alpha.
    """

    train: frozenset[str] = frozenset()
    validation: frozenset[str] = frozenset()

    @classmethod
    def read(cls, facts: Mapping[str, Any] | None, where: str) -> Lineage | None:
        """From a run's config or a vector's facts; ``where`` names them in errors.

        None where nothing was kept: made by hand, or by an earlier version.
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
