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
    """One question.

    Attributes:
        item_id: unique in its task.
        story: group; intervals are over groups.
        split: as the benchmark names it, e.g. ``train``, ``validation`` or ``test``.
        condition: ``TB`` or ``FB`` of the belief asked for; empty where there is none.
        first: the first-order condition (in second order it differs from ``condition``).
        text: the user's text.
        options: what may be answered; their order is the order in the text; empty for open
            questions.
        answer: the right option's label, or all labels that must be named; empty where the key is
            hidden and for open questions.
        names: whether several options are to be named rather than one chosen.
        clip: gives the frames ``uint8 [F, height, width, 3]``; None without video.
        shape: of the clip, frames, height and width, without decoding it; asked for less than the
            exact number of frames it may give the most that there can be. None if it is not known.
        note: says in words what the frames are; stands for :data:`FRAMES_MARK` in the text.
        question: without context and options, as a judge is given it.
        reference: right answer of an open question; None where there is none.
        tags: values by kind, for breakdowns.
        map: name of the map that the story is played on; empty where there are none.
    """

    item_id: str
    story: str
    split: str
    condition: str
    first: str
    text: str
    options: tuple[Option, ...]
    answer: tuple[str, ...]
    names: bool = False
    clip: Callable[[], np.ndarray] | None = field(default=None, compare=False, repr=False)
    shape: Callable[[bool], tuple[int, int, int]] | None = field(
        default=None, compare=False, repr=False
    )
    note: Callable[[], str] | None = field(default=None, compare=False, repr=False)
    question: str = ""
    reference: str | None = None
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    map: str = ""

    @property
    def hidden(self) -> bool:
        """Whether there is no key to score a reply by."""
        return not self.answer and self.reference is None
