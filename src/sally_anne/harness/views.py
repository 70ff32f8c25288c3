"""From a benchmark's record to what a model is shown: view, window, frames, the prompt's words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sally_anne.core.errors import HarnessError
from sally_anne.data.clips import MOST_PIXELS, cut, read_clip, shape_of, window_of
from sally_anne.data.items import (
    Benchmark,
    BenchmarkItem,
    Context,
    Media,
    Option,
    Sampling,
    View,
    Window,
)
from sally_anne.data.mimeqa import clock, in_minutes
from sally_anne.data.sound import read_sound, seconds_of
from sally_anne.harness.items import COUNT_MARK, FRAMES_MARK, LENGTH_MARK, TIMES_MARK, Item
from sally_anne.harness.prompting import THINK, Prompting, known, retell
from sally_anne.harness.protocols import PROTOCOLS, Protocol, ProtocolName
from sally_anne.harness.templates import fill, option_fields, read_template

FILMED: tuple[View, ...] = ("multimodal", "video", "audiovisual")
HEARD: tuple[View, ...] = ("audio", "audiovisual")
_TITLES = {name: name.capitalize() for name in ("scene", "actions", "dialogue", "transcript")}
# What stands for frames that are not decoded yet.
MARKS = {"length": LENGTH_MARK, "count": COUNT_MARK, "times": TIMES_MARK}
# The whole published question, and what of it follows the last "Question:".
_ASKED = ("asked", "asked_alone")
FIELDS = (
    *("context", *_TITLES, "note", "frames", "question", "options", "labels"),
    *(*_ASKED, "person", "title", *MARKS),
)
_SHOWN, _CHOICE, _OPEN = (
    "{context}{frames}{note}",
    "Question: {question}\n{options}\n",
    "Question: {question}\n",
)


@dataclass(frozen=True)
class Shown:
    view: View
    window: Window  # of films and transcripts
    sampling: Sampling
    template: str | None = None  # with :data:`FIELDS` in braces; None for our own words
    most_pixels: int = MOST_PIXELS  # of a frame; larger ones are scaled down as they are read
    prompting: Prompting = "direct"
    protocol: Protocol | None = None  # the authors' own; None for ours


def shown(
    benchmark: Benchmark,
    view: View | None = None,
    window: Window | None = None,
    frames: int | None = None,
    template: Path | None = None,
    most_pixels: int | None = None,
    prompting: Prompting = "direct",
    protocol: ProtocolName = "sally-anne",
) -> Shown:
    """The benchmark's own protocol with what the user changes of it; None changes nothing."""
    view, window = view or benchmark.default_view, window or benchmark.windows[0]
    for option, chosen, offered in (
        ("view", view, tuple(benchmark.views)),
        ("window", window, benchmark.windows),
    ):
        if chosen not in offered:
            raise HarnessError(
                f"--{option} {chosen}: {benchmark.name} has {', '.join(offered)} only"
            )
    sampling = benchmark.sampling if frames is None else Sampling(count=frames)
    most = most_pixels or MOST_PIXELS
    how = Shown(view, window, sampling, _template(template), most, prompting)
    return how if protocol == "sally-anne" else _as_published(benchmark, how)


def _as_published(benchmark: Benchmark, how: Shown) -> Shown:
    if (known := PROTOCOLS.get(benchmark.name)) is None:
        raise HarnessError(
            f"--protocol official: of {benchmark.name} none is known; there are those of "
            f"{', '.join(PROTOCOLS)}"
        )
    if (template := known.templates.get(how.view)) is None:
        raise HarnessError(
            f"--view {how.view}: the authors of {benchmark.name} show "
            f"{', '.join(known.templates)} only; leave out --protocol official"
        )
    return replace(how, template=template, protocol=known)


def _template(path: Path | None) -> str | None:
    if path is None:
        return None
    return read_template(path, "--template", FIELDS, [("question", *_ASKED)])


def missing_parts(benchmark: Benchmark, record: BenchmarkItem, how: Shown) -> list[str]:
    """What the view shows of this record and the folder does not hold, in words."""
    parts = []
    if how.view in HEARD:
        parts += [lacks for media in record.media if (lacks := _unheard(media))]
    elif how.view in FILMED:
        parts += [f"its film ({m.url or 'no address'})" for m in record.media if m.path is None]
    fields = benchmark.views[how.view]
    context = _context(record, how)
    if fields and not any(getattr(context, name) for name in fields):
        parts.append(f"its words ({', '.join(fields)})")
    return parts


def items(benchmark: Benchmark, records: Iterable[BenchmarkItem], how: Shown) -> Iterator[Item]:
    """Each record as a question; a view with frames or sound needs records with one film."""
    for record in records:
        film: dict[str, Any] = {}
        if how.view in (*FILMED, *HEARD):
            if len(record.media) != 1:
                raise HarnessError(
                    f"{benchmark.name}, item {record.item_id}: {len(record.media)} films, where "
                    f"--view {how.view} shows one; use --view text"
                )
            film = _film(record.media[0], how)
        text, before = prompt_text(benchmark, record, how), _before(benchmark, record, how)
        marks = (FRAMES_MARK, *MARKS.values())
        if "clip" in film and any(mark in before + text for mark in marks):
            film["notes"] = partial(_notes, record.media[0], how)
        options, answer = _offered(record, how)
        condition = record.tags.get("condition", ("",))[0]
        yield Item(
            item_id=record.item_id,
            story=record.group,
            split=record.split,
            condition=condition if condition in ("TB", "FB") else "",
            first="",
            text=text,
            before=before,
            options=options,
            answer=() if answer is None else (answer,),
            question=record.question,
            reference=record.reference,
            tags=record.tags,
            official=benchmark.official,
            reasons=how.prompting == "cot",
            system="" if how.protocol is None else how.protocol.systems.get(how.view, ""),
            **film,
        )


def _film(media: Media, how: Shown) -> dict[str, Any]:
    """What an item shows or plays of its film, and how large that is, undecoded."""
    film: dict[str, Any] = {}
    if how.view in HEARD:
        film |= {"sound": partial(_sound, media, how), "seconds": partial(_heard, media, how)}
    if how.view in FILMED:
        shape = partial(shape_of, media, how.window, how.sampling, how.most_pixels)
        film |= {"clip": partial(_frames, media, how), "shape": shape}
    return film


def _frames(media: Media, how: Shown) -> np.ndarray:
    return read_clip(media, how.window, how.sampling, how.most_pixels).frames


def _unheard(media: Media) -> str:
    """What a film lacks to be heard; empty if nothing."""
    if media.path is None:
        return f"its film ({media.url or 'no address'})"
    if media.kind == "video" and seconds_of(media.path) is not None:
        return ""
    return f"a sound track in its film ({media.path})"


def _sound(media: Media, how: Shown) -> np.ndarray:
    assert media.path is not None  # or the item was missing
    return read_sound(media.path, *window_of(media, how.window))


def _heard(media: Media, how: Shown) -> float:
    """Seconds of the window in which the film sounds; 0 where its header does not tell."""
    assert media.path is not None
    start, end = window_of(media, how.window)
    left = min(seconds_of(media.path) or math.inf, math.inf if end is None else end) - start
    return left if 0 < left < math.inf else 0.0


def _notes(media: Media, how: Shown) -> dict[str, str]:
    """What stands for each mark."""
    chosen = cut(media, how.window, how.sampling)
    minutes = how.protocol is not None and how.protocol.minutes
    return frame_notes(chosen.duration, chosen.times, minutes)


def _offered(record: BenchmarkItem, how: Shown) -> tuple[tuple[Option, ...], str | None]:
    """The options as they are asked, and the right one's label."""
    if how.protocol is None:
        return record.options, record.answer
    options = [record.options[place] for place in record.drawn] or list(record.options)
    labels = how.protocol.labels or [option.label for option in options]
    named = tuple(Option(la, o.text) for la, o in zip(labels, options, strict=True))
    right = [n.label for n, o in zip(named, options, strict=True) if o.label == record.answer]
    return named, right[0] if right else None


def prompt_text(
    benchmark: Benchmark, record: BenchmarkItem, how: Shown, template: str | None = None
) -> str:
    """The user's turn; :data:`FRAMES_MARK` stands where the frames are spoken of."""
    context, wanted = _context(record, how), benchmark.views[how.view]
    parts = {name: getattr(context, name) if name in wanted else "" for name in _TITLES}
    block = "".join(f"{_TITLES[name]}:\n{text}\n\n" for name, text in parts.items() if text)
    notes = benchmark.notes or {}
    # The benchmark's own words on what is shown; nothing is shown without context.
    note = "" if how.view == "none" else notes.get(how.view, notes.get("", ""))
    options, _ = _offered(record, how)
    asked = record.asked or record.question
    filmed = how.view in FILMED
    fields = (
        parts
        | option_fields(options)
        | {name: mark if filmed else "" for name, mark in MARKS.items()}
        | {
            "context": block,
            "note": f"{note}\n" if note else "",
            "frames": f"{FRAMES_MARK}\n" if how.view in FILMED and benchmark.frame_times else "",
            "question": record.question,
            "asked": asked,
            "asked_alone": asked.split("\nQuestion:")[-1],
            "person": record.person,
            "title": record.title,
        }
    )
    words = template or how.template or _words(record, how.prompting)
    return fill(words, fields, record.item_id, len(options))


def _before(benchmark: Benchmark, record: BenchmarkItem, how: Shown) -> str:
    """The prompt of SimToM's first step; no benchmark says whose mind its questions are about."""
    if how.prompting != "simtom":
        return ""
    question = "{question}\n{options}" if record.options else "{question}"
    return prompt_text(benchmark, record, how, _SHOWN + retell("", question))


def told_in_words(benchmark: Benchmark, how: Shown) -> Shown:
    """The view that examples have: the asked one's, in words where that has frames or sound."""
    if how.view not in (*FILMED, *HEARD):
        return how
    return replace(how, view="text" if "text" in benchmark.views else "none")


def _words(record: BenchmarkItem, prompting: Prompting) -> str:
    """Our own template."""
    if prompting == "cot":
        ending = THINK.format(form="{labels}" if record.options else "one sentence")
    else:
        ending = f"Reply {'with {labels}' if record.options else 'in one sentence'}.\nAnswer:"
    shown = f"{known('')}\n\n" if prompting == "simtom" else _SHOWN
    return shown + (_CHOICE if record.options else _OPEN) + ending


def _context(record: BenchmarkItem, how: Shown) -> Context:
    context = record.context
    if how.window == "full":
        return context
    return replace(context, transcript=context.focused_transcript)


def frame_note(duration_seconds: float, times: Sequence[float]) -> str:
    """What a prompt says of its frames: how much they show, and their times, as ``m:ss``.

    The MimeQA paper tells models that are given single frames of both (appendix B.4). Times are in
    seconds from the film's beginning, in order.
    """
    count = "one frame" if len(times) == 1 else f"{len(times)} frames"
    at = ", ".join(clock(time) for time in times)
    return f"You see {clock(duration_seconds)} of the film in {count}, from {at}."


def frame_notes(
    duration_seconds: float, times: Sequence[float], minutes: bool = False
) -> dict[str, str]:
    """What stands for each mark, of frames as in :func:`frame_note`."""
    each = [in_minutes(time) if minutes else f"{time:.2f}s" for time in times]
    length = in_minutes(duration_seconds) if minutes else f"{duration_seconds:.2f} seconds"
    return {
        FRAMES_MARK: frame_note(duration_seconds, times),
        LENGTH_MARK: length,
        COUNT_MARK: str(len(each)),
        TIMES_MARK: ",".join(each),
    }
