"""Which process of a run this is, what falls to it, and where it loads its model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.core.processes import ALONE, ProcessError, Processes, here


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "ACCELERATE_USE_CPU"):
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
    with monkeypatch.context() as patch:
        found = launched(patch, OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")
        assert found == Processes(rank=1, count=2, local_rank=1, local_world_size=2)
    # accelerate on CPUs starts processes by MPI alone.
    with pytest.warns(UserWarning, match="torchrun"):
        assert launched(monkeypatch, ACCELERATE_USE_CPU="True") == ALONE


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2, WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE is no number: 'two'"),
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
