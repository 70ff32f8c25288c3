"""Activations in memory, with what is known of their samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from sally_anne.core.errors import ProbingError
from sally_anne.data.samples import Sample
from sally_anne.hooks.geometry import HEAD_OUT


@dataclass(frozen=True, eq=False)
class Activations:
    """Activations of N samples at every head.

    Attributes:
        x: ``[N, L, H, D]``.
        items: a row a sample: ``item_id``, ``group``, ``split``, tags and labels.
        labels: which columns of ``items`` are labels.
        site: where they were read, see :mod:`hooks.geometry`.
        model: which model, as vectors keep it.
    """

    x: np.ndarray = field(repr=False)
    items: pd.DataFrame = field(repr=False)
    labels: tuple[str, ...]
    site: str = HEAD_OUT
    model: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check that rows and columns belong together; a ProbingError says what does not."""
        if self.x.ndim != 4 or len(self.x) != len(self.items):
            raise ProbingError(
                f"need x [N, L, H, D] and N items, got {self.x.shape} and {len(self.items)}"
            )
        if missing := [name for name in self.labels if name not in self.items]:
            raise ProbingError(f"the items have no column {missing[0]!r}")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def train(self) -> Activations:
        """Of the training samples."""
        return self.part("train")

    @property
    def validation(self) -> Activations:
        """Of the validation samples."""
        return self.part("validation")

    @property
    def test(self) -> Activations:
        """Of the test samples."""
        return self.part("test")

    def part(self, split: str) -> Activations:
        """Of the samples of one split, perhaps none."""
        rows = (self.items["split"] == split).to_numpy()
        return replace(self, x=self.x[rows], items=self.items[rows].reset_index(drop=True))

    def values(self, label: str) -> np.ndarray:
        """A label of every sample ``[N]``; a ProbingError names those that there are."""
        if label not in self.labels:
            known = ", ".join(self.labels) or "none"
            raise ProbingError(f"the samples have no label {label!r}; theirs are {known}")
        return np.array(self.items[label].tolist())


def items_table(samples: Sequence[Sample]) -> pd.DataFrame:
    """Names, groups, splits, tags and labels of the samples, one row each."""
    table: dict[str, list[Any]] = {
        name: [getattr(sample, name) for sample in samples]
        for name in ("item_id", "group", "split")
    }
    for part in ("tags", "labels"):
        names = dict.fromkeys(name for sample in samples for name in getattr(sample, part))
        table |= {name: [getattr(s, part).get(name) for s in samples] for name in names}
    return pd.DataFrame(table)
