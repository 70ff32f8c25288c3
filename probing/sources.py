"""What a run's samples are: a task's, made of its data, or those of a file; and a run once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sally_anne.core.errors import ProbingError, SallyAnneError
from sally_anne.core.options import flag_name, read_options
from sally_anne.core.run import Run
from sally_anne.data import samples as own
from sally_anne.data.gridtom import samples as gridtom
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.samples import question_pairs
from sally_anne.data.mmtom_qa import contrasts as mmtom_qa
from sally_anne.data.mmtom_qa import load as load_mmtom_qa
from sally_anne.data.pairs import PairSet, own_pairs, statement_pairs
from sally_anne.data.samples import Sample, SampleSet
from sally_anne.hooks.identity import ModelIdentity, require_same
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.probing.config import ProbeConfig

GRIDTOM_ALONE = ("order", "contrast", "stories", "data_seed")


def open_samples(config: ProbeConfig) -> SampleSet:
    """The samples that a run asks for, each in a split.

    Raises:
        ProbingError: options that do not go together.
    """
    if config.samples is None and config.task == "gridtom":
        stories = open_stories(config.data, config.data_seed, gridtom.plots_of(config.contrast))
        return gridtom.sample_set(
            stories,
            config.order,
            config.contrast,
            config.setting,
            config.stories,
            config.split_seed,
        )
    of = "--samples" if config.samples is not None else f"--task {config.task}"
    if alone := [n for n in GRIDTOM_ALONE if getattr(config, n) != getattr(ProbeConfig, n)]:
        raise ProbingError(f"{flag_name(alone[0])} is for GridToM's stories, not for {of}")
    if config.setting == "video":
        raise ProbingError(f"--setting video is for GridToM's stories; {of} takes text")
    if config.samples is None:
        if config.data is None:
            raise ProbingError(f"{of} needs the benchmark's own files: --data FOLDER")
        items = load_mmtom_qa(config.data)
        return mmtom_qa.sample_set(items, config.setting, config.split_seed)
    if config.data is not None or config.task != ProbeConfig.task:
        raise ProbingError("--samples is in place of --task and --data: leave these out")
    samples = own.read_samples(config.samples)
    if config.setting == "text":
        samples = [replace(sample, images=(), video=None) for sample in samples]
    facts = {"setting": config.setting}
    return own.sample_set(samples, config.samples.name, config.split_seed, facts)


def open_pairs(config: ProbeConfig, data: SampleSet) -> dict[str, PairSet]:
    """The pairs that a run's samples have, by kind; none where nothing says which are pairs.

    Raises:
        RecordError: a pair of the user's own is none.
        BenchmarkError: the stories cannot be read.
    """
    found = {}
    if config.samples is None and config.task == "gridtom":
        plots = gridtom.plots_of(config.contrast)
        stories = open_stories(config.data, config.data_seed, plots)
        found["question"] = question_pairs(
            stories, config.order, config.setting, config.stories, config.split_seed
        )
    elif config.samples is not None:
        found["question"] = own_pairs(data.samples)
    label = next(iter(data.samples[0].labels))
    found["statement"] = statement_pairs(data.samples, label, data.clusters)
    return {kind: pairs for kind, pairs in found.items() if pairs.pairs}


@dataclass(frozen=True)
class Reopened:
    """A finished run with the samples that it read.

    Attributes:
        run: its folder.
        probing: its options.
        data: its samples, made or read anew.
    """

    run: Run
    probing: ProbeConfig
    data: SampleSet

    @property
    def clusters(self) -> dict[str, str]:
        """What each group is drawn with for intervals."""
        groups = (sample.group for sample in self.data.samples)
        return {group: self.data.clusters.get(group, group) for group in groups}

    @cached_property
    def pair_sets(self) -> dict[str, PairSet]:
        """As of :func:`open_pairs`."""
        return open_pairs(self.probing, self.data)

    def model(self) -> LoadedModel:
        """The model that was probed.

        Raises:
            OtherModelError: its name means another one now.
            ModelError: it cannot be loaded.
        """
        shows = any(sample.shows for sample in self.data.samples)
        loaded = load_model(**self.probing.opening(), videos=shows)
        made_with = ModelIdentity.of_run(self.run.saved["model"])
        remedy = "give the model that was probed"
        require_same(str(self.run.folder), made_with, loaded.identity, remedy)
        return loaded


def reopen(folder: Path, device: str | None = None, device_map: str | None = None) -> Reopened:
    """A finished run and its samples, to ask more of it.

    Args:
        folder: of the run.
        device, device_map: where its model is put; as in the run by default.

    Raises:
        RunFolderError: the folder is not that of a finished run.
        ProbingError: the samples are not those that it read.
    """
    saved = Run.open(folder)
    words: Sequence[str] = ["--config", str(folder)]
    for option, value in (("--device", device), ("--device-map", device_map)):
        words = [*words, option, value] if value is not None else words
    probing = replace(read_options(ProbeConfig, "sally-anne probe", words), out=folder)
    data = open_samples(probing)
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
