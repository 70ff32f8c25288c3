"""Intervals for all rooms: groups (stories, films, maps) are drawn anew, with replacement.

Items of one group are not independent, so a resample takes or leaves them together. One draw can
serve several estimates, which are then of the same resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sally_anne.core.errors import OptionError


@dataclass(frozen=True)
class Estimate:
    """A mean, a share, or a difference of them, with its interval.

    Attributes:
        value: NaN if n is 0.
        low: lower end of the interval; NaN if no resample has a value.
        high: upper end, likewise.
        n: number of values.
    """

    value: float
    low: float
    high: float
    n: int


def draw_groups(
    groups: int,
    count: int = 2000,
    seed: int | np.random.Generator = 0,
    method: Literal["indices", "multinomial"] = "indices",
) -> np.ndarray:
    """How often each group is drawn in each resample, float ``[count, groups]``.

    The two methods have one distribution and differ in the numbers that a seed gives.

    Raises:
        OptionError: less than one resample is asked for.
    """
    if count < 1:
        raise OptionError(f"bootstrap must be at least 1, got {count}")
    random = np.random.default_rng(seed)
    if method == "multinomial":
        return random.multinomial(groups, np.full(groups, 1 / groups), size=count).astype(float)
    drawn = random.integers(0, max(groups, 1), (count, groups))
    drawn += groups * np.arange(count)[:, None]
    return np.bincount(drawn.ravel(), minlength=count * groups).reshape(count, groups).astype(float)


def percentile_interval(drawn: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """The middle ``level`` of the resamples that have a finite value; NaN where none has.

    Raises:
        OptionError: the level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise OptionError(f"level must be between 0 and 1, got {level}")
    drawn, tail = drawn[np.isfinite(drawn)], (1 - level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail]) if len(drawn) else (np.nan, np.nan)
    return float(low), float(high)


def estimate_mean(
    values: np.ndarray, group: np.ndarray, times: np.ndarray, level: float = 0.95
) -> Estimate:
    """The mean of ``values [n]`` of groups numbered by ``group [n]``, drawn ``times [count, G]``.

    Resamples in which no value is drawn are left out.
    """
    counted = times @ np.bincount(group, minlength=times.shape[1])
    sums = times @ np.bincount(group, values, times.shape[1])
    low, high = percentile_interval(sums[counted > 0] / counted[counted > 0], level)
    return Estimate(float(np.mean(values)) if len(values) else np.nan, low, high, len(values))
