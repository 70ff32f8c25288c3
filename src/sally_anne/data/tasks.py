"""Where the samples of a probing run come from: a row a source; and what ``--task`` names."""

from __future__ import annotations

import hashlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

from sally_anne.core.errors import OptionError
from sally_anne.core.options import flag_name
from sally_anne.data import datasets, mmtom_qa
from sally_anne.data.gridtom import samples as gridtom
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.stories import StorySet
from sally_anne.data.items import (
    TEXT_SETS,
    WITH_FRAMES,
    WITH_SOUND,
    Benchmark,
    Media,
    Question,
    View,
    own_file,
    own_task,
)
from sally_anne.data.pairs import PairSet, in_turn, own_pairs, statement_pairs
from sally_anne.data.samples import SAMPLING, Sample, SampleSet, read_samples, sample_set

# Each has a loader here; of those that are no text set it is a module of their name.
BENCHMARKS = ("moments", "mmtom_qa", "muma_tom", "mimeqa", *TEXT_SETS)


def find_task(task: str) -> Benchmark:
    """The benchmark that ``--task`` names, or an OptionError."""
    if task in BENCHMARKS:
        module = "text_sets" if task in TEXT_SETS else task
        return cast(Benchmark, pkgutil.resolve_name(f"sally_anne.data.{module}:{task.upper()}"))
    if (path := own_file(task)) is not None:
        return own_task(path.absolute())
    if ":" not in task:
        known = ", ".join(["gridtom", *datasets.SETS, *BENCHMARKS])
        raise OptionError(
            f"--task {task}: it is none of {known}, no file of JSON lines (.jsonl) and not "
            "package.module:NAME"
        )
    try:
        # Modules of the working folder come after all others, so that none stands in their way.
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        found = pkgutil.resolve_name(task)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"--task {task}: {error}") from error
    if not isinstance(found, Benchmark):
        raise OptionError(f"--task {task}: is a {type(found).__name__}, not a Benchmark")
    return found


def read_task(
    benchmark: Benchmark, task: str, data: Path | None, split: str = "auto"
) -> tuple[list[Question], list[Question]]:
    """All records of a benchmark that ``--task`` names, and those of a split.

    That is by default the benchmark's own, or the first that is there.
    """
    file = own_file(task)
    if file is not None and data is not None:
        raise OptionError(f"--data is for other tasks: {file} names its own films")
    data = file or data
    if data is None and benchmark.layout:
        raise OptionError(f"--task {task} needs --data with {benchmark.layout}")
    records = benchmark.load(data or Path())
    splits = list(dict.fromkeys(record.split for record in records))
    if split == "auto":
        split = next((s for s in (benchmark.default_split, *splits) if s in splits), "")
    if members := [record for record in records if record.split == split]:
        return records, members
    raise OptionError(f"{data}: no items of split {split!r}; it has {', '.join(splits)}")


# Pairs of statements made of a benchmark's questions: the right option and a wrong one, each after
# the same words. Story, question and mark at the end are one, so that a probe is left with the
# option; how the two differ on the surface is kept in tags, of which the audit has a row each.

RIGHT = "right"
MORE = ("less", "as much", "more")
SURFACE = {
    "option_length": "words of the option, against the other option's",
    "option_marks": "marks in the option, against the other option's",
    "option_overlap": "share of the option's words that the story has, against the other option's",
}
_WORD = re.compile(r"\w+")


def option_pairs(benchmark: Benchmark, items: Iterable[Question], view: View) -> Iterator[Sample]:
    """Two samples a question that has options and one right answer: with that, and a wrong one.

    Which of several wrong ones depends on the question's name alone. Samples have the label
    ``right``, the loader's group, its tags (of several values the first), and :data:`SURFACE`.
    """
    notes = benchmark.notes or {}
    for item in items:
        wrong = {option.label: option.text for option in item.options}
        if len(wrong) < 2 or item.answer is None:
            continue
        right = wrong.pop(item.answer)
        story = [getattr(item.context, part) for part in benchmark.views[view]]
        note = notes.get(view, notes.get("", "")) if any(story) else ""
        begin = [*story, note, f"Question: {item.question}"]
        options = right, min(wrong.values(), key=lambda text: _digest(f"{item.item_id} {text}"))
        film = next(iter(item.media), None)
        features = [_surface(option, " ".join(story)) for option in options]
        own = {k: item.tags[k][0] for k in benchmark.breakdowns if k in item.tags}
        for at, option in enumerate(options):
            mine, other = features[at], features[1 - at]
            signs = [(a > b) - (a < b) + 1 for a, b in zip(mine, other, strict=True)]
            option = option.strip()
            end = "" if option.endswith((".", "!", "?", "。", "！", "？")) else "."
            yield Sample(
                f"{item.item_id}/{('right', 'wrong')[at]}",
                "\n".join(filter(None, [*begin, f"Answer: {option}{end}"])),
                video=film if view in WITH_FRAMES else None,
                sound=film if view in WITH_SOUND else None,
                labels={RIGHT: at == 0},
                group=item.group,
                tags=own | dict(zip(SURFACE, (MORE[sign] for sign in signs), strict=True)),
                context=item.item_id,
            )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _surface(option: str, story: str) -> tuple[float, ...]:
    words, known = _WORD.findall(option.lower()), set(_WORD.findall(story.lower()))
    marks = len(re.findall(r"[^\w\s]", option.strip().rstrip(".")))
    return len(words), marks, sum(word in known for word in words) / max(1, len(words))


def _asked(benchmark: Benchmark, options: Any) -> SampleSet:
    """Samples of the questions of a benchmark's own split; so many pairs, of all groups in turn."""
    _, items = read_task(benchmark, options.task, options.data)
    own = [item for item in items if item.answer and len(item.options) > 1]
    if not own:
        raise OptionError(f"--task {options.task}: no question has options and a right answer")
    every, how = len(own), options.setting
    if how in WITH_SOUND:
        from sally_anne.data.speech import has_sound  # heavy

        own = [item for item in own if any(map(has_sound, item.media[:1]))]
        if not own:
            raise OptionError(f"--setting {how}: no film of {options.task} has sound here")
    # Groups by hashes of their names, as files have one kind of story after the other.
    chosen = in_turn(own, lambda i: _digest(i.group), lambda i: i.item_id)[: options.stories]
    samples = list(option_pairs(benchmark, chosen, how))
    facts = {"task": benchmark.name, "setting": how, "questions of": own[0].split}
    facts |= {"questions without sound": every - len(own)} if len(own) < every else {}
    found = sample_set(samples, f"options of {benchmark.name}", options.split_seed, facts)
    return replace(found, meaning={RIGHT: "is it the right answer?"}, features=SURFACE)


@dataclass(frozen=True)
class Source:
    """One source of samples; its functions take the options of a run.

    It takes the options ``takes``, ``setting`` and ``split_seed``. Where pairs are ``judged``, they
    are the samples themselves.
    """

    takes: tuple[str, ...]
    samples: Callable[[Any], SampleSet]
    questions: Callable[[Any, SampleSet], PairSet] | None = None
    settings: tuple[str, ...] = ("multimodal", "text")
    judged: bool = False


_PART = attrgetter("setting", "stories", "split_seed")


def _stories(o: Any) -> StorySet:
    return open_stories(o.data, o.data_seed, gridtom.plots_of(o.contrast))


def _mmtom_qa(o: Any) -> SampleSet:
    if o.data is None:
        raise OptionError("--task mmtom_qa needs the benchmark's own files: --data FOLDER")
    return mmtom_qa.sample_set(mmtom_qa.load(o.data), o.setting, o.split_seed)


def _own(o: Any) -> SampleSet:
    samples: list[Sample] = read_samples(o.samples)
    if o.setting == "text":
        samples = [replace(sample, images=(), video=None) for sample in samples]
    return sample_set(samples, o.samples.name, o.split_seed, {"setting": o.setting})


def _made(name: str) -> Source:
    return Source(
        ("stories",),
        lambda o: datasets.opened(name, o.stories, o.split_seed),
        lambda o, _: datasets.questions(name, o.stories, o.split_seed),
    )


SOURCES = {
    "--task gridtom": Source(
        ("data", "order", "contrast", "stories", "data_seed"),
        lambda o: gridtom.sample_set(_stories(o), o.order, o.contrast, *_PART(o)),
        lambda o, _: gridtom.question_pairs(_stories(o), o.order, *_PART(o)),
        ("multimodal", "text", "video"),
    ),
    "--task mmtom_qa": Source(("data",), _mmtom_qa),
    **{f"--task {name}": _made(name) for name in datasets.SETS},
    "--samples": Source((), _own, lambda _, data: own_pairs(data.samples)),
}
SPECIAL = tuple(dict.fromkeys(name for source in SOURCES.values() for name in source.takes))


def _source(options: Any) -> tuple[str, Source]:
    if options.samples is not None:
        return "--samples", SOURCES["--samples"]
    if (name := f"--task {options.task}") in SOURCES:
        return name, SOURCES[name]
    benchmark = find_task(options.task)
    takes, views = ("data", "stories"), tuple(benchmark.views)
    return name, Source(takes, partial(_asked, benchmark), settings=views, judged=True)


def open_task(options: Any) -> SampleSet:
    """The samples that a run's options name, each in a split; OptionError if these do not fit."""
    name, source = _source(options)
    given = [n for n in SPECIAL if getattr(options, n) != getattr(type(options), n)]
    if name == "--samples" and options.task != type(options).task:
        given.append("task")
    others = [flag_name(n) for n in given if n not in source.takes]
    if options.split_seed == gridtom.PUBLISHED and "order" not in source.takes:
        others.append(f"--split-seed {gridtom.PUBLISHED}")
    if options.setting not in source.settings:
        others.append(f"--setting {options.setting}")
    if others:
        raise OptionError(f"{others[0]} does not go with {name}")
    found = source.samples(options)
    sampling = SAMPLING.changed(None, options.fps, options.most_frames)
    if sampling == SAMPLING:
        return found
    if not any(isinstance(sample.video, Path | Media) for sample in found.samples):
        raise OptionError(f"--fps and --most-frames are for films in files; {name} shows none")
    samples = [replace(sample, sampling=sampling) for sample in found.samples]
    return replace(found, samples=samples, facts={**found.facts, "frames": str(sampling)})


def open_pairs(options: Any, data: SampleSet, label: str = "") -> dict[str, PairSet]:
    """The pairs that a run's samples have, by kind; none where nothing says which are pairs.

    Statements are right and wrong by a label, the first by default.
    """
    _, source = _source(options)
    label = label or next(iter(data.samples[0].labels))
    if source.judged:
        return {"question": datasets.judged(data.samples, label)}
    pair_sets = [source.questions(options, data)] if source.questions else []
    reply = options.position == "reply"
    pair_sets.append(statement_pairs(data.samples, label, data.clusters, reply))
    return {pair_set.kind: pair_set for pair_set in pair_sets if pair_set.pairs}
