"""What a prompt says about the frames taken from a film: how much they show, and their times.

The MimeQA paper tells models that are given single frames of both (appendix B.4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from sally_anne.benchmarks.mimeqa.cells import clock
from sally_anne.core.errors import HarnessError


def frame_note(duration_seconds: float, times: Sequence[float]) -> str:
    """A sentence with the length of what is shown and the times of its frames, as ``m:ss``.

    Args:
        duration_seconds: of the film, or of the part of it that the frames are taken from.
        times: of each frame from the film's beginning, in seconds, in order.

    Raises:
        HarnessError: no frame, or a length or time that is negative, not finite or out of order.
    """
    if not times:
        raise HarnessError("a film is shown without any frame")
    for what, seconds in (("length", duration_seconds), *(("frame's time", t) for t in times)):
        if not math.isfinite(seconds) or seconds < 0:
            raise HarnessError(f"a {what} must be finite and not negative, is {seconds}")
    if any(later < earlier for earlier, later in pairwise(times)):
        raise HarnessError("the frames of a film must be in the order of their times")
    count = "one frame" if len(times) == 1 else f"{len(times)} frames"
    at = ", ".join(clock(time) for time in times)
    return f"You see {clock(duration_seconds)} of the film in {count}, from {at}."
