"""Batches that other processes of a run add to its store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from sally_anne.core.errors import StoreDamagedError, StoreError, StoreMismatchError
from sally_anne.hooks.store import ActivationStore, BatchWriter, StoreMeta

META = StoreMeta("head_out", "last_prompt", "synthetic", "0", "p", "q", "float32", 3, 2, 4)
ITEMS = pd.DataFrame({"item_id": [f"item-{i}" for i in range(10)], "y_p": [0, 1] * 5})
BATCHES = [[9, 0, 1], [2, 3], [4, 8], [5, 6, 7]]


def activations(batch: int) -> torch.Tensor:
    return torch.stack(
        [
            torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(row))
            for row in BATCHES[batch]
        ]
    )


def begin(path: Path) -> ActivationStore:
    return ActivationStore.open_or_create(path, META, ITEMS, BATCHES)


def join(path: Path) -> BatchWriter:
    return BatchWriter.join(path, META, ITEMS, BATCHES)


def contents(path: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in path.rglob("*")
    }


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes | None]:
    """The files of a store that one process wrote."""
    with begin(tmp_path / "whole") as store:
        for b in store.pending():
            store.write_batch(b, activations(b))
        store.finish()
    return contents(tmp_path / "whole")


@pytest.mark.parametrize("own", [[], [2], [0, 3], [1, 2, 3]])
def test_the_same_bytes_whoever_wrote_a_batch(tmp_path: Path, whole, own: list[int]) -> None:
    path = tmp_path / "store"
    with begin(path) as store:
        with join(path) as other:
            assert other.pending() == store.pending() == [0, 1, 2, 3]
            for b in sorted(set(range(4)) - set(own)):
                other.write_batch(b, activations(b))
            assert other.pending() == own
        for b in own:
            store.write_batch(b, activations(b))
        store.finish()
    assert contents(path) == whole


def test_what_a_killed_writer_finished_is_kept(tmp_path: Path, whole) -> None:
    path = tmp_path / "store"
    with begin(path), join(path) as other:
        other.write_batch(1, activations(1))
        other.write_batch(0, activations(0))
        # As it dies in the middle of a file.
        (path / ".shard-00003.safetensors.tmp").write_bytes(b"half")
    with begin(path) as store:
        assert store.pending() == [2, 3]
        with join(path) as other:
            assert other.pending() == [2, 3]
            with pytest.raises(StoreError, match="batch 1 is stored already"):
                other.write_batch(1, activations(1))
            other.write_batch(3, activations(3))
            other.write_batch(2, activations(2))
            with pytest.raises(StoreError, match="batch 2 is stored already"):
                other.write_batch(2, activations(2))
        store.finish()
    assert contents(path) == whole
    with join(path) as other:
        assert other.pending() == []


def test_only_the_same_run_is_joined(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with pytest.raises(StoreError, match="no activation store"):
        join(path)
    with begin(path):
        for meta, items, batches, message in (
            (replace(META, site="resid"), ITEMS, BATCHES, "site is 'head_out'"),
            (META, ITEMS.assign(y_p=1), BATCHES, "column 'y_p'"),
            (META, ITEMS, BATCHES[::-1], "batch 0 of the plan"),
        ):
            with pytest.raises(StoreMismatchError, match=message):
                BatchWriter.join(path, meta, items, batches)


def test_a_batch_must_fit(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with begin(path), join(path) as other:
        with pytest.raises(StoreError, match="no batch 4"):
            other.write_batch(4, activations(0))
        with pytest.raises(StoreError, match="has shape"):
            other.write_batch(1, activations(0))
        with pytest.raises(StoreError, match="float64"):
            other.write_batch(0, activations(0).double())
        other.close()
        with pytest.raises(StoreError, match="is closed"):
            other.write_batch(0, activations(0))
    assert not list(path.glob("shard-*"))


def test_a_new_run_waits_for_those_of_the_last(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with begin(path):
        other, third = join(path), join(path)
    other.write_batch(0, activations(0))
    other.close()
    with pytest.raises(StoreError, match="a process of an earlier run is still writing"):
        begin(path)
    third.close()
    with begin(path) as store:
        assert store.pending() == [1, 2, 3]


def test_an_altered_batch_of_another_process_is_noticed(tmp_path: Path, whole) -> None:
    path = tmp_path / "store"
    with begin(path) as store:
        with join(path) as other:
            for b in other.pending():
                other.write_batch(b, activations(b))
        damaged = path / "shard-00001.safetensors"
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x7f")
        with pytest.raises(StoreDamagedError, match="shard-00001.*extraction again"):
            store.finish()
    with pytest.warns(UserWarning, match="batch 1 will be computed again"):
        store = begin(path)
    with store:
        assert store.pending() == [1]
        store.write_batch(1, activations(1))
        store.finish()
    assert contents(path) == whole
