"""Batch sizes that are found by trying, rows that follow from memory, and its end."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sally_anne.core.errors import OutOfMemoryError
from sally_anne.core.processes import ALONE, Processes
from sally_anne.hooks import batch_size
from sally_anne.hooks.batch_size import fitting, rows_that_fit, within_memory

CPU_FULL = (
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 800 bytes. Error code 12 (Cannot allocate memory)"
)
FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    torch.OutOfMemoryError("full"),
    RuntimeError("MPS backend out of memory. Tried"),
    RuntimeError(CPU_FULL),
    MemoryError(),
]


def off_the_cpu(trial) -> int:
    with torch.device("meta"):
        return fitting(nn.Linear(2, 2), trial, 5, ALONE)


def needs_memory(room: int, tried: list[int]):
    """A trial that runs out of memory above ``room`` inputs."""

    def trial(size: int) -> None:
        tried.append(size)
        if size > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    return trial


@pytest.mark.parametrize(("room", "found"), [(1000, 64), (64, 64), (63, 32), (9, 8), (1, 1)])
def test_the_largest_half_that_fits_is_taken(room: int, found: int) -> None:
    tried: list[int] = []
    assert off_the_cpu(needs_memory(room, tried)) == found
    assert tried == [64 >> i for i in range(len(tried))]
    assert tried[-1] == found


def test_not_even_one_input_fits() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        off_the_cpu(needs_memory(0, []))


def test_other_errors_are_not_taken_for_want_of_memory() -> None:
    tried: list[int] = []

    def broken(size: int) -> None:
        tried.append(size)
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        off_the_cpu(broken)
    assert tried == [64]


def test_a_cpu_uses_its_fixed_size_and_tries_nothing() -> None:
    model = nn.Linear(2, 2)
    assert fitting(model, lambda size: pytest.fail("tried"), 8, ALONE) == 8


@pytest.mark.parametrize("error", FULL, ids=repr)
def test_the_end_of_memory_is_told_with_what_to_change(error: Exception) -> None:
    @within_memory("use a smaller --batch-size")
    def work() -> None:
        raise error

    with pytest.raises(OutOfMemoryError) as caught:
        work()
    assert str(caught.value).startswith(
        "out of memory: use a smaller --batch-size; what was computed before is kept: the same "
        "command goes on with it ("
    )
    assert "\n" not in str(caught.value) and caught.value.__cause__ is error


@pytest.mark.parametrize("error", [RuntimeError("shapes do not fit"), ValueError("no"), OSError()])
def test_other_errors_are_left_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, within_memory("use a smaller --batch-size"):
        raise error
    assert caught.value is error


GB = 10**9


@pytest.mark.parametrize(
    ("free", "size", "others", "processes", "rows"),
    [
        (100 * GB, 10**6, 8, ALONE, 64),
        (72 * GB, GB, 0, ALONE, 32),  # 54 rows would fit
        (72 * GB, GB, 40, ALONE, 8),  # 14 beside the others
        (72 * GB, GB, 8, Processes(0, 1, 0, 3), 8),  # a third of the machine
        (GB, GB, 8, ALONE, 1),  # never less than one
    ],
)
def test_rows_follow_from_what_is_free(
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    size: int,
    others: int,
    processes: Processes,
    rows: int,
) -> None:
    monkeypatch.setattr(batch_size, "free_memory", lambda device: free)
    assert rows_that_fit({torch.device("cpu"): size}, others, processes) == rows


def test_the_fullest_device_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is not shared by the processes of a machine, its main memory is."""
    free = {"cuda:0": 24 * GB, "cuda:1": 12 * GB, "cpu": 400 * GB}
    monkeypatch.setattr(batch_size, "free_memory", lambda device: free[str(device)])
    sizes = {torch.device(name): GB for name in free}
    assert rows_that_fit(sizes, 0, Processes(0, 1, 0, 4)) == 8
    del sizes[torch.device("cuda:1")]
    assert rows_that_fit(sizes, 0, Processes(0, 1, 0, 4)) == 16


def test_the_memory_of_this_machine_is_known() -> None:
    assert 10**6 < batch_size.free_memory(torch.device("cpu")) < 10**15
