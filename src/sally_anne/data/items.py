"""One schema for the questions of all benchmarks, and what a benchmark is to the harness."""

from __future__ import annotations

import hashlib
import math
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from sally_anne.core.errors import BenchmarkError
from sally_anne.data.read import Field, named_lines

LETTERS = string.ascii_uppercase
# Benchmarks of stories in words, which one module reads.
TEXT_SETS = ("bigtom", "tomi", "hi_tom", "fantom", "opentom", "tombench")
# In order of preference where one video has several files.
VIDEOS = (".mp4", ".mkv", ".webm", ".mov", ".avi", ".m4v")

Polarity = Literal["most", "least"]
# multimodal: frames and words; video: frames and the question; audio: the film's sound and the
# question; audiovisual: frames, sound and the question; text: words; none: the question.
View = Literal["multimodal", "video", "audio", "audiovisual", "text", "none"]
# Those that show frames, and those that play the film's sound.
WITH_FRAMES: tuple[View, ...] = ("multimodal", "video", "audiovisual")
WITH_SOUND: tuple[View, ...] = ("audio", "audiovisual")
# full: from the beginning of the context; focused: only the part that the question is about.
Window = Literal["full", "focused"]
# What of a GridToM story a model is given (its paper, section 3.2).
Setting = Literal["multimodal", "video", "text"]
# Between what heads are exchanged: two questions, or two statements on one context.
Kind = Literal["question", "statement"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Option:
    """One of the answers offered: what the prompt calls it, e.g. A, and what it says, e.g. red."""

    label: str
    text: str


def two_options(item_id: str, right: str, wrong: str) -> tuple[tuple[Option, ...], str]:
    """Two answers as A and B, by texts and name alone, and the label of the right one."""
    texts = sorted((right, wrong))
    if hashlib.sha256(item_id.encode()).digest()[0] % 2:
        texts.reverse()
    return tuple(map(Option, "AB", texts)), "AB"[texts.index(right)]


def options_of(
    field: Field, texts: Sequence[str], right: str = ""
) -> tuple[tuple[Option, ...], str]:
    """Options A, B, C ... and the label of ``right``, by default the field's text."""
    right = right or field.stripped()
    if list(texts).count(right) != 1 or not all(texts):
        field.fail(f"must be one of {', '.join(texts)}, and once, is {right!r:.60}")
    return tuple(map(Option, LETTERS, texts)), LETTERS[texts.index(right)]


def tags_of(**values: str | Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Tags by kind, each one text or several, without empty kinds."""
    found = {k: (v,) if isinstance(v, str) else tuple(dict.fromkeys(v)) for k, v in values.items()}
    return {kind: texts for kind, texts in found.items() if any(texts)}


def film_views(*words: str) -> dict[View, tuple[str, ...]]:
    """The views of a benchmark of films with sound, of which two show ``words`` of the context."""
    return {view: words if view in ("multimodal", "text") else () for view in get_args(View)}


def videos_in(folder: Path, suffixes: tuple[str, ...] = VIDEOS) -> dict[str, Path]:
    """Files by name without ending; of several with one name the ending that is listed first."""
    files = [file for file in sorted(folder.glob("*")) if file.suffix.lower() in suffixes]
    files.sort(key=lambda file: suffixes.index(file.suffix.lower()), reverse=True)
    return {file.stem: file for file in files}


@dataclass(frozen=True)
class Media:
    """A part of a video, or (``files``, one a second) a list of pictures in the folder ``path``.

    Attributes:
        start, end: the full window, in seconds; None for the end of the video.
        focus, focus_end: the focused window; None where there is none, or no end of its own.
        frames: numbers of the frames that belong to the item, from 0; None for all in the window.
    """

    path: Path | None = None
    url: str = ""
    start: float = 0.0
    end: float | None = None
    focus: float | None = None
    focus_end: float | None = None
    frames: tuple[int, ...] | None = None
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Context:
    """What is given in words, if anything; transcripts are of the full and the focused window."""

    scene: str = ""
    actions: str = ""
    dialogue: str = ""
    transcript: str = ""
    focused_transcript: str = ""


@dataclass(frozen=True)
class Question:
    """One question of a benchmark, and the prompt in which it is put once it is rendered.

    Attributes:
        item_id: unique in its benchmark.
        group: intervals are over groups: a video, an episode, a story.
        question, options: what is asked, and what may be chosen, in the published order.
        answer: label of the right option; None where the key is hidden, or for open questions.
        answers: labels that must all be named, where several are to be named in place of one.
        reference: right answer of an open question.
        tags: values by kind (``ability``, ``type`` ...) for breakdowns. Each of ``joint`` names a
            score for which all of a group, or of a ``set`` in it, must be right.
        asked: as the authors word it; empty where that is ``question``.
        person, title: whom it is about, and of the film, where the benchmark says so.
        drawn: places of the options in the order of the authors' code; empty for the published.

    Rendered:
        condition, first: TB or FB of the belief asked for, and of first order, if any.
        map: that the story is played on.
        text: the user's turn, after the message ``system``.
        before: SimToM's first prompt, with the clip; its reply stands for ``KNOWN_MARK`` in text.
        reasons: whether replies think aloud, so that their end is the answer.
        official: whose parser reads its replies, see harness/parse.py.
        clip: gives the frames ``uint8 [F, height, width, 3]``.
        shape: of the clip, without decoding it; unless exact with the most frames there can be.
        sound: gives the sound ``float32 [S]``, 16,000 samples a second.
        seconds: of the sound, without decoding it; 0 where that cannot be known.
        notes: gives the words on the frames: what stands for each mark in the text.
    """

    item_id: str
    benchmark: str
    split: str
    group: str
    question: str
    options: tuple[Option, ...] = ()
    answer: str | None = None
    reference: str | None = None
    media: tuple[Media, ...] = ()
    context: Context = Context()
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    polarity: Polarity = "most"
    asked: str = ""
    person: str = ""
    title: str = ""
    drawn: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()
    condition: str = ""
    first: str = ""
    map: str = ""
    text: str = ""
    before: str = ""
    system: str = ""
    reasons: bool = False
    official: str = ""
    clip: Callable[[], np.ndarray] | None = field(default=None, compare=False, repr=False)
    shape: Callable[[bool], tuple[int, int, int]] | None = field(
        default=None, compare=False, repr=False
    )
    sound: Callable[[], np.ndarray] | None = field(default=None, compare=False, repr=False)
    seconds: Callable[[], float] | None = field(default=None, compare=False, repr=False)
    notes: Callable[[], Mapping[str, str]] | None = field(default=None, compare=False, repr=False)

    @property
    def names(self) -> bool:
        return bool(self.answers)

    @property
    def key(self) -> tuple[str, ...]:
        """The right option's label, or all that must be named, if there is a key."""
        return self.answers or (() if self.answer is None else (self.answer,))

    @property
    def hidden(self) -> bool:
        return not self.key and self.reference is None

    @property
    def first_text(self) -> str:
        return self.before or self.text

    def first_prompt(self, notes: Mapping[str, str] | None = None) -> str:
        """The first prompt with words on the frames, by default its own, in place of the marks."""
        text = self.first_text
        if notes is None:
            notes = self.notes() if self.notes else {}
        for mark, words in notes.items():
            text = text.replace(mark, words)
        return text


@dataclass(frozen=True)
class Sampling:
    """Which frames of a window are taken; exactly one of ``count``, ``every``, ``rate`` is set.

    The frames of a window are those on screen at some time in it, its ends included. ``count``
    takes those on screen at equally spaced times from its beginning to its end (one: at its
    middle), none twice; a window with no more frames than that gives all of them. Of frames that an
    item lists by number (``Media.frames``), those of the window are counted out in whole steps.

    ``every`` is every so manieth frame of the video, from the window's first; ``rate`` so many a
    second, from its beginning; if these give more than ``most``, this many are spread evenly.
    """

    count: int | None = None
    every: int | None = None
    rate: float | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        given = [n for n in (self.count, self.every, self.rate) if n is not None]
        counts = [n for n in (self.count, self.every, self.most) if n is not None]
        if len(given) != 1 or min(counts, default=1) < 1 or not 0 < given[0] < math.inf:
            raise BenchmarkError(f"one of count, every and rate must be set, and positive: {self}")

    def changed(self, count: int | None, rate: float | None, most: int | None) -> Sampling:
        """With so many frames, or so many a second, at most so many; None leaves what is there."""
        if count is not None:
            return Sampling(count=count)
        found = self if rate is None else Sampling(rate=rate, most=self.most)
        if most is not None and found.count is not None:
            return Sampling(count=min(found.count, most))
        return found if most is None else replace(found, most=most)


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Attributes:
        load: reads all items of a folder in the official layout, of all splits found there.
        views: for each view that it has, the fields of :class:`Context` that are shown, in order.
        windows: those that it has; the first is its own.
        sampling: which frames its own protocol takes.
        breakdowns: kinds of tags by which accuracy is reported.
        cells: kinds of tags for each combination of which TB, FB and both are reported; TB and FB
            of a group belong together where these are the same, and without any where all tags are.
        notes: sentences in every prompt, by view or for all (key ``""``).
        frame_times: whether the prompt says how long the video is and when its frames are.
        open_ended: whether replies are sentences that a judge reads.
        official: whose own parser of replies is reported with the robust one (harness/parse.py).
        layout: what the folder holds, for the message when it does not.
        submission: whether answers are also written in the form that its authors collect.
        left_out: which published questions are not among the items, and why; always printed.
    """

    name: str
    load: Callable[[Path], list[Question]]
    views: Mapping[View, tuple[str, ...]]
    breakdowns: tuple[str, ...]
    layout: str
    default_view: View = "text"
    sampling: Sampling = Sampling(count=8)
    windows: tuple[Window, ...] = ("full",)
    notes: Mapping[str, str] | None = None
    default_split: str = "test"
    frame_times: bool = False
    open_ended: bool = False
    cells: tuple[str, ...] = ()
    official: str = ""
    submission: bool = False
    left_out: str = ""


FIELDS = (
    *("question", "options", "answer", "video", "images", "context"),
    *("group", "tags", "id", "split"),
)
# As many frames of a video as the other benchmarks show that do not say otherwise.
FRAMES = 8


def own_file(task: str) -> Path | None:
    return Path(task) if task.endswith((".jsonl", ".json")) else None


def short_name(task: str) -> str:
    """A task in the name of a folder."""
    return path.stem if (path := own_file(task)) else task.rpartition(":")[2]


def own_task(path: Path) -> Benchmark:
    """The task in a JSON-lines file: its views follow from what its lines have."""
    items = load(path)
    words = ("scene",) if items[0].context.scene else ()
    filmed = bool(items[0].media)
    frames = max([FRAMES, *(len(media.files) for item in items for media in item.media)])
    views: dict[View, tuple[str, ...]] = {"multimodal": words, "video": ()} if filmed else {}
    views |= {"text": words} if words or not filmed else {}
    return Benchmark(
        name=path.stem,
        load=load,
        views=views | {"none": ()},
        default_view="multimodal" if filmed else "text",
        sampling=Sampling(count=frames),
        breakdowns=tuple(dict.fromkeys(kind for item in items for kind in item.tags)),
        layout=f"one question a line, with the fields {', '.join(FIELDS)}",
        default_split=items[0].split,
        open_ended=not items[0].options,
    )


def load(path: Path) -> list[Question]:
    """All questions, in the order of the file; RecordError names file, line and field."""
    path = Path(path)
    lines = named_lines(path, "question", "id", "{}", FIELDS, "options context video|images")
    return [_item(item_id, record, path) for item_id, record in lines.items()]


def _item(item_id: str, record: Field, path: Path) -> Question:
    texts = [option.stripped() for option in record.opt("options", Field.items) or []]
    many = 2 <= len(texts) <= len(LETTERS)
    if record.has("options") and (not many or len(set(texts)) < len(texts)):
        record.get("options").fail(f"must be 2 to {len(LETTERS)} different texts")
    answer = record.get("answer") if record.has("answer") else None
    tags = record.opt("tags", Field.entries) or {}
    return Question(
        item_id=item_id,
        benchmark=path.stem,
        split=record.opt("split", Field.name) or "test",
        group=record.opt("group", Field.name) or record.value.get("video") or item_id,
        question=record.get("question").text(),
        options=tuple(map(Option, LETTERS, texts)),
        answer=_label(answer, texts) if answer and texts else None,
        reference=answer.text() if answer and not texts else None,
        media=_media(record, path.parent),
        context=Context(record.opt("context", Field.text) or ""),
        tags=tags_of(**{k: [value.text() for value in v.several()] for k, v in tags.items()}),
    )


def _label(answer: Field, texts: list[str]) -> str:
    """Of the right option, given by its number, letter or text."""
    given = answer.value.strip() if isinstance(answer.value, str) else answer.value
    number = given if type(given) is int else None
    known = zip(LETTERS, texts, range(len(texts)), strict=False)
    labels = [label for label, text, i in known if given in (label, text) or number == i]
    if len(labels) != 1:
        answer.fail(f"must be the number, letter or text of one option, is {given!r:.60}")
    return labels[0]


def _media(record: Field, folder: Path) -> tuple[Media, ...]:
    video = record.opt("video", lambda video: video.file(folder))
    images = record.opt("images", lambda images: [one.file(folder) for one in images.several()])
    if images is None:
        return (Media(path=video),) if video else ()
    if video or not images:
        record.get("images").fail("is empty, or comes with video; give one of them")
    return (Media(path=folder, files=tuple(images)),)
