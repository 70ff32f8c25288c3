"""What a model is asked: one item, whatever benchmark it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sally_anne.data.items import Option

# Where the text speaks of the frames, once they are known; see `Item.notes`.
FRAMES_MARK = "<frames>"
LENGTH_MARK, COUNT_MARK, TIMES_MARK = "<film length>", "<frame count>", "<frame times>"


@dataclass(frozen=True)
class Item:
    item_id: str  # unique in its task
    story: str  # group; intervals are over groups
    split: str  # as the benchmark names it, e.g. train, validation or test
    condition: str  # TB or FB of the belief asked for; empty where there is none
    first: str  # the first-order condition (in second order it differs from ``condition``)
    text: str  # the user's
    # SimToM's first prompt; the reply to it stands for KNOWN_MARK in the text, and the clip belongs
    # to it. Empty where the question is asked at once.
    before: str = field(default="", kw_only=True)
    options: tuple[Option, ...]  # in the order of the text; empty for open questions
    # The right option's label, or all labels that must be named; empty where the key is hidden and
    # for open questions.
    answer: tuple[str, ...]
    names: bool = False  # whether several options are to be named rather than one chosen
    # Gives the frames ``uint8 [F, height, width, 3]``; None without video.
    clip: Callable[[], np.ndarray] | None = field(default=None, compare=False, repr=False)
    # Frames, height and width of the clip, without decoding it; asked for less than the exact
    # number of frames it may give the most that there can be. None if it is not known.
    shape: Callable[[bool], tuple[int, int, int]] | None = field(
        default=None, compare=False, repr=False
    )
    # Gives the sound ``float32 [S]``, 16,000 samples a second; None where none is played.
    sound: Callable[[], np.ndarray] | None = field(default=None, compare=False, repr=False)
    # Its seconds, without decoding it; 0 where that cannot be known.
    seconds: Callable[[], float] | None = field(default=None, compare=False, repr=False)
    # Says in words what the frames are: what stands for each mark in the text.
    notes: Callable[[], Mapping[str, str]] | None = field(default=None, compare=False, repr=False)
    question: str = ""  # without context and options, as a judge is given it
    reference: str | None = None  # right answer of an open question
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by kind, for breakdowns
    reasons: bool = False  # whether replies think aloud, so that their end is the answer
    official: str = ""  # whose parser reads its replies, see harness/parse.py
    map: str = ""  # that the story is played on; empty where there are none
    system: str = ""  # the system message before the user's turn; empty for none

    @property
    def first_text(self) -> str:
        """What the user says first."""
        return self.before or self.text

    def first_prompt(self, notes: Mapping[str, str]) -> str:
        """The first prompt with what is known of the frames in place of the marks."""
        text = self.first_text
        for mark, words in notes.items():
            text = text.replace(mark, words)
        return text

    @property
    def hidden(self) -> bool:
        """Whether there is no key to score a reply by."""
        return not self.answer and self.reference is None
