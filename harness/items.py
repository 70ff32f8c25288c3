"""What a model is asked: one item, whatever benchmark it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.items import Option


@dataclass(frozen=True)
class Item:
    """One question.

    Attributes:
        item_id: unique in its task.
        story: group; intervals are over groups.
        split: ``train``, ``validation`` or ``test``.
        condition: ``TB`` or ``FB`` of the belief asked for; empty where there is none.
        first: the first-order condition (in second order it differs from ``condition``).
        text: the user's text.
        options: what may be answered; their order is the order in the text.
        answer: the right option's label, or all labels that must be named.
        names: whether several options are to be named rather than one chosen.
        clip: gives the frames ``uint8 [F, height, width, 3]``; None without video.
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
