"""Seconds of a run, with those of preparing its inputs apart; and ratios between runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Clock:
    """Runs from when it is made.

    Attributes:
        preparation: seconds spent inside :meth:`preparing` so far.
    """

    def __init__(self) -> None:
        self.preparation = 0.0
        self._begun = now()

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """What happens in here is preparation of inputs: drawing frames and the processor's work.

        Yields:
            nothing.
        """
        begun = now()
        try:
            yield
        finally:
            self.preparation += now() - begun

    def seconds(self) -> float:
        """Seconds since the clock was made, preparation included."""
        return now() - self._begun


def now() -> float:
    """A moment in seconds, once an accelerator has done all it was told."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def ratios(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """``first / second`` turn by turn.

    A slow moment of the machine hits both sides of a turn alike, so the median of these is
    steadier than the ratio of medians.
    """
    return [a / b for a, b in zip(first, second, strict=True)]


def median_ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """The median of :func:`ratios`."""
    return statistics.median(ratios(first, second))
