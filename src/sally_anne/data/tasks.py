"""Where the samples of a probing run come from: a row a source, all opened in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sally_anne.core.errors import OptionError
from sally_anne.core.options import flag_name
from sally_anne.data import datasets, mmtom_qa
from sally_anne.data.gridtom import samples as gridtom
from sally_anne.data.gridtom.release import StorySet, open_stories
from sally_anne.data.pairs import PairSet, own_pairs, statement_pairs
from sally_anne.data.samples import Sample, SampleSet, read_samples, sample_set


@dataclass(frozen=True)
class Source:
    """One source of samples; its functions take the options of a run.

    Attributes:
        takes: options that it takes next to ``setting`` and ``split_seed``, which all do.
        samples: opens the samples, each in a split.
        questions: the pairs of questions, if it has any.
        settings: what the model may be given.
    """

    takes: tuple[str, ...]
    samples: Callable[[Any], SampleSet]
    questions: Callable[[Any, SampleSet], PairSet] | None = None
    settings: tuple[str, ...] = ("multimodal", "text")


def _stories(o: Any) -> StorySet:
    return open_stories(o.data, o.data_seed, gridtom.plots_of(o.contrast))


def _gridtom(o: Any) -> SampleSet:
    part = o.setting, o.stories, o.split_seed
    return gridtom.sample_set(_stories(o), o.order, o.contrast, *part)


def _gridtom_questions(o: Any, samples: SampleSet) -> PairSet:
    return gridtom.question_pairs(_stories(o), o.order, o.setting, o.stories, o.split_seed)


def _mmtom_qa(options: Any) -> SampleSet:
    if options.data is None:
        raise OptionError("--task mmtom_qa needs the benchmark's own files: --data FOLDER")
    items = mmtom_qa.load(options.data)
    return mmtom_qa.sample_set(items, options.setting, options.split_seed)


def _own(options: Any) -> SampleSet:
    samples: list[Sample] = read_samples(options.samples)
    if options.setting == "text":
        samples = [replace(sample, images=(), video=None) for sample in samples]
    facts = {"setting": options.setting}
    return sample_set(samples, options.samples.name, options.split_seed, facts)


def _made(name: str) -> Source:
    """A set that is made here, of text alone."""
    return Source(
        ("stories",),
        lambda o: datasets.opened(name, o.stories, o.split_seed),
        lambda o, _: datasets.questions(name, o.stories, o.split_seed),
    )


SOURCES = {
    "--task gridtom": Source(
        ("data", "order", "contrast", "stories", "data_seed"),
        _gridtom,
        _gridtom_questions,
        ("multimodal", "text", "video"),
    ),
    "--task mmtom_qa": Source(("data",), _mmtom_qa),
    **{f"--task {name}": _made(name) for name in datasets.SETS},
    "--samples": Source((), _own, lambda _, data: own_pairs(data.samples)),
}
SPECIAL = tuple(dict.fromkeys(name for source in SOURCES.values() for name in source.takes))


def _named(options: Any) -> str:
    return f"--task {options.task}" if options.samples is None else "--samples"


def open_task(options: Any) -> SampleSet:
    """The samples that a run's options name, each in a split.

    OptionError for options that do not go together; RecordError or BenchmarkError for the samples.
    """
    name = _named(options)
    source = SOURCES[name]
    given = [n for n in SPECIAL if getattr(options, n) != getattr(type(options), n)]
    if name == "--samples" and options.task != type(options).task:
        given.append("task")
    if other := [n for n in given if n not in source.takes]:
        raise OptionError(f"{flag_name(other[0])} does not go with {name}")
    if options.setting not in source.settings:
        raise OptionError(f"--setting {options.setting} does not go with {name}")
    return source.samples(options)


def open_pairs(options: Any, data: SampleSet) -> dict[str, PairSet]:
    """The pairs that a run's samples have, by kind; none where nothing says which are pairs.

    RecordError for a pair of the user's own that is none; BenchmarkError for unreadable stories.
    """
    source, pair_sets = SOURCES[_named(options)], {}
    if source.questions is not None:
        pair_sets["question"] = source.questions(options, data)
    label = next(iter(data.samples[0].labels))
    reply = options.position == "reply"
    pair_sets["statement"] = statement_pairs(data.samples, label, data.clusters, reply)
    return {kind: pairs for kind, pairs in pair_sets.items() if pairs.pairs}
