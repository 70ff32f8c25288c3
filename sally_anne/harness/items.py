"""What a model is asked: one item, whatever benchmark it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sally_anne.benchmarks.items import Option

# Where the text speaks of the frames, once they are known; see `Item.note`.
FRAMES_MARK = "<frames>"


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
    # Says in words what the frames are; stands for FRAMES_MARK in the text.
    note: Callable[[], str] | None = field(default=None, compare=False, repr=False)
    question: str = ""  # without context and options, as a judge is given it
    reference: str | None = None  # right answer of an open question
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by kind, for breakdowns
    reasons: bool = False  # whether replies think aloud, so that their end is the answer
    official: str = ""  # whose own reader reads its replies, see harness/official.py
    map: str = ""  # that the story is played on; empty where there are none

    @property
    def hidden(self) -> bool:
        """Whether there is no key to score a reply by."""
        return not self.answer and self.reference is None
