"""Batch sizes that are found by trying, rows that follow from memory, and its end."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sally_anne.core.errors import OutOfMemoryError
from sally_anne.core.processes import ALONE, Processes
from sally_anne.hooks import batch_size
from sally_anne.hooks.batch_size import fitting, rows_that_fit, within_memory

GB = 10**9
CPU_FULL = (
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 800 bytes. Error code 12 (Cannot allocate memory)"
)
FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("MPS backend out of memory. Tried"),
    RuntimeError(CPU_FULL),
    MemoryError(),
]


@pytest.mark.parametrize(("room", "size"), [(1000, 64), (63, 32), (9, 8), (1, 1)])
def test_the_largest_half_that_fits_is_taken(room: int, size: int) -> None:
    tried: list[int] = []

    def trial(count: int) -> None:
        tried.append(count)
        if count > room:
            raise FULL[0]

    model = nn.Linear(2, 2, device="meta")
    assert fitting(model, trial, 5, ALONE) == size
    assert tried == [64 >> i for i in range(len(tried))] and tried[-1] == size
    room = 0
    with pytest.raises(torch.OutOfMemoryError):
        fitting(model, trial, 5, ALONE)


@pytest.mark.parametrize("error", FULL, ids=repr)
def test_the_end_of_memory_is_named_with_what_to_change(error: Exception) -> None:
    @within_memory("use a smaller --batch-size")
    def work() -> None:
        raise error

    with pytest.raises(OutOfMemoryError, match="use a smaller --batch-size") as caught:
        work()
    assert "\n" not in str(caught.value) and caught.value.__cause__ is error
    for other in (RuntimeError("shapes do not fit"), ValueError("no"), OSError()):
        with pytest.raises(type(other)) as caught, within_memory("use a smaller --batch-size"):
            raise other
        assert caught.value is other


@pytest.mark.parametrize(
    ("free", "size", "others", "processes", "rows"),
    [
        (100 * GB, 10**6, 8, ALONE, 64),
        (72 * GB, GB, 0, ALONE, 32),  # 54 rows would fit
        (72 * GB, GB, 40, ALONE, 8),  # 14 with the others
        (72 * GB, GB, 8, Processes(0, 1, 0, 3), 8),  # a third of the machine
        (GB, GB, 8, ALONE, 1),  # never less than one
    ],
)
def test_rows_follow_from_what_is_free(
    monkeypatch, free: int, size: int, others: int, processes: Processes, rows: int
) -> None:
    assert 10**6 < batch_size.free_memory(torch.device("cpu")) < 10**15
    monkeypatch.setattr(batch_size, "free_memory", lambda device: free)
    assert rows_that_fit({torch.device("cpu"): size}, others, processes) == rows


def test_the_fullest_device_counts(monkeypatch) -> None:
    """A GPU is not shared by the processes of a machine, its main memory is."""
    free = {"cuda:0": 24 * GB, "cuda:1": 12 * GB, "cpu": 400 * GB}
    monkeypatch.setattr(batch_size, "free_memory", lambda device: free[str(device)])
    sizes = {torch.device(name): GB for name in free}
    assert rows_that_fit(sizes, 0, Processes(0, 1, 0, 4)) == 8
    del sizes[torch.device("cuda:1")]
    assert rows_that_fit(sizes, 0, Processes(0, 1, 0, 4)) == 16
