"""Work done in processes of its own, a little ahead of its reader.

Drawing frames and the processor's own work are mostly Python: a thread would take turns with the
model for the interpreter, a process uses another core.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from itertools import islice
from typing import Any, TypeVar

import torch

from sally_anne.core.errors import ProbingError
from sally_anne.core.processes import exit_with_parent

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_work: Callable[[Any], Any]
# From malloc.h: freed memory above this size goes back to the system, and larger pieces always do.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 1 << 30


def prefetch(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], workers: int = 1
) -> Generator[Result]:
    """Do ``work`` on each piece in forked processes, ``workers`` pieces ahead of the reader.

    Results come in the order of the pieces; what ``work`` raises is raised in the place of its own.

    Args:
        work: touches no accelerator. What it returns is sent between processes: arrays rather than
            tensors, which would go through shared memory, of which containers have little.
        pieces: what is worked on, in order.
        workers: processes, of one thread each.

    Raises:
        ProbingError: a process was killed.
    """
    if not pieces:
        return
    threads = torch.get_num_threads()
    # Leave the workers their cores: torch's threads wait for each other, and lose far more.
    torch.set_num_threads(max(1, threads - workers))
    try:
        with _pool(work, workers) as pool:
            submitted = (_submit(pool, piece) for piece in pieces)
            waiting = deque(islice(submitted, workers))
            while waiting:
                waiting.extend(islice(submitted, 1))
                yield waiting.popleft().result()
    except BrokenExecutor as error:
        raise ProbingError(
            "a process that was working on the next frames was killed, perhaps for want of "
            "memory; the same command goes on where it stopped"
        ) from error
    finally:
        torch.set_num_threads(threads)


def _submit(pool: Executor, piece: Any) -> Future[Any]:
    """A pool whose worker was killed takes no work; what was done before is still to be read."""
    try:
        return pool.submit(_call, piece)
    except BrokenExecutor as error:
        refused: Future[Any] = Future()
        refused.set_exception(error)
        return refused


def _pool(work: Callable[[Any], Any], workers: int) -> Executor:
    if sys.platform != "linux":
        # Elsewhere a process cannot be forked safely, or at all.
        return ThreadPoolExecutor(workers, initializer=_keep, initargs=(work,))
    fork = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(workers, fork, initializer=_begin, initargs=(work,))


def _keep(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work


def _call(piece: Any) -> Any:
    return _work(piece)


def _begin(work: Callable[[Any], Any]) -> None:
    """Set a forked process up: it leaves interrupts to its parent and ends with it."""
    _keep(work)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_with_parent()
    # Threads do not survive a fork, and the pools of these two libraries would wait for theirs.
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Batches need the same memory again and again; fetching it anew each time took a third of the
    # time on a virtual machine. Other C libraries than glibc may have no such setting.
    with contextlib.suppress(AttributeError):
        for setting in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(setting, _KEPT_BYTES)
