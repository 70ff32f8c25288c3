"""One schema for the questions of all benchmarks.

A record says what there is; which part of it a model is shown (view, window, number of frames) is
chosen when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Polarity = Literal["most", "least"]
# multimodal: frames and words; video: frames and the question; text: words; none: the question.
View = Literal["multimodal", "video", "text", "none"]
# full: from the beginning of the context; focused: only the part that the question is about.
Window = Literal["full", "focused"]
VIEWS: tuple[View, ...] = ("multimodal", "video", "text", "none")
WINDOWS: tuple[Window, ...] = ("full", "focused")


@dataclass(frozen=True)
class Option:
    """One of the answers offered.

    Attributes:
        label: what the prompt calls it, e.g. A.
        text: what it says, e.g. red.
    """

    label: str
    text: str


@dataclass(frozen=True)
class Media:
    """A part of a film, or a list of pictures.

    Attributes:
        kind: ``video`` is one file; ``frames`` is a folder of numbered pictures.
        path: where it is; None where it is not on this machine.
        url: where it was published; empty if nowhere.
        alternatives: other addresses of the same film.
        start: where the full window begins, in seconds.
        end: where the full window ends, in seconds; None for the end of the film.
        focus: where the focused window begins, in seconds; None where there is none.
        focus_end: where it ends; None where it ends with the full one.
        frames: numbers of the frames that belong to the item, from 0; None for all in the window.
        pictures: which files of a folder of pictures belong to it, as in ``*_normal.png``.
        perspective: whose view it is; empty for a spectator's.
        length: of the whole film in seconds as the benchmark gives it; None where it does not.
    """

    kind: Literal["video", "frames"] = "video"
    path: Path | None = None
    url: str = ""
    alternatives: tuple[str, ...] = ()
    start: float = 0.0
    end: float | None = None
    focus: float | None = None
    focus_end: float | None = None
    frames: tuple[int, ...] | None = None
    pictures: str = "*"
    perspective: str = ""
    length: float | None = None


@dataclass(frozen=True)
class Context:
    """What is told in words; each part is empty where there is none.

    Attributes:
        scene: the place and what is in it.
        actions: what is done.
        dialogue: what is said, by whom.
        transcript: what is said in the full window.
        focused_transcript: what is said in the focused window.
    """

    scene: str = ""
    actions: str = ""
    dialogue: str = ""
    transcript: str = ""
    focused_transcript: str = ""


@dataclass(frozen=True)
class BenchmarkItem:
    """One question of a benchmark.

    Attributes:
        item_id: unique in its benchmark.
        benchmark: its name.
        split: as published, e.g. ``validation`` or ``test``.
        group: intervals are over groups: a film, an episode, a story.
        question: without its options.
        options: what may be chosen, in the published order; empty for open questions.
        answer: label of the right option; None where the key is hidden, or for open questions.
        reference: right answer of an open question; None where it is hidden or options are given.
        media: films or pictures; empty for text alone.
        context: what is told in words.
        tags: values by kind (``ability``, ``cue``, ``type``, ``order``, ``condition`` ...), each
            one or more, for breakdowns.
        polarity: ``least`` where the least likely option is asked for.
        licence: of the record.
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
    licence: str = ""

    @property
    def hidden(self) -> bool:
        """Whether there is no key to score an answer by."""
        return self.answer is None and self.reference is None
