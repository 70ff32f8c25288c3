"""Activations on disk: the same bytes whatever happened, and damage that is noticed."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import FolderError, StoreDamagedError, StoreError
from sally_anne.core.store import ActivationStore, StoreMeta
from tests.core.conftest import contents

META = StoreMeta(
    site="head_out",
    position="last_prompt",
    model_id="tiny",
    model_revision="abc",
    processor_hash="p",
    prompt_hash="q",
    dtype="float32",
    n_layers=3,
    n_heads=2,
    head_dim=4,
    extra={"contrast": "paper"},
)
BATCHES = [[0, 5], [3, 1], [2], [6, 4]]
FILES = ["index.json", "items.parquet", *(f"shard-0000{i}.safetensors" for i in range(4))]


def make_items(n: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "item_id": [f"story-{i}" for i in range(n)],
            "y_p": [i % 2 for i in range(n)],
            "score": [i / 3 if i % 3 else None for i in range(n)],
            "split": pd.Categorical(["train" if i % 2 else "test" for i in range(n)]),
        }
    )


def make_values(n: int, meta: StoreMeta = META) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    values = torch.randn(n, meta.n_layers, meta.n_heads, meta.head_dim, generator=generator)
    return values.to(getattr(torch, meta.dtype))


ITEMS, VALUES = make_items(7), make_values(7)


PLAN = {"meta": META, "items": ITEMS, "batches": BATCHES}
begin = partial(ActivationStore.open_or_create, **PLAN)
join = partial(ActivationStore.join, **PLAN)


def fill(path: Path, batches=None) -> None:
    with begin(path) as store:
        for b in store.pending() if batches is None else batches:
            store.write_batch(b, VALUES[BATCHES[b]])
        if batches is None:
            store.finish()


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "flip":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "truncate":
        path.write_bytes(data[: len(data) // 2])
    else:
        path.unlink()


@pytest.fixture(scope="module", autouse=True)
def unsynced():
    """No fsync: it is slow, and matters in a power cut alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def full(tmp_path) -> Path:
    fill(tmp_path / "full")
    return tmp_path / "full"


@st.composite
def plans(draw):
    n = draw(st.integers(1, 12))
    order = draw(st.permutations(range(n)))
    edges = sorted(draw(st.sets(st.integers(1, n), max_size=5)) | {0, n})
    batches = [list(order[a:b]) for a, b in zip(edges, edges[1:], strict=False)]
    return n, batches, draw(st.permutations(range(len(batches))))


@settings(deadline=None, max_examples=25)
@given(
    plan=plans(),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5)),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    stop=st.integers(0, 12),
)
def test_roundtrip(tmp_path_factory, plan, shape, dtype, stop):
    """Whatever the plan, the order of writing and the interruption: same bytes, same numbers."""
    n, batches, order = plan
    sizes = dict(zip(("n_layers", "n_heads", "head_dim"), shape, strict=True))
    meta = replace(META, dtype=dtype, extra={}, **sizes)
    values, items = make_values(n, meta), make_items(n)
    folder = tmp_path_factory.mktemp("store")
    same = {"meta": meta, "items": items, "batches": batches}

    for part in (order[:stop], order[stop:]):
        with begin(folder / "a", **same) as store:
            for b in part:
                store.write_batch(b, values[batches[b]])
            if not store.pending():
                store.finish()
    with begin(folder / "b", **same) as store:
        assert store.pending() == list(range(len(batches)))
        for b in store.pending():
            store.write_batch(b, values[batches[b]])
        store.finish()

    assert contents(folder / "a") == contents(folder / "b")
    store = ActivationStore.open(folder / "a")
    store.verify()
    assert store.complete and store.pending() == [] and store.meta == meta
    pd.testing.assert_frame_equal(store.items, items)
    assert store.read().dtype == values.dtype
    assert torch.equal(store.read(), values)
    some = list(range(meta.n_layers))[::-1][:2]
    assert torch.equal(store.read(layers=some), values[:, some])


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"meta": replace(META, site="resid")}, "site is 'head_out' in the store, 'resid'"),
        ({"meta": replace(META, extra={"contrast": "matched"})}, "contrast is 'paper'"),
        ({"items": ITEMS.assign(y_p=1)}, "other items"),
        ({"batches": BATCHES[::-1]}, "other batches"),
    ],
)
def test_another_run_is_refused(full, changes, match):
    before = contents(full)
    for opened in (begin, join):
        with pytest.raises(StoreError, match=match):
            opened(full, **changes)
    assert contents(full) == before


@pytest.mark.parametrize("name", FILES[:3])
@pytest.mark.parametrize("how", ["flip", "truncate", "delete"])
def test_damage_is_noticed_and_named(full, name, how):
    damage(full / name, how)
    with pytest.raises(StoreError, match=name):
        ActivationStore.open(full).read()
    if not (how == "delete" and name == "index.json"):
        with pytest.raises(StoreDamagedError, match=name):
            ActivationStore.open(full).verify()


@pytest.mark.parametrize(
    ("how", "batches"), [("flip", [1, 3]), ("truncate", [1, 3]), ("delete", None)]
)
def test_a_damaged_batch_is_computed_again(tmp_path, full, how, batches):
    fill(tmp_path / "s", batches)
    damage(tmp_path / "s" / FILES[3], how)
    with pytest.warns(UserWarning, match="batch 1 will be computed again"):
        fill(tmp_path / "s")
    assert contents(tmp_path / "s") == contents(full)


def test_the_shard_of_another_batch_or_run_is_noticed(full, tmp_path):
    with begin(tmp_path / "s") as store:
        for b in store.pending():
            store.write_batch(b, VALUES[BATCHES[b]] + 1)
        store.finish()
    for other in (full / FILES[2], tmp_path / "s" / FILES[5]):
        shutil.copy(other, full / FILES[5])
        with pytest.raises(StoreDamagedError, match=FILES[5]):
            ActivationStore.open(full).read([0])


class Died(BaseException):
    """Stands for the death of the process: no handler of ours may run."""


def test_death_at_every_step(tmp_path, full, monkeypatch):
    """Die before the k-th change of the disk, for every k; resuming gives the same bytes."""
    countdown = [0]

    def fuse(real):
        def call(*args, **kwargs):
            countdown[0] -= 1
            if countdown[0] == 0:
                raise Died
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(os, "replace", fuse(os.replace))
    monkeypatch.setattr(os, "fsync", fuse(os.fsync))
    monkeypatch.setattr(Path, "unlink", fuse(Path.unlink))
    deaths = 0
    for k in range(1, 200):
        folder = tmp_path / f"died-{k}"
        countdown[0] = k
        try:
            fill(folder)
            break
        except Died:
            deaths += 1
        countdown[0] = 1_000_000
        fill(folder)
        assert contents(folder) == contents(full), f"death at step {k}"
    assert deaths > 20
    assert countdown[0] > 0


def full_disk(monkeypatch, victim: str) -> list[bool]:
    """Make writing any file whose name holds `victim` fail half way, while the switch is on."""
    on = [True]
    real = builtins.open

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def write(self, data):
            self.file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    def opened(path, mode="r", *args, **kwargs):
        file = real(path, mode, *args, **kwargs)
        return Full(file) if on[0] and "w" in mode and victim in str(path) else file

    monkeypatch.setattr(builtins, "open", opened)
    return on


@pytest.mark.parametrize("victim", ["shard-00001", "index.json"])
def test_a_full_disk_keeps_what_was_stored(tmp_path, full, monkeypatch, victim):
    with begin(tmp_path / "s") as store:
        on = full_disk(monkeypatch, victim)
        store.write_batch(0, VALUES[BATCHES[0]])
        with pytest.raises(StoreError, match=rf"{victim}.*needs [\d,]+ bytes"):
            for b in store.pending():
                store.write_batch(b, VALUES[BATCHES[b]])
            store.finish()
        assert not list((tmp_path / "s").rglob("*.tmp"))
        on[0] = False
    fill(tmp_path / "s")
    assert contents(tmp_path / "s") == contents(full)


def test_one_run_writes_at_a_time(tmp_path):
    with begin(tmp_path / "s"), pytest.raises(StoreError, match="another run is writing"):
        begin(tmp_path / "s")
    with pytest.raises(StoreError):
        begin(tmp_path / "s", meta=replace(META, site="resid"))
    begin(tmp_path / "s").__exit__()  # the failed opening released it


def test_what_a_killed_process_finished_is_kept(tmp_path, full):
    path = tmp_path / "s"
    with begin(path), join(path) as other:
        other.write_batch(1, VALUES[BATCHES[1]])
        (path / ".shard-00003.safetensors.tmp").write_bytes(b"half")
    with begin(path) as store, join(path) as other:
        assert store.pending() == other.pending() == [0, 2, 3]
        for b in other.pending():
            other.write_batch(b, VALUES[BATCHES[b]])
        with pytest.raises(StoreError, match="finished by the process that opened it"):
            other.finish()
        damage(path / FILES[4], "flip")
        with pytest.raises(StoreDamagedError, match=FILES[4]):
            store.finish()
    with pytest.warns(UserWarning, match="batch 2 will be computed again"):
        fill(path)
    assert contents(path) == contents(full)


def test_writes_and_reads_that_do_not_fit(tmp_path, full):
    with pytest.raises(StoreError, match="no activation store"):
        join(tmp_path / "s")
    with begin(tmp_path / "s") as store, join(tmp_path / "s") as other:
        store.write_batch(2, VALUES[BATCHES[2]])
        for b, values in ((4, VALUES[:2]), (0, VALUES[:1]), (0, VALUES[:2].double())):
            with pytest.raises(StoreError, match=f"batch {b}"):
                other.write_batch(b, values)
        with pytest.raises(StoreError, match="batch 2 is not pending"):
            store.write_batch(2, VALUES[BATCHES[2]])
        with pytest.raises(StoreError, match="3 of 4 batches are pending"):
            store.finish()
        with pytest.raises(StoreError, match="not complete"):
            store.read()
    with pytest.raises(StoreError, match="closed"):
        store.write_batch(0, VALUES[BATCHES[0]])
    with pytest.raises(StoreError, match="reading"):
        ActivationStore.open(full).write_batch(0, VALUES[BATCHES[0]])
    with pytest.raises(StoreError, match="layers 0 to 2"):
        ActivationStore.open(full).read([3])


def test_another_folder_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(FolderError, match="notes.txt"):
            begin(folder)
    assert contents(tmp_path).keys() == {"notes.txt"}
