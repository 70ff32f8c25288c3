"""Frames of a film: which ones, at what times, cut out with PyAV."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampling:
    """Which frames of a window are taken; exactly one of ``count``, ``every``, ``rate`` is set.

    Attributes:
        count: so many, spread evenly.
        every: every so manieth frame of the film, from the window's first.
        rate: so many a second.
        most: if ``every`` or ``rate`` gives more than so many, this many are spread evenly.
    """

    count: int | None = None
    every: int | None = None
    rate: float | None = None
    most: int | None = None
