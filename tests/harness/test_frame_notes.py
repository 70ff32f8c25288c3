"""What a prompt says about frames."""

from __future__ import annotations

import math

import pytest

from sally_anne.core.errors import HarnessError
from sally_anne.harness.views import frame_note


def test_length_and_times() -> None:
    times = [0, 59.96, 61.25, 3600]
    assert frame_note(3725, times) == (
        "You see 1:02:05 of the film in 4 frames, from 0:00, 1:00, 1:01.2, 1:00:00."
    )


def test_one_frame() -> None:
    assert frame_note(0, (3.0,)) == "You see 0:00 of the film in one frame, from 0:03."


@pytest.mark.parametrize(
    ("duration", "times", "message"),
    [
        (5, [], "without any frame"),
        (-1, [0], "a length must be finite and not negative, is -1"),
        (math.nan, [0], "a length must be finite"),
        (5, [math.inf], "a frame's time must be finite"),
        (5, [-0.1], "a frame's time must be finite and not negative"),
        (5, [2, 1], "in the order of their times"),
    ],
)
def test_what_makes_no_sense(duration: float, times: list[float], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        frame_note(duration, times)
