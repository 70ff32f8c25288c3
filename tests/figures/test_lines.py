"""Lines in a frame: ends, sides and areas."""

from __future__ import annotations

import numpy as np
import pytest

from sally_anne.figures import plane as lines

FRAME = (-2.0, 2.0, -1.0, 3.0)


def area(polygon: np.ndarray) -> float:
    x, y = polygon[:, 0], polygon[:, 1]
    return 0.5 * abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1)))


def test_a_segment_ends_on_the_frame() -> None:
    ends = lines.segment((0.0, 1.0, -0.5), FRAME)
    assert sorted(map(tuple, ends)) == [(-2.0, 0.5), (2.0, 0.5)]
    slanted = lines.segment((1.0, -1.0, 0.0), FRAME)
    assert sorted(map(tuple, slanted)) == [(-1.0, -1.0), (2.0, 2.0)]


def test_a_line_that_misses_the_frame_has_no_segment() -> None:
    assert lines.segment((1.0, 0.0, -2.5), FRAME) is None
    assert lines.segment((0.0, 0.0, 1.0), FRAME) is None


@pytest.mark.parametrize("line", [(1.0, 0.3, -0.2), (0.0, -2.0, 1.0), (1.0, 0.0, 7.0)])
def test_both_sides_together_are_the_frame(line) -> None:
    square = lines.corners(FRAME)
    sides = [lines.clip(square, line, positive) for positive in (True, False)]
    assert area(sides[0]) + area(sides[1]) == pytest.approx(16.0)
    assert (lines.values(line, sides[0]) >= -1e-9).all()
    assert (lines.values(line, sides[1]) <= 1e-9).all()


def test_two_lines_part_the_frame_in_four() -> None:
    square = lines.corners(FRAME)
    right = lines.clip(square, (1.0, 0.0, 0.0), True)
    assert area(lines.clip(right, (0.0, 1.0, 0.0), True)) == pytest.approx(6.0)
    assert area(lines.clip(right, (0.0, 1.0, 0.0), False)) == pytest.approx(2.0)
    assert len(lines.clip(lines.clip(square, (1.0, 0, -9), True), (0.0, 1.0, 0.0), True)) == 0
