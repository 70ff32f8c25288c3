"""Requests are gathered, kept apart by kind, and fail each for itself."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

pytest.importorskip("inspect_ai")

from sally_anne.harness.adapters.inspect_ai.batches import Batches  # noqa: E402

pytestmark = pytest.mark.plugins


class Work:
    """Doubles numbers, and notes each batch."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.batches: list[list[int]] = []
        self.threads: set[int] = set()

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds)
        if 13 in numbers:
            raise ValueError("thirteen")
        return [2 * number for number in numbers]


def gathered(work: Work, numbers: Sequence[int], most: int, kinds: int = 1) -> list[object]:
    async def ask_all() -> list[object]:
        batches: Batches[int, int] = Batches(work, lambda number: number % kinds)
        asked = (batches.ask(number, most) for number in numbers)
        return list(await asyncio.gather(*asked, return_exceptions=True))

    return asyncio.run(ask_all())


def test_what_comes_at_once_goes_together() -> None:
    work = Work()
    assert gathered(work, range(10), 4) == [2 * number for number in range(10)]
    assert work.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_no_batch_is_larger_than_it_may_be() -> None:
    work = Work()
    gathered(work, range(5), 1)
    assert work.batches == [[number] for number in range(5)]


def test_kinds_are_kept_apart() -> None:
    work = Work()
    assert gathered(work, range(6), 16, kinds=2) == [0, 2, 4, 6, 8, 10]
    assert work.batches == [[0, 2, 4], [1, 3, 5]]


def test_one_bad_request_fails_alone() -> None:
    work = Work()
    found = gathered(work, [1, 13, 3], 16)
    assert found[0] == 2 and found[2] == 6
    assert isinstance(found[1], ValueError) and str(found[1]) == "thirteen"


def test_the_event_loop_goes_on() -> None:
    """Work is done in a thread: the loop ticks in the meantime."""
    work, ticks = Work(seconds=0.5), []

    async def both() -> None:
        batches: Batches[int, int] = Batches(work, lambda number: 0)

        async def tick() -> None:
            while True:
                ticks.append(time.monotonic())
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        assert await batches.ask(1, 1) == 2
        ticking.cancel()

    asyncio.run(both())
    assert len(ticks) > 10
    assert threading.get_ident() not in work.threads


def test_a_cancelled_request_leaves_nothing_behind() -> None:
    work = Work(seconds=0.2)

    async def cancelled() -> list[int]:
        batches: Batches[int, int] = Batches(work, lambda number: number)
        first = asyncio.create_task(batches.ask(1, 16))
        second = asyncio.create_task(batches.ask(2, 16))
        third = asyncio.create_task(batches.ask(3, 16))
        await asyncio.sleep(0.1)
        second.cancel()
        return [await first, await third]

    assert asyncio.run(cancelled()) == [2, 6]
    assert work.batches == [[1], [3]]


def test_serves_one_event_loop_after_another() -> None:
    work = Work()
    batches: Batches[int, int] = Batches(work, lambda number: 0)
    assert [asyncio.run(batches.ask(number, 4)) for number in (1, 2)] == [2, 4]
