"""What a prompt says about frames."""

from __future__ import annotations

from sally_anne.harness.views import frame_note


def test_length_and_times() -> None:
    times = [0, 59.96, 61.25, 3600]
    assert frame_note(3725, times) == (
        "You see 1:02:05 of the film in 4 frames, from 0:00, 1:00, 1:01.2, 1:00:00."
    )


def test_one_frame() -> None:
    assert frame_note(0, (3.0,)) == "You see 0:00 of the film in one frame, from 0:03."
