"""Activations of all heads with their samples: in memory, in a file, or of a finished run."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch

from sally_anne.core.console import Shown, tally
from sally_anne.core.errors import ProbingError, SallyAnneError
from sally_anne.core.hub import card
from sally_anne.core.options import read_options
from sally_anne.core.run import Run
from sally_anne.data.pairs import PairSet
from sally_anne.data.samples import Sample, SampleSet
from sally_anne.data.tasks import open_pairs, open_task
from sally_anne.hooks.geometry import HEAD_OUT
from sally_anne.hooks.identity import ModelIdentity, require_same
from sally_anne.hooks.vector import TensorFile
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.probing.config import ProbeConfig

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
        if self.x.ndim != 4 or len(self.x) != len(self.items):
            words = f"{self.x.shape} and {len(self.items)}"
            raise ProbingError(f"need x [N, L, H, D] and N items, got {words}")
        if missing := [name for name in self.labels if name not in self.items]:
            raise ProbingError(f"the items have no column {missing[0]!r}")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x.shape

    def _shown(self) -> dict[str, object]:
        n, layers, heads, width = self.shape
        size = f"{n} x {layers} layers x {heads} heads x {width}, {self.x.dtype}"
        facts = {"samples": size, "splits": tally(self.items.get("split", ()))}
        facts |= {name: tally(self.items[name]) for name in self.labels}
        return facts | {"site": self.site, "model": self.model.get("model", "unknown")}

    @property
    def train(self) -> Activations:
        return self.part("train")

    @property
    def validation(self) -> Activations:
        return self.part("validation")

    @property
    def test(self) -> Activations:
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
        """Write ``activations.safetensors`` and a card; gives the folder."""
        table = np.frombuffer(self.items.to_parquet(None, index=False), np.uint8).copy()
        tensors = {"x": torch.tensor(self.x), "items": torch.from_numpy(table)}
        about = {"labels": self.labels, "site": self.site, "model": dict(self.model)}
        body = _CARD.format(self)
        return _FILE.write(folder, about, tensors, card(body, self.model, "activations"))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read them from a folder, or from a hub's repository ``user/name[@revision]``."""
        with _FILE.reading(path) as (about, tensors):
            items = pd.read_parquet(io.BytesIO(tensors["items"].numpy().tobytes()))
            about["labels"] = tuple(about["labels"])
            return cls(tensors["x"].numpy(), items, **about)


def items_table(samples: Sequence[Sample]) -> pd.DataFrame:
    """Names, groups, splits, tags and labels of the samples, one row each."""
    parts = ("item_id", "group", "split")
    table: dict[str, list[Any]] = {n: [getattr(s, n) for s in samples] for n in parts}
    for part in ("tags", "labels"):
        names = dict.fromkeys(name for sample in samples for name in getattr(sample, part))
        table |= {name: [getattr(s, part).get(name) for s in samples] for name in names}
    return pd.DataFrame(table)


@dataclass(frozen=True)
class Reopened:
    """A finished run, its options, and the samples that it read, made or read anew."""

    run: Run
    probing: ProbeConfig
    data: SampleSet

    @property
    def clusters(self) -> dict[str, str]:
        """What each group is resampled with for intervals."""
        groups = (sample.group for sample in self.data.samples)
        return {group: self.data.clusters.get(group, group) for group in groups}

    @property
    def x(self) -> Activations:
        run = self.run
        return Activations(run.activations(), run.samples, run.labels, self.probing.site)

    @cached_property
    def pair_sets(self) -> dict[str, PairSet]:
        return open_pairs(self.probing, self.data)

    def model(self) -> LoadedModel:
        """The model that was probed; a ModelError if its name means another one now."""
        loaded = load_model(**self.probing.opening(), **self.data.senses)
        names = str(self.run.folder), ModelIdentity.of_run(self.run.saved["model"])
        require_same(*names, loaded.identity, "give the model that was probed")
        return loaded


def reopen(folder: Path, device: str | None = None, device_map: str | None = None) -> Reopened:
    """A finished run and its samples; a ProbingError if these are not those that it read."""
    saved = Run.open(folder)
    words = ["--config", str(folder)]
    for option, value in (("--device", device), ("--device-map", device_map)):
        words += [option, value] if value is not None else []
    probing = replace(read_options(ProbeConfig, "sally-anne probe", words), out=folder)
    data = open_task(probing)
    names = [sample.item_id for sample in data.samples]
    fingerprint = saved.saved.get("data", {}).get("fingerprint")
    if names != saved.samples["item_id"].tolist() or fingerprint not in (None, data.fingerprint):
        why = "are not those that it read; probe them again into another folder"
        raise ProbingError(f"{folder}: its samples ({data.source}) {why}")
    return Reopened(saved, probing, data)


def samples_of(run: Run) -> Sequence[Sample] | None:
    """What a run read, in its order; None of text, or if it cannot be read or made again."""
    try:
        return None if run.config.get("setting") == "text" else reopen(run.folder).data.samples
    except SallyAnneError:
        return None
