"""A plane in the activation space of one head, the ways to choose it, and straight lines in it.

All planes have their origin at the mean of the training activations and two orthonormal
directions, so distances and angles in the plane are those of the activation space.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

Line = tuple[float, float, float]
"""``(a, b, c)``: all points with ``a * x + b * y + c = 0``."""
Frame = tuple[float, float, float, float]
"""``(left, right, bottom, top)``."""
PARALLEL = 1e-6  # sine of the angle below which two weights count as one direction


@dataclass(frozen=True)
class Plane:
    """Origin and two directions, each ``[D]``.

    A direction is a unit vector, or all zero where the activations leave none to choose
    (then ``notes`` says so).
    """

    origin: np.ndarray
    u: np.ndarray
    v: np.ndarray
    notes: tuple[str, ...] = ()

    def project(self, activations: np.ndarray) -> np.ndarray:
        """Coordinates ``[N, 2]`` of activations ``[N, D]``."""
        return (activations - self.origin) @ np.stack([self.u, self.v], axis=1)

    def table(self, activations: np.ndarray, items: pd.DataFrame, *labels: str) -> pd.DataFrame:
        """The numbers shown of ``items [N]``: what tells them apart, labels, ``x`` and ``y``."""
        kept = [name for name in ("item_id", "split", "condition", *labels) if name in items]
        table = items[kept].reset_index(drop=True)
        table[["x", "y"]] = self.project(activations)
        return table

    def line(self, coef: np.ndarray, intercept: float) -> Line:
        """Where a probe says 0.5: ``(a, b, c)`` of the line ``a * x + b * y + c = 0``.

        For x = origin + x1 u + x2 v + r the logit is w.origin + bias + x1 (w.u) + x2 (w.v) + w.r.
        The last term is zero, and the line exact, if w lies in the plane.
        """
        return float(coef @ self.u), float(coef @ self.v), float(coef @ self.origin + intercept)


def probe_plane(coef: np.ndarray, train: np.ndarray, truth: np.ndarray) -> Plane:
    """Theta, the unit weight ``[D]`` of the probe, and theta', the axes of figure 5 (B).

    Theta' is the direction of greatest variance among the training activations ``[N, D]`` once
    theta is projected out, turned so that true samples (``truth [N]``) lie higher on average.
    """
    origin = train.mean(axis=0)
    centred = train - origin
    theta = unit(coef)
    notes: tuple[str, ...] = ()
    if not theta.any():
        notes += ("the probe has no weights: θ is zero",)
    second = _main_direction(centred - centred @ theta[:, None] * theta, truth)
    if not second.any():
        notes += ("the activations do not vary off θ: θ′ is zero",)
    return Plane(origin, theta, second, notes)


def pca_plane(train: np.ndarray, truth: np.ndarray) -> Plane:
    """The first two principal components of the training activations ``[N, D]``."""
    origin = train.mean(axis=0)
    centred = train - origin
    first = _main_direction(centred, truth)
    second = _main_direction(centred - centred @ first[:, None] * first, truth)
    notes = () if second.any() else ("the activations have fewer than two components",)
    return Plane(origin, first, second, notes)


def two_probe_plane(
    first: np.ndarray, second: np.ndarray, train: np.ndarray, names: tuple[str, str]
) -> Plane:
    """The plane that two probes' weights ``[D]`` span, for figure 5 (C) and (D).

    Both weights lie in it (Gram-Schmidt), so both boundaries are exact lines. If they are parallel
    or one is zero, v is the main direction of the training activations ``[N, D]`` off u.
    """
    origin = train.mean(axis=0)
    theta_p, theta_o = unit(first), unit(second)
    u = theta_p if theta_p.any() else theta_o
    rest = theta_o - (theta_o @ u) * u
    if np.linalg.norm(rest) > PARALLEL:
        v = unit(rest)
        return Plane(origin, u, unit(v - (v @ u) * u))
    thetas = zip(names, (theta_p, theta_o), strict=True)
    notes = [f"the {name} probe has no weights" for name, theta in thetas if not theta.any()]
    if not notes:
        notes.append("both probes have one direction")
    centred = train - origin
    v = _main_direction(centred - centred @ u[:, None] * u, None)
    return Plane(origin, u, v, tuple(notes))


def unit(vector: np.ndarray) -> np.ndarray:
    """``vector`` divided by its length; a zero vector stays zero."""
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else np.zeros_like(vector)


def _main_direction(centred: np.ndarray, truth: np.ndarray | None) -> np.ndarray:
    """First right singular vector of ``centred [N, D]``; zero if the rows do not vary."""
    _, strengths, directions = np.linalg.svd(centred, full_matrices=False)
    if strengths[0] <= 1e-9 * max(1.0, float(np.abs(centred).max())):
        return np.zeros(centred.shape[1])
    direction = directions[0]
    lean = 0.0
    if truth is not None and truth.any() and not truth.all():
        along = centred @ direction
        lean = float(along[truth].mean() - along[~truth].mean())
    if lean == 0.0:
        lean = float(direction[np.abs(direction).argmax()])
    return direction if lean > 0 else -direction


def values(line: Line, points: np.ndarray) -> np.ndarray:
    """``a * x + b * y + c`` at points ``[N, 2]``: above zero on the line's positive side."""
    a, b, c = line
    return a * points[:, 0] + b * points[:, 1] + c


def corners(frame: Frame) -> np.ndarray:
    """The corners of a frame as a polygon ``[4, 2]``."""
    left, right, bottom, top = frame
    return np.array([[left, bottom], [right, bottom], [right, top], [left, top]])


def segment(line: Line, frame: Frame) -> np.ndarray | None:
    """The two ends ``[2, 2]`` of the line inside the frame; None if it does not cross it."""
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
    if len(polygon) == 0:
        return polygon
    heights = values(line, polygon) * (1.0 if positive else -1.0)
    kept = []
    for i, (point, height) in enumerate(zip(polygon, heights, strict=True)):
        before, height_before = polygon[i - 1], heights[i - 1]
        if (height >= 0) != (height_before >= 0):
            part = height_before / (height_before - height)
            kept.append(before + (point - before) * part)
        if height >= 0:
            kept.append(point)
    return np.array(kept).reshape(-1, 2)
