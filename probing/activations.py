"""Activations of all heads, with what is known of their samples: cut, saved and read again."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch

from sally_anne.core.console import Shown, tally
from sally_anne.core.errors import ProbingError
from sally_anne.core.hub import card
from sally_anne.data.samples import SPLITS, Sample
from sally_anne.hooks.geometry import HEAD_OUT
from sally_anne.hooks.vector import TensorFile

_FORMAT = "activations.safetensors", "sally-anne activations in memory 1", "about"
_FILE = TensorFile("set of activations", *_FORMAT, "Activations.save", ProbingError)
_CARD = "# Activations\n\nTo be read by `sally_anne.Activations.load(folder)`: {}\n"


@dataclass(frozen=True, eq=False, repr=False)
class Activations(Shown):
    """Activations ``x [N, L, H, D]`` of N samples at every head.

    ``items`` has a row a sample: ``item_id``, ``group``, ``split``, tags and ``labels``; ``site``
    and ``model`` say where they were read, as vectors keep it.

        x.train, x[:10], x[x.values("y_p")], x[[3, 1]]  # parts of the samples
        x.save(folder)  # Activations.load(folder)
    """

    x: np.ndarray
    items: pd.DataFrame
    labels: tuple[str, ...]
    site: str = HEAD_OUT
    model: Mapping[str, Any] = field(default_factory=dict)

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
    def shape(self) -> tuple[int, ...]:
        """``(N, L, H, D)``."""
        return self.x.shape

    def _shown(self) -> dict[str, object]:
        n, layers, heads, width = self.shape
        size = f"{n} x {layers} layers x {heads} heads x {width}, {self.x.dtype}"
        facts = {"samples": size, "splits": tally(self.items.get("split", ()), SPLITS)}
        facts |= {name: tally(self.items[name]) for name in self.labels}
        return facts | {"site": self.site, "model": self.model.get("model", "unknown")}

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
        return self[self.items["split"] == split]

    def __getitem__(self, rows: Any) -> Activations:
        """Of some samples: by their places, one or several, by a slice or by a mask ``[N]``."""
        if not isinstance(rows, slice):
            rows = np.atleast_1d(np.arange(len(self))[rows])
        return replace(self, x=self.x[rows], items=self.items.iloc[rows].reset_index(drop=True))

    def values(self, label: str) -> np.ndarray:
        """A label of every sample ``[N]``; a ProbingError names those that there are."""
        if label not in self.labels:
            known = ", ".join(self.labels) or "none"
            raise ProbingError(f"the samples have no label {label!r}; theirs are {known}")
        return np.array(self.items[label].tolist())

    def save(self, folder: Path | str) -> Path:
        """Write ``activations.safetensors`` and a card; gives the folder.

        The file holds ``x [N, L, H, D]`` as it is, and ``items``, the bytes of a Parquet table. A
        StoreError or FolderError if it cannot be written there.
        """
        table = np.frombuffer(self.items.to_parquet(None, index=False), np.uint8).copy()
        tensors = {"x": torch.tensor(self.x), "items": torch.from_numpy(table)}
        about = {"labels": self.labels, "site": self.site, "model": dict(self.model)}
        body = _CARD.format(self)
        return _FILE.write(folder, about, tensors, card(body, self.model, "activations"))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read them from a folder, or from a hub's repository ``user/name[@revision]``.

        A HubError or ProbingError says what is not there, cut short, or of another kind.
        """
        with _FILE.reading(path) as (about, tensors):
            items = pd.read_parquet(io.BytesIO(tensors["items"].numpy().tobytes()))
            about["labels"] = tuple(about["labels"])
            return cls(tensors["x"].numpy(), items, **about)


def items_table(samples: Sequence[Sample]) -> pd.DataFrame:
    """Names, groups, splits, tags and labels of the samples, one row each."""
    table: dict[str, list[Any]] = {
        name: [getattr(s, name) for s in samples] for name in ("item_id", "group", "split")
    }
    for part in ("tags", "labels"):
        names = dict.fromkeys(name for sample in samples for name in getattr(sample, part))
        table |= {name: [getattr(s, part).get(name) for s in samples] for name in names}
    return pd.DataFrame(table)
