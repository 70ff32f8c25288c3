"""Which process this is, what falls to it, where its model is, and what fits in memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sally_anne.core import processes as module
from sally_anne.core.errors import OutOfMemoryError, ProcessError
from sally_anne.core.processes import ALONE, Processes, fitting, here, rows_that_fit, within_memory

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


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = ("MASTER_ADDR", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    for name in (*launcher, "ACCELERATE_USE_CPU"):
        monkeypatch.delenv(name, raising=False)


def launched(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Processes:
    for name, value in {"MASTER_ADDR": "localhost", **variables}.items():
        monkeypatch.setenv(name, value)
    return here()


def test_alone_without_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    assert here() == ALONE == Processes(0, 1)
    # A job scheduler may number its tasks without starting one run of them.
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert here() == ALONE
    ALONE.wait()
    assert not torch.distributed.is_initialized()


def test_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        found = launched(patch, RANK="5", WORLD_SIZE="8", LOCAL_RANK="1", LOCAL_WORLD_SIZE="4")
        assert found == Processes(rank=5, count=8, local_rank=1, local_world_size=4)
    # accelerate on CPUs starts processes by MPI alone.
    with pytest.warns(UserWarning, match="torchrun"):
        assert launched(monkeypatch, ACCELERATE_USE_CPU="True") == ALONE


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2, WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "RANK=0, WORLD_SIZE=two"),
    ],
)
def test_what_cannot_be_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    with pytest.raises(ProcessError, match=message):
        launched(monkeypatch, **variables)


@given(st.lists(st.integers()), st.integers(1, 9))
def test_each_piece_falls_to_one_process(pieces: list[int], count: int) -> None:
    shares = [Processes(rank, count).share(pieces) for rank in range(count)]
    assert sorted(piece for share in shares for piece in share) == sorted(pieces)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert Processes().share(pieces) == pieces


def test_each_process_takes_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert [Processes(n, 8, n % 4, 4).device_map(None) for n in range(8)] == [
        f"cuda:{n % 4}" for n in range(8)
    ]
    assert Processes(4, 8, 4, 8).device_map(None) == "cuda:0"  # more processes than GPUs
    assert Processes(1, 2, 1, 2).device_map("cuda:3") == "cuda:3"
    assert ALONE.device_map(None) is None
    assert ALONE.device_map("auto") == "auto"
    with pytest.raises(ProcessError, match="--device-map auto"):
        Processes(1, 2, 1, 2).device_map("auto")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert Processes(1, 2, 1, 2).device_map(None) == "cpu"
    monkeypatch.delenv("ACCELERATE_USE_CPU")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert Processes(1, 2, 1, 2).device_map(None) is None


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
    assert 10**6 < module.free_memory(torch.device("cpu")) < 10**15
    monkeypatch.setattr(module, "free_memory", lambda device: free)
    assert rows_that_fit({torch.device("cpu"): size}, others, processes) == rows


def test_the_fullest_device_counts(monkeypatch) -> None:
    """A GPU is not shared by the processes of a machine, its main memory is."""
    free = {"cuda:0": 24 * GB, "cuda:1": 12 * GB, "cpu": 400 * GB}
    monkeypatch.setattr(module, "free_memory", lambda device: free[str(device)])
    sizes = {torch.device(name): GB for name in free}
    assert rows_that_fit(sizes, 0, Processes(0, 1, 0, 4)) == 8
    del sizes[torch.device("cuda:1")]
    assert rows_that_fit(sizes, 0, Processes(0, 1, 0, 4)) == 16
