"""Intervals for all rooms: whole groups (stories, films, maps) are drawn, with replacement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sally_anne.core.console import many
from sally_anne.core.errors import OptionError

# Clusters below which an interval over them is said to be rough.
FEW = 5


@dataclass(frozen=True)
class Estimate:
    """A mean, a share, or a difference of them, of n values, with its interval; NaN without."""

    value: float
    low: float
    high: float
    n: int


def too_few(count: int, clusters: str) -> str:
    """A sentence about intervals over so few clusters; empty if they are enough."""
    return f"Intervals are over {many(count, clusters)}, too few to say much." * (count < FEW)


def draw_groups(groups: int, count: int = 2000, seed: int | np.random.Generator = 0) -> np.ndarray:
    """How often each group is drawn in each resample, ``[count, groups]``, for any estimates."""
    if count < 1:
        raise OptionError(f"bootstrap must be at least 1, got {count}")
    random = np.random.default_rng(seed)
    drawn = random.integers(0, max(groups, 1), (count, groups))
    drawn += groups * np.arange(count)[:, None]
    return np.bincount(drawn.ravel(), minlength=count * groups).reshape(count, groups).astype(float)


def percentile_interval(drawn: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """The middle ``level`` (an OptionError if not within 0 to 1) of finite resamples, or NaN."""
    if not 0 < level < 1:
        raise OptionError(f"level must be between 0 and 1, got {level}")
    drawn, tail = drawn[np.isfinite(drawn)], (1 - level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail]) if len(drawn) else (np.nan, np.nan)
    return float(low), float(high)


def estimate_mean(
    values: np.ndarray, group: np.ndarray, times: np.ndarray, level: float = 0.95
) -> Estimate:
    """The mean of ``values [n]`` of groups ``group [n]``, drawn ``times [count, G]``."""
    counted = times @ np.bincount(group, minlength=times.shape[1])
    sums = times @ np.bincount(group, values, times.shape[1])
    low, high = percentile_interval(sums[counted > 0] / counted[counted > 0], level)
    return Estimate(float(np.mean(values)) if len(values) else np.nan, low, high, len(values))


def estimate_shares(
    parts: np.ndarray, wholes: np.ndarray, group: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of ``parts [n, ...]`` over the sum of ``wholes [n]``, and both ends, ``[...]`` each.

    Sums are divided, so that small wholes do not decide; the rest as of :func:`estimate_mean`.
    """
    flat = parts.reshape(len(parts), -1)
    member = np.eye(times.shape[1])[group]
    drawn = (times @ (member.T @ flat)) / (times @ (member.T @ wholes))[:, None]
    ends = np.apply_along_axis(percentile_interval, 0, drawn)
    share = flat.sum(0) / wholes.sum()
    return tuple(found.reshape(parts.shape[1:]) for found in (share, *ends))  # type: ignore[return-value]
