"""A finished run once more, with the samples that it read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sally_anne.core.errors import ProbingError, SallyAnneError
from sally_anne.core.options import read_options
from sally_anne.core.run import Run
from sally_anne.data.pairs import PairSet
from sally_anne.data.samples import Sample, SampleSet
from sally_anne.data.tasks import open_pairs, open_task
from sally_anne.hooks.identity import ModelIdentity, require_same
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.probing.config import ProbeConfig


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

    @cached_property
    def pair_sets(self) -> dict[str, PairSet]:
        """As of :func:`sally_anne.data.tasks.open_pairs`."""
        return open_pairs(self.probing, self.data)

    def model(self) -> LoadedModel:
        """The model that was probed; a ModelError if its name means another one now."""
        shows = any(sample.shows for sample in self.data.samples)
        loaded = load_model(**self.probing.opening(), videos=shows)
        made_with = ModelIdentity.of_run(self.run.saved["model"])
        remedy = "give the model that was probed"
        require_same(str(self.run.folder), made_with, loaded.identity, remedy)
        return loaded


def reopen(folder: Path, device: str | None = None, device_map: str | None = None) -> Reopened:
    """A finished run and its samples, to measure more of it.

    Its model is put on ``device`` or ``device_map``; where the run had it by default.

    Raises:
        RunFolderError: the folder is not that of a finished run.
        ProbingError: the samples are not those that it read.
    """
    saved = Run.open(folder)
    words = ["--config", str(folder)]
    for option, value in (("--device", device), ("--device-map", device_map)):
        words += [option, value] if value is not None else []
    probing = replace(read_options(ProbeConfig, "sally-anne probe", words), out=folder)
    data = open_task(probing)
    names = [sample.item_id for sample in data.samples]
    fingerprint = saved.saved.get("data", {}).get("fingerprint")
    if names != saved.samples["item_id"].tolist() or fingerprint not in (None, data.fingerprint):
        raise ProbingError(
            f"{folder}: its samples ({data.source}) are not those that it read; probe them again "
            "into another folder"
        )
    return Reopened(saved, probing, data)


def samples_of(run: Run) -> Sequence[Sample] | None:
    """What a run read, in its order; None of text, or if it cannot be read or made again."""
    try:
        return None if run.config.get("setting") == "text" else reopen(run.folder).data.samples
    except SallyAnneError:
        return None
