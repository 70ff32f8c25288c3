"""Peaks in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from bench.errors import PerfError
from bench.memory import Peak, in_fresh_process

pytestmark = pytest.mark.integration

MIB = 2**20
linux = pytest.mark.skipif(sys.platform != "linux", reason="peaks are set back on Linux alone")


def filled(before: int, during: int) -> int:
    """Hold ``before`` MiB and free it, then hold ``during`` MiB in a block."""
    kept = np.ones(before * MIB, dtype=np.uint8)
    del kept
    with Peak() as peak:
        array = np.ones(during * MIB, dtype=np.uint8)
        del array
    return peak.bytes


def filled_by_a_child(size: int) -> tuple[int, int]:
    code = f"import time; x = b'1' * ({size} << 20); time.sleep(1.0)"
    with Peak() as peak:
        subprocess.run([sys.executable, "-c", code], check=True)
    return peak.bytes, peak.processes


def broken() -> None:
    raise ValueError("out of order")


def fresh(name: str, *arguments: int) -> Any:
    """A function of this file in a process of its own.

    By its path: in some environments another package is called tests.
    """
    code = f"__import__('runpy').run_path({__file__!r})[{name!r}](*{arguments!r})"
    return in_fresh_process(eval, code)


@linux
def test_a_peak_is_what_the_block_holds() -> None:
    found = fresh("filled", 200, 60)
    assert 59 * MIB < found < 70 * MIB


@linux
def test_processes_that_the_block_starts_count() -> None:
    peak, processes = fresh("filled_by_a_child", 80)
    assert processes == 2
    assert peak > 75 * MIB


def test_an_error_comes_back_with_its_message() -> None:
    with pytest.raises(PerfError, match="out of order"):
        fresh("broken")
