from __future__ import annotations

import builtins
import errno
import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import StoreDamagedError, StoreError, StoreMismatchError
from sally_anne.hooks.store import ActivationStore, StoreMeta

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


def begin(path: Path, **changes) -> ActivationStore:
    given = {"meta": META, "items": ITEMS, "batches": BATCHES} | changes
    return ActivationStore.open_or_create(path, **given)


def fill(path: Path, batches=None) -> None:
    with begin(path) as store:
        for b in store.pending() if batches is None else batches:
            store.write_batch(b, VALUES[BATCHES[b]])
        if batches is None:
            store.finish()


def contents(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def flip_last_byte(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.fixture(scope="module", autouse=True)
def synced():
    """Only count calls of fsync: it is slow, and matters in a power cut alone."""
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", calls.append)
        yield calls


@pytest.fixture
def full(tmp_path) -> Path:
    fill(tmp_path / "full")
    return tmp_path / "full"


@st.composite
def plans(draw):
    n = draw(st.integers(1, 12))
    order = draw(st.permutations(range(n)))
    cuts = draw(st.sets(st.integers(1, n), max_size=5)) | {0, n}
    edges = sorted(cuts)
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
    meta = replace(
        META, n_layers=shape[0], n_heads=shape[1], head_dim=shape[2], dtype=dtype, extra={}
    )
    values, items = make_values(n, meta), make_items(n)
    folder = tmp_path_factory.mktemp("store")
    given_ = {"meta": meta, "items": items, "batches": batches}

    with begin(folder / "a", **given_) as store:
        assert store.pending() == list(range(len(batches)))
        for b in order[:stop]:
            store.write_batch(b, values[batches[b]])
    with begin(folder / "a", **given_) as store:
        assert store.pending() == sorted(order[stop:])
        for b in order[stop:]:
            store.write_batch(b, values[batches[b]])
        store.finish()
    with begin(folder / "b", **given_) as store:
        for b in store.pending():
            store.write_batch(b, values[batches[b]])
        store.finish()

    assert contents(folder / "a") == contents(folder / "b")
    store = ActivationStore.open(folder / "a")
    store.verify()
    assert store.complete and store.pending() == []
    assert store.meta == meta
    pd.testing.assert_frame_equal(store.items, items)
    assert store.read().dtype == values.dtype
    assert torch.equal(store.read(), values)
    some = list(range(meta.n_layers))[::-1][:2]
    assert torch.equal(store.read(layers=some), values[:, some])


def test_file_and_folder_are_synced(tmp_path, synced):
    with begin(tmp_path / "s") as store:
        before = len(synced)
        store.write_batch(0, VALUES[BATCHES[0]])
        assert len(synced) - before == 2


def test_files_of_a_complete_store(full):
    assert sorted(contents(full)) == [
        ".lock",
        "items.parquet",
        "manifest.json",
        *(f"shard-0000{i}.safetensors" for i in range(4)),
    ]


def test_read_loads_only_the_layers_asked_for(full, monkeypatch):
    import sally_anne.hooks.store.files as module

    keys = []

    class Spy:
        def __init__(self, *args, **kwargs):
            self.inner = real(*args, **kwargs)

        def __enter__(self):
            self.file = self.inner.__enter__()
            return self

        def __exit__(self, *error):
            return self.inner.__exit__(*error)

        def metadata(self):
            return self.file.metadata()

        def get_tensor(self, key):
            keys.append(key)
            return self.file.get_tensor(key)

    real = module.safe_open
    monkeypatch.setattr(module, "safe_open", Spy)
    assert torch.equal(ActivationStore.open(full).read([2]), VALUES[:, [2]])
    assert set(keys) == {"layer.02"}


def test_a_batch_is_on_disk_at_once(tmp_path):
    fill(tmp_path / "s", [1])
    assert (tmp_path / "s/shard-00001.safetensors").exists()
    assert ActivationStore.open(tmp_path / "s").pending() == [0, 2, 3]


def test_complete_store_opens_again_for_the_same_run(full):
    before = contents(full)
    with begin(full) as store:
        assert store.complete and store.pending() == []
        assert torch.equal(store.read(), VALUES)
        store.finish()
    assert contents(full) == before


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"meta": replace(META, model_revision="xyz")}, "model_revision is 'abc'.*'xyz'"),
        ({"meta": replace(META, site="resid")}, "site is 'head_out'.*'resid'"),
        ({"meta": replace(META, extra={"contrast": "matched"})}, "contrast.*'paper'.*'matched'"),
        ({"meta": replace(META, extra={})}, "contrast.*'paper'.*not set"),
        ({"meta": replace(META, extra={**META.extra, "order": "1"})}, "order.*not set.*'1'"),
        ({"items": ITEMS.assign(y_p=[0, 1, 0, 0, 0, 1, 0])}, r"item 3 \('story-3'\), column 'y_p'"),
        ({"items": ITEMS.drop(columns="score")}, "columns .*score"),
        (
            {"items": make_items(8), "batches": [*BATCHES, [7]]},
            "number of items is 7 in the store, 8 in this run",
        ),
        ({"batches": [[0, 5], [1, 3], [2], [6, 4]]}, r"batch 1 .*\[3, 1\].*\[1, 3\]"),
    ],
)
def test_mismatch_names_the_field_and_the_way_out(tmp_path, changes, match):
    fill(tmp_path / "s", [0])
    before = contents(tmp_path / "s")
    with pytest.raises(StoreMismatchError, match=match) as caught:
        begin(tmp_path / "s", **changes)
    assert "--out" in str(caught.value) and str(tmp_path / "s") in str(caught.value)
    assert contents(tmp_path / "s") == before


@pytest.mark.parametrize("name", ["manifest.json", "items.parquet", "shard-00002.safetensors"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_damage_is_noticed_and_named(full, name, damage):
    path, data = full / name, (full / name).read_bytes()
    chance = random.Random(name)
    places = [0, len(data) - 1, *(chance.randrange(len(data)) for _ in range(20))]
    if damage == "delete":
        variants = [None]
    elif damage == "truncate":
        variants = [data[:place] for place in places]
    else:
        variants = [bytes([*data[:p], data[p] ^ (1 << p % 8), *data[p + 1 :]]) for p in places]
    for variant in variants:
        if variant is None:
            path.unlink()
        else:
            path.write_bytes(variant)
        if name.startswith("shard"):
            with pytest.raises(StoreDamagedError, match=name):
                ActivationStore.open(full).read([0])
            with pytest.raises(StoreDamagedError, match=name):
                ActivationStore.open(full).verify()
        elif (name, damage) == ("manifest.json", "delete"):
            with pytest.raises(StoreError, match=name):
                ActivationStore.open(full)
        else:
            with pytest.raises(StoreDamagedError, match=name):
                ActivationStore.open(full)
            with pytest.raises(StoreDamagedError, match=name):
                begin(full)


def test_verify_looks_again_after_a_read(full):
    store = ActivationStore.open(full)
    store.read()
    path = full / "shard-00000.safetensors"
    flip_last_byte(path)
    with pytest.raises(StoreDamagedError, match="shard-00000"):
        store.verify()


def test_a_missing_shard_of_a_complete_store_is_computed_again(full):
    before = contents(full)
    (full / "shard-00001.safetensors").unlink()
    with pytest.warns(UserWarning, match="shard-00001.*batch 1 will be computed again"):
        store = begin(full)
    with store:
        assert store.pending() == [1]
        assert not ActivationStore.open(full).complete
        store.write_batch(1, VALUES[BATCHES[1]])
        store.finish()
    assert contents(full) == before


def test_the_shard_of_another_batch_or_run_is_noticed(full, tmp_path):
    with begin(tmp_path / "s") as store:
        for b in store.pending():
            store.write_batch(b, VALUES[BATCHES[b]] + 1)
        store.finish()
    name = "shard-00003.safetensors"
    for other in (full / "shard-00000.safetensors", tmp_path / "s" / name):
        shutil.copy(other, full / name)
        with pytest.raises(StoreDamagedError, match=name):
            ActivationStore.open(full).read([0])


def test_each_byte_is_hashed_once(tmp_path, monkeypatch):
    """Written and read in one run: as it is written. Opened: as it is read first."""
    import sally_anne.hooks.store.files as module

    checked = []
    check = module.check_shard
    monkeypatch.setattr(
        module, "check_shard", lambda folder, b: checked.append(b) or check(folder, b)
    )
    with begin(tmp_path / "s") as store:
        for b in store.pending():
            store.write_batch(b, VALUES[BATCHES[b]])
        store.finish()
        assert torch.equal(store.read(), VALUES)
    assert checked == []
    store = ActivationStore.open(tmp_path / "s")
    assert torch.equal(store.read([0]), VALUES[:, [0]])
    assert torch.equal(store.read(), VALUES)
    assert checked == [0, 1, 2, 3]


def test_a_damaged_batch_is_never_used(tmp_path, full):
    fill(tmp_path / "s", [3])
    path = tmp_path / "s/shard-00003.safetensors"
    data = path.read_bytes()
    for place in range(0, len(data), 5):
        path.write_bytes(bytes([*data[:place], data[place] ^ 1, *data[place + 1 :]]))
        with pytest.raises(StoreDamagedError, match=path.name):
            ActivationStore.open(tmp_path / "s").verify()
    with pytest.warns(UserWarning, match="batch 3 will be computed again"):
        store = begin(tmp_path / "s")
    with store:
        assert store.pending() == [0, 1, 2, 3]
        for b in store.pending():
            store.write_batch(b, VALUES[BATCHES[b]])
        store.finish()
    assert contents(tmp_path / "s") == contents(full)


class Died(BaseException):
    """Stands for the death of the process: no handler of ours may run."""


def test_death_at_every_step(tmp_path, full, monkeypatch):
    """Die before the k-th change of the disk, for every k; going on gives the same bytes."""
    steps = {"os.replace": os.replace, "os.fsync": os.fsync, "Path.unlink": Path.unlink}
    countdown = [0]

    def fuse(real):
        def call(*args, **kwargs):
            countdown[0] -= 1
            if countdown[0] == 0:
                raise Died
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(os, "replace", fuse(steps["os.replace"]))
    monkeypatch.setattr(os, "fsync", fuse(steps["os.fsync"]))
    monkeypatch.setattr(Path, "unlink", fuse(steps["Path.unlink"]))
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

    def opened(path, mode="r", *args, **kwargs):
        file = real(path, mode, *args, **kwargs)
        if not (on[0] and "w" in mode and victim in str(path)):
            return file

        class Full:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                file.close()

            def write(self, data):
                file.write(data[: len(data) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")

        return Full()

    monkeypatch.setattr(builtins, "open", opened)
    return on


def test_full_disk_keeps_what_was_stored(tmp_path, full, monkeypatch):
    store = begin(tmp_path / "s")
    on = full_disk(monkeypatch, "shard-00001")
    with store:
        store.write_batch(0, VALUES[BATCHES[0]])
        with pytest.raises(StoreError, match=r"shard-00001.*needs [\d,]+ bytes"):
            store.write_batch(1, VALUES[BATCHES[1]])
        assert store.pending() == [1, 2, 3]
    assert not list((tmp_path / "s").rglob("*.tmp"))
    on[0] = False
    fill(tmp_path / "s")
    assert contents(tmp_path / "s") == contents(full)


def test_full_disk_at_the_end_heals_in_the_same_run(tmp_path, full, monkeypatch):
    with begin(tmp_path / "s") as store:
        for b in store.pending():
            store.write_batch(b, VALUES[BATCHES[b]])
        on = full_disk(monkeypatch, "manifest.json")
        with pytest.raises(StoreError, match=r"manifest.json.*needs [\d,]+ bytes"):
            store.finish()
        on[0] = False
        store.finish()
    assert contents(tmp_path / "s") == contents(full)


def test_other_errors_of_the_disk_come_through(tmp_path, monkeypatch):
    store = begin(tmp_path / "s")

    def refuse(*args):
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(os, "replace", refuse)
    with store, pytest.raises(PermissionError):
        store.write_batch(0, VALUES[BATCHES[0]])
    assert not list((tmp_path / "s").rglob("*.tmp"))


def test_one_writer_at_a_time(tmp_path):
    with begin(tmp_path / "s") as store:
        with pytest.raises(StoreError, match="another run"):
            begin(tmp_path / "s")
        store.write_batch(0, VALUES[BATCHES[0]])
        assert ActivationStore.open(tmp_path / "s").pending() == [1, 2, 3]
    begin(tmp_path / "s").close()


def test_failed_opening_lets_go_of_the_lock(tmp_path):
    begin(tmp_path / "s").close()
    with pytest.raises(StoreMismatchError):
        begin(tmp_path / "s", batches=BATCHES[::-1])
    begin(tmp_path / "s").close()


def test_writes_that_do_not_fit(tmp_path):
    with begin(tmp_path / "s") as store:
        with pytest.raises(StoreError, match=r"\(3, 3, 2, 4\).*\(2, 3, 2, 4\)"):
            store.write_batch(0, VALUES[:3])
        with pytest.raises(StoreError, match=r"bfloat16.*\.to\(torch\.float32\)"):
            store.write_batch(0, VALUES[:2].bfloat16())
        with pytest.raises(StoreError, match="no batch 4"):
            store.write_batch(4, VALUES[:2])
        store.write_batch(0, VALUES[BATCHES[0]])
        with pytest.raises(StoreError, match="stored already"):
            store.write_batch(0, VALUES[BATCHES[0]])
        with pytest.raises(StoreError, match="3 of 4 batches are pending"):
            store.finish()
    with pytest.raises(StoreError, match="reading only"):
        store.write_batch(1, VALUES[BATCHES[1]])
    with pytest.raises(StoreError, match="reading only"):
        ActivationStore.open(tmp_path / "s").write_batch(1, VALUES[BATCHES[1]])


def test_reads_that_do_not_fit(tmp_path, full):
    with pytest.raises(StoreError, match=r"layers 0 to 2, not \[3\]"):
        ActivationStore.open(full).read([0, 3])
    fill(tmp_path / "s", [0])
    with pytest.raises(StoreError, match="not complete: 3 of 4"):
        ActivationStore.open(tmp_path / "s").read()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"batches": BATCHES[:-1]}, "item 4 is in 0 batches"),
        ({"batches": [*BATCHES, [2]]}, "item 2 is in 2 batches"),
        ({"batches": [*BATCHES, []]}, "batch 4 .* empty"),
        ({"batches": [*BATCHES, [7]]}, "names item 7"),
        ({"items": ITEMS.drop(columns="item_id")}, "no column 'item_id'"),
        ({"items": ITEMS.assign(item_id="x")}, "'x' more than once"),
        ({"items": ITEMS.assign(odd=[object()] * 7)}, "Parquet"),
        ({"meta": replace(META, dtype="int8")}, "'int8'"),
    ],
)
def test_plans_that_do_not_fit(tmp_path, changes, match):
    with pytest.raises(StoreError, match=match):
        begin(tmp_path / "s", **changes)


def test_somebody_elses_folder_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".draft.tmp").write_text("mine, too")
    with pytest.raises(StoreError, match="notes.txt"):
        begin(tmp_path)
    assert set(contents(tmp_path)) == {"notes.txt", ".draft.tmp", ".lock"}
    with pytest.raises(StoreError, match="no activation store"):
        ActivationStore.open(tmp_path)
    with pytest.raises(StoreError, match="is a file"):
        begin(tmp_path / "notes.txt")


def test_other_version_is_refused(full):
    from sally_anne.hooks.store.files import _render

    path = full / "manifest.json"
    for version in (1, 99):
        path.write_bytes(_render(json.loads(path.read_bytes()) | {"version": version}))
        with pytest.raises(StoreMismatchError, match=f"version {version}.*extraction again"):
            ActivationStore.open(full)


def test_store_can_be_moved(full, tmp_path):
    shutil.move(full, tmp_path / "elsewhere")
    assert torch.equal(ActivationStore.open(tmp_path / "elsewhere").read(), VALUES)
