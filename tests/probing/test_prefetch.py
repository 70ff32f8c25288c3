"""Work in another process, one piece ahead of the reader."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch

from sally_anne.core.errors import ProbingError
from sally_anne.probing.extraction import prefetch

linux = pytest.mark.skipif(sys.platform != "linux", reason="a thread elsewhere")


@linux
def test_other_processes_do_the_work_and_end() -> None:
    together = multiprocessing.get_context("fork").Barrier(2)

    def where(_: int) -> int:
        together.wait(20)
        return os.getpid()

    threads = torch.get_num_threads()
    with closing(prefetch(where, [0, 1], workers=2)) as results:
        pids = {next(results)}
        assert torch.get_num_threads() == max(1, threads - 2)
        pids |= set(results)
    assert len(pids) == 2 and os.getpid() not in pids
    assert torch.get_num_threads() == threads
    assert not any(_runs(pid) for pid in pids)


def test_an_error_reaches_the_reader_in_its_place() -> None:
    def work(n: int) -> int:
        if n == 1:
            raise ProbingError("frame 1 is missing")
        return n

    threads = torch.get_num_threads()
    with closing(prefetch(work, [0, 1, 2])) as results:
        assert next(results) == 0
        with pytest.raises(ProbingError, match="^frame 1 is missing$"):
            next(results)
    assert torch.get_num_threads() == threads


@linux
def test_a_killed_worker_is_noticed() -> None:
    with (
        closing(prefetch(lambda _: os.kill(os.getpid(), signal.SIGKILL), [0])) as results,
        pytest.raises(ProbingError, match="was killed, .* the same command goes on"),
    ):
        next(results)


@linux
@pytest.mark.integration
def test_workers_end_with_a_killed_parent() -> None:
    script = """
import os, time
from sally_anne.probing.extraction import prefetch
results = prefetch(lambda _: os.getpid(), [0])
print(next(results), flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    _wait(lambda: not _runs(worker))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _wait(until: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not until():
        assert time.monotonic() < limit
        time.sleep(0.01)
