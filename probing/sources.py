"""What a run's samples are: a task's, made of its data, or those of a file."""

from __future__ import annotations

from dataclasses import replace

from probing.config import ProbeConfig
from sally_anne.benchmarks import samples as own
from sally_anne.benchmarks.gridtom import contrasts as gridtom
from sally_anne.benchmarks.gridtom.stories import open_stories
from sally_anne.benchmarks.mmtom_qa import contrasts as mmtom_qa
from sally_anne.benchmarks.mmtom_qa import load as load_mmtom_qa
from sally_anne.benchmarks.samples import SampleSet
from sally_anne.core.errors import ProbingError
from sally_anne.core.options import spelled

GRIDTOM_ALONE = ("order", "contrast", "stories", "data_seed")


def open_samples(config: ProbeConfig) -> SampleSet:
    """The samples that a run asks for, each in a split.

    Raises:
        ProbingError: options that do not go together.
    """
    if config.samples is None and config.task == "gridtom":
        stories = open_stories(config.data, config.data_seed)
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
        raise ProbingError(f"{spelled(alone[0])} is for GridToM's stories, not for {of}")
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
