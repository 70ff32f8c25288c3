"""Processes of a run as threads of one process, which meet at a barrier."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch

from sally_anne.core.processes import ProcessError, Processes

Result = TypeVar("Result")


@dataclass(frozen=True)
class Thread(Processes):
    """One of them."""

    barrier: threading.Barrier | None = None

    def wait(self) -> None:
        assert self.barrier is not None
        try:
            self.barrier.wait(60)
        except threading.BrokenBarrierError as error:
            raise ProcessError("another has ended") from error


class Killed(Exception):
    """What ends a thread that is to die."""


def together(count: int, work: Callable[[Processes], Result]) -> list[Result | Exception]:
    """What each of them returns or raises; when one dies, none waits for it."""
    barrier = threading.Barrier(count)

    def one(rank: int) -> Result | Exception:
        torch.set_num_threads(1)
        try:
            return work(Thread(rank, count, rank, count, barrier))
        except Exception as error:
            barrier.abort()
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))
