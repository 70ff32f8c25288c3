"""A benchmark's records as questions that are put to a model: view, window, frames, words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pandas as pd

from sally_anne.core.console import Console, print_table
from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import fingerprint
from sally_anne.core.media import MOST_PIXELS
from sally_anne.data.items import (
    WITH_FRAMES,
    WITH_SOUND,
    Benchmark,
    Context,
    Media,
    Option,
    Question,
    Sampling,
    View,
    Window,
    short_name,
    tags_of,
)
from sally_anne.data.media import cut, read_clip, shape_of, window_of
from sally_anne.data.speech import has_sound, read_sound, seconds_of
from sally_anne.data.tasks import read_task
from sally_anne.harness import protocols
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.method_config import DescribeConfig
from sally_anne.harness.tasks import Task, TaskItems, open_task, sample_items, subset_note

_TITLES = {name: name.capitalize() for name in ("scene", "actions", "dialogue", "transcript")}
# The whole published question, and what of it follows the last "Question:".
_PUBLISHED = ("asked", "asked_alone")
FIELDS = (
    *("context", *_TITLES, "note", "frames", "question", "options", "labels"),
    *(*_PUBLISHED, "person", "title", *protocols.MARKS),
)
_STORY = "{context}{frames}{note}"


@dataclass(frozen=True)
class PromptConfig:
    """What a benchmark's prompts show, and in which words; None for ours."""

    view: View
    window: Window
    sampling: Sampling
    template: str | None = None
    most_pixels: int = MOST_PIXELS
    prompting: protocols.Prompting = "direct"
    protocol: protocols.Protocol | None = None

    @classmethod
    def of(
        cls, benchmark: Benchmark, config: EvalConfig, protocol: protocols.Protocol | None = None
    ) -> PromptConfig:
        view, window = config.view or benchmark.default_view, config.window or benchmark.windows[0]
        views = tuple(benchmark.views if protocol is None else protocol.templates)
        for chosen, offered in ((view, views), (window, benchmark.windows)):
            if chosen not in offered:
                raise HarnessError(
                    f"{chosen}: {benchmark.name} has {', '.join(offered)} only, with --protocol "
                    f"{config.protocol}"
                )
        sampling = benchmark.sampling.changed(config.frames, config.fps, config.most_frames)
        asked = ("question", *_PUBLISHED)
        template = protocols.template_of(config, protocol, view, FIELDS, asked)
        pixels = config.max_pixels or MOST_PIXELS
        return cls(view, window, sampling, template, pixels, config.prompting, protocol)


class BenchmarkTask(Task):
    options = ("view", "window", "frames", "fps", "most_frames", "judge")

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        self.submission = benchmark.submission

    def answer_tokens(self, config: EvalConfig) -> int:
        return 128 if self.benchmark.open_ended else 32

    def load(self, config: EvalConfig, fitted: Mapping[str, Any] | None = None) -> TaskItems:
        benchmark = self.benchmark
        how = PromptConfig.of(benchmark, config, self.protocol(config))
        there, members = read_task(benchmark, config.task, config.data, config.split)
        chosen = sample_items(members, benchmark.breakdowns, config)
        lacks = {r.item_id: parts for r in chosen if (parts := missing_parts(benchmark, r, how))}
        here = [r for r in chosen if r.item_id not in lacks]
        if not here:
            item, parts = next(iter(lacks.items()))
            raise HarnessError(
                f"item {item} lacks {' and '.join(parts)}, as all do; try another --view"
            )
        notes = [benchmark.left_out] if benchmark.left_out else []
        if config.prompting == "few-shot":
            # Examples are in words, also where the question comes with frames or sound.
            words = how
            if how.view in (*WITH_FRAMES, *WITH_SOUND):
                words = replace(how, view="text" if "text" in benchmark.views else "none")
            whole = [r for r in there if not missing_parts(benchmark, r, words)]
            pool, asked = protocols.set_apart(whole, here, config.shots)
            if lost := len(here) - len(asked):
                notes.append(
                    f"{lost} of {len(here)} items not asked: their stories are shown as examples"
                )
            examples = list(render(benchmark, pool, words))
            rendered = render(benchmark, asked, how)
            items = [protocols.with_examples(item, examples, config.shots) for item in rendered]
        else:
            items = list(render(benchmark, here, how))
        about = {
            "view": how.view,
            "window": how.window,
            "sampling": str(how.sampling),
            "template": how.template,
            "data": fingerprint((i.item_id, i.text, i.options, i.key) for i in items),
            **prompts_hash(config, items),
        }
        if how.protocol is not None:
            systems = fingerprint(i.system for i in items)
            about |= {"protocol": config.protocol, "systems": systems}
        return TaskItems(
            items,
            about,
            short_name(config.task),
            benchmark.breakdowns,
            benchmark.cells,
            missing=tuple(lacks),
            notes=(*notes, subset_note(items, benchmark.breakdowns, config)),
            departs=how.protocol.departs if how.protocol else "",
        )


def prompts_hash(config: EvalConfig, items: Sequence[Question]) -> dict[str, Any]:
    if config.prompting == "direct":
        return {}
    prompts = fingerprint((item.before, item.text) for item in items)
    return {"prompting": config.prompting, "prompts": prompts}


def missing_parts(benchmark: Benchmark, record: Question, how: PromptConfig) -> list[str]:
    """What the view shows of this record and the folder does not hold, in words."""
    parts = []
    for media in record.media:
        if media.path is None and how.view in (*WITH_FRAMES, *WITH_SOUND):
            parts.append(f"its film ({media.url or 'no address'})")
        elif how.view in WITH_SOUND and not has_sound(media):
            parts.append(f"a sound track in its film ({media.path})")
    fields = benchmark.views[how.view]
    context = _context(record, how)
    if fields and not any(getattr(context, name) for name in fields):
        parts.append(f"its words ({', '.join(fields)})")
    return parts


def render(
    benchmark: Benchmark, records: Iterable[Question], how: PromptConfig
) -> Iterator[Question]:
    """Each record as a question; a view with frames or sound needs records with one film."""
    for record in records:
        film: dict[str, Any] = {}
        if how.view in (*WITH_FRAMES, *WITH_SOUND):
            if len(record.media) != 1:
                raise HarnessError(
                    f"item {record.item_id} has {len(record.media)} films, not one; use --view text"
                )
            film = _film(record.media[0], how)
        text, before = prompt_text(benchmark, record, how), ""
        if how.prompting == "simtom":
            # No benchmark says whose mind its questions are about.
            question = "{question}\n{options}" if record.options else "{question}"
            before = prompt_text(benchmark, record, how, _STORY + protocols.retell("", question))
        marks = (protocols.FRAMES_MARK, *protocols.MARKS.values())
        if "clip" in film and any(mark in before + text for mark in marks):
            film["notes"] = partial(_notes, record.media[0], how)
        options, answer = _offered(record, how)
        condition = record.tags.get("condition", ("",))[0]
        yield replace(
            record,
            condition=condition if condition in ("TB", "FB") else "",
            text=text,
            before=before,
            options=options,
            answer=answer,
            official=benchmark.official,
            reasons=how.prompting == "cot",
            system="" if how.protocol is None else how.protocol.systems.get(how.view, ""),
            **film,
        )


def prompt_text(
    benchmark: Benchmark, record: Question, how: PromptConfig, template: str | None = None
) -> str:
    """The user's turn, with :data:`FRAMES_MARK` for the words on frames."""
    context, fields = _context(record, how), benchmark.views[how.view]
    parts = {name: getattr(context, name) if name in fields else "" for name in _TITLES}
    block = "".join(f"{_TITLES[name]}:\n{text}\n\n" for name, text in parts.items() if text)
    notes = benchmark.notes or {}
    # The benchmark's own words on what is shown; nothing is shown without context.
    note = "" if how.view == "none" else notes.get(how.view, notes.get("", ""))
    options, _ = _offered(record, how)
    published = record.asked or record.question
    filmed = how.view in WITH_FRAMES
    values = {
        **parts,
        **protocols.option_fields(options),
        **{name: mark if filmed else "" for name, mark in protocols.MARKS.items()},
        "context": block,
        "note": f"{note}\n" if note else "",
        "frames": f"{protocols.FRAMES_MARK}\n" if filmed and benchmark.frame_times else "",
        "question": record.question,
        "asked": published,
        "asked_alone": published.split("\nQuestion:")[-1],
        "person": record.person,
        "title": record.title,
    }
    words = template or how.template or _own_words(record, how.prompting)
    return protocols.fill(words, values, record.item_id)


def _own_words(record: Question, prompting: protocols.Prompting) -> str:
    story = f"{protocols.known('')}\n\n" if prompting == "simtom" else _STORY
    choice, form = ("{options}\n", "{labels}") if record.options else ("", "one sentence")
    if prompting == "cot":
        ending = protocols.THINK.format(form=form)
    else:
        ending = f"Reply {'with' if record.options else 'in'} {form}.\nAnswer:"
    return f"{story}Question: {{question}}\n{choice}{ending}"


def _context(record: Question, how: PromptConfig) -> Context:
    context = record.context
    if how.window == "full":
        return context
    return replace(context, transcript=context.focused_transcript)


def _offered(record: Question, how: PromptConfig) -> tuple[tuple[Option, ...], str | None]:
    if how.protocol is None:
        return record.options, record.answer
    options = [record.options[place] for place in record.drawn] or list(record.options)
    labels = how.protocol.labels or [option.label for option in options]
    named = tuple(Option(la, o.text) for la, o in zip(labels, options, strict=True))
    right = [n.label for n, o in zip(named, options, strict=True) if o.label == record.answer]
    return named, right[0] if right else None


def _film(media: Media, how: PromptConfig) -> dict[str, Any]:
    """What an item shows or plays of its film, and how large that is, undecoded."""
    film: dict[str, Any] = {}
    if how.view in WITH_SOUND:
        path = cast(Path, media.path)  # or the item was missing
        start, end = window_of(media, how.window)
        film["sound"] = lambda: read_sound(path, start, end)

        def seconds() -> float:
            # 0 where the film's header does not say.
            left = min(seconds_of(path) or math.inf, end or math.inf) - start
            return left if 0 < left < math.inf else 0.0

        film["seconds"] = seconds
    if how.view in WITH_FRAMES:
        shown = (media, how.window, how.sampling)
        film["clip"] = lambda: read_clip(*shown, how.most_pixels).frames
        film["shape"] = partial(shape_of, *shown, how.most_pixels)
    return film


def describe(config: DescribeConfig, console: Console | None = None) -> list[pd.DataFrame]:
    """Print how many questions of each kind a task has, and how long their parts are.

    Tables of ``kind, value, items, groups, share``, and of ``words of, count, mean, std, ...``.
    """
    task = open_task(config.task)
    if isinstance(task, BenchmarkTask):
        items = read_task(task.benchmark, **vars(config))[1]
    else:
        items = task.load(EvalConfig(**vars(config))).items
    counted: list[tuple[str, ...]] = []
    sizes: list[tuple[str, float]] = []
    for item in items:
        many = f"of {len(item.options)}" if item.options else "open"
        right = f"{', '.join(item.key) or 'hidden'} {many}" if item.options else ""
        kinds = tags_of(all="all", options=many, right=right) | dict(item.tags)
        counted += [(k, v, item.item_id, item.group) for k, vs in kinds.items() for v in vs]
        texts = [("question", item.question), ("reference", item.reference or "")]
        texts += vars(item.context).items()
        which = ("wrong option", "right option")
        texts += [(which[o.label in item.key], o.text) for o in item.options if item.key]
        sizes += [(name, len(text.split())) for name, text in texts if text]
    for media in dict.fromkeys(media for item in items for media in item.media):
        end = media.end
        if media.path is not None and not media.files:  # pictures have no seconds
            end = media.start + cut(media, "full", Sampling(every=1)).duration
        parts = ("window", media.start, end), ("focus", media.focus, media.focus_end or end)
        sizes += [(f"{n} (s)", b - a) for n, a, b in parts if a is not None and b is not None]
    kept = pd.DataFrame(counted, columns=["kind", "value", "items", "groups"])
    kept = kept.groupby(["kind", "value"], as_index=False).nunique()
    lengths = pd.DataFrame(sizes, columns=["words of", "n"]).groupby("words of", sort=False)["n"]
    lengths = lengths.agg(["count", "mean", "std", "median", "min", "max"])
    tables = [kept.assign(share=kept["items"] / len(items)), lengths.reset_index()]
    for table in tables:
        rows = [[f"{x:.4g}" if isinstance(x, float) else x for x in r] for r in table.to_numpy()]
        print_table(console or Console(), short_name(config.task), [*table], rows)
    return tables


def _notes(media: Media, how: PromptConfig) -> dict[str, str]:
    chosen = cut(media, how.window, how.sampling)
    minutes = how.protocol is not None and how.protocol.minutes
    return protocols.frame_notes(chosen.duration, chosen.times, minutes)
