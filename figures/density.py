"""Density of one group of points, or the reason why it has none.

A kernel density needs at least three points that vary in each direction and do not lie on one
line; with less, a figure shows the points alone and says why (figure 5 (B)).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

FEWEST = 3
FLAT = 1e-7  # spread, as a share of the frame, below which points do not vary


def no_density(points: np.ndarray, scale: float) -> str | None:
    """Why points ``[N]`` or ``[N, 2]`` have no kernel density; None if they have one.

    ``scale`` is the size of the picture that they stand in.
    """
    import numpy as np

    if len(points) < FEWEST:
        return f"{len(points)} sample{'' if len(points) == 1 else 's'}"
    columns = points.reshape(len(points), -1)
    spread = np.linalg.svd(columns - columns.mean(axis=0), compute_uv=False)
    if spread[-1] / np.sqrt(len(points)) <= FLAT * scale:
        return "no variance" if spread[0] / np.sqrt(len(points)) <= FLAT * scale else "on one line"
    return None
