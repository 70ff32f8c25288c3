"""Straight lines in a picture: the part inside a frame, and the area on each side.

A line is ``(a, b, c)``: all points with ``a * x + b * y + c = 0``. A frame is
``(left, right, bottom, top)``. Used for the decision boundaries of figure 5 (C) and (D).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Line = tuple[float, float, float]
Frame = tuple[float, float, float, float]


def values(line: Line, points: np.ndarray) -> np.ndarray:
    """``a * x + b * y + c`` at points ``[N, 2]``: above zero on the line's positive side."""
    a, b, c = line
    return a * points[:, 0] + b * points[:, 1] + c


def corners(frame: Frame) -> np.ndarray:
    """The corners of a frame as a polygon ``[4, 2]``."""
    import numpy as np

    left, right, bottom, top = frame
    return np.array([[left, bottom], [right, bottom], [right, top], [left, top]])


def segment(line: Line, frame: Frame) -> np.ndarray | None:
    """The two ends ``[2, 2]`` of the line inside the frame; None if it does not cross it."""
    import numpy as np

    polygon = corners(frame)
    heights = values(line, polygon)
    ends = []
    for here, there, low, high in zip(
        polygon, np.roll(polygon, -1, axis=0), heights, np.roll(heights, -1), strict=True
    ):
        if (low < 0) != (high < 0):
            ends.append(here + (there - here) * (low / (low - high)))
    return np.array(ends) if len(ends) == 2 else None


def clip(polygon: np.ndarray, line: Line, positive: bool) -> np.ndarray:
    """The part of a convex polygon ``[M, 2]`` on one side of the line; ``[0, 2]`` if none."""
    import numpy as np

    if len(polygon) == 0:
        return polygon
    heights = values(line, polygon) * (1.0 if positive else -1.0)
    kept = []
    for i, (point, height) in enumerate(zip(polygon, heights, strict=True)):
        before, height_before = polygon[i - 1], heights[i - 1]
        if (height >= 0) != (height_before >= 0):
            share = height_before / (height_before - height)
            kept.append(before + (point - before) * share)
        if height >= 0:
            kept.append(point)
    return np.array(kept).reshape(-1, 2)
