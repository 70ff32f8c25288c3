"""Seconds and ratios."""

from __future__ import annotations

import time

import pytest

from bench.clock import Clock, median_ratio
from bench.extraction import rotated
from bench.workload import spread


def test_preparation_is_a_part_of_the_whole() -> None:
    clock = Clock()
    for _ in range(2):
        with clock.preparing():
            time.sleep(0.02)
        time.sleep(0.01)
    assert 0.04 <= clock.preparation < clock.seconds()
    assert clock.seconds() >= 0.06


def test_the_median_is_over_turns() -> None:
    # Medians of each are 2 and 4; turn by turn it is 1, 0.25 and 0.5.
    assert median_ratio([2.0, 1.0, 8.0], [2.0, 4.0, 16.0]) == pytest.approx(0.5)


def test_each_begins_once_and_none_is_lost() -> None:
    turns = [rotated("abc", i) for i in range(4)]
    assert [turn[0] for turn in turns] == ["a", "b", "c", "a"]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)


@pytest.mark.parametrize(("count", "wanted"), [(1, [0]), (3, [0, 3, 6]), (20, list(range(10)))])
def test_a_part_is_spread_over_all(count: int, wanted: list[int]) -> None:
    assert spread(range(10), count) == wanted
