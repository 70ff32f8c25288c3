"""Activations of many items on disk, written batch by batch, resumable, checked when read.

A folder: `items.parquet` (a row an item), `shard-00000.safetensors` and so on (a batch each, one
tensor `[n, H, D]` a layer), `index.json` (what was run, the plan of batches; at the end also every
shard's checksum) and `.lock`, held while a run writes.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

import pandas as pd
import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from sally_anne.core.errors import StoreDamagedError, StoreError
from sally_anne.core.files import TMP, locked, write_atomic
from sally_anne.core.folder import make_own

INDEX_NAME, ITEMS_NAME = "index.json", "items.parquet"
_FORMAT = "sally-anne activations 3"
_SUM = "sha256"
_key = "layer.{:02d}".format
Batches = Sequence[Sequence[int]]


@dataclass(frozen=True)
class StoreMeta:
    """What must agree between a store and a run; `extra` is what else decides the inputs."""

    site: str
    position: str
    model_id: str
    model_revision: str
    processor_hash: str
    prompt_hash: str
    dtype: str
    n_layers: int
    n_heads: int
    head_dim: int
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Index:
    """`index.json`: `batches` of rows of items, and checksums of `shards` once all are there."""

    meta: StoreMeta
    items_sha256: str
    batches: tuple[tuple[int, ...], ...]
    shards: tuple[str, ...] | None = None

    @classmethod
    def read(cls, folder: Path) -> Index:
        """Read it; StoreError where there is none, StoreDamagedError if it makes no sense."""
        path = folder / INDEX_NAME
        if not path.is_file():
            raise StoreError(f"{folder} is no activation store: it has no {INDEX_NAME}.")
        try:
            content = json.loads(path.read_bytes())
            if content.pop("format") != _FORMAT:
                raise ValueError("it is of another version")
            content["meta"] = StoreMeta(**content["meta"])
            content["batches"] = tuple(map(tuple, content["batches"]))
            if content["shards"] is not None:
                content["shards"] = tuple(content["shards"])
                if len(content["shards"]) != len(content["batches"]):
                    raise ValueError("checksums of other batches")
            return cls(**content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(path) from error

    def write(self, folder: Path) -> None:
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=1, sort_keys=True)
        write_atomic(folder / INDEX_NAME, f"{text}\n".encode())


class ActivationStore(AbstractContextManager["ActivationStore"]):
    """A store opened for writing (`open_or_create`, `join`) or for reading (`open`).

    A batch is computed whole or not at all and is one shard, written once, atomically. So a resumed
    run gives the same bytes as an uninterrupted one, whoever computed which batch.

    with ActivationStore.open_or_create(out, meta, items, batches) as store:
        for b in store.pending():
            store.write_batch(b, compute(batches[b]))
        store.finish()
    """

    def __init__(
        self, path: Path, index: Index, items: pd.DataFrame, lock: FileLock | None, writable: bool
    ) -> None:
        self.path, self.items = path, items
        self.meta, self.batches = index.meta, index.batches
        self._index, self._lock, self._writable = index, lock, writable
        self._stored = set(range(len(index.batches))) if self.complete else _shards_in(path)
        # Checksums of the shards that were written or checked here: they are not hashed again.
        self._intact: dict[int, str] = {}

    @classmethod
    def open_or_create(
        cls, path: str | Path, meta: StoreMeta, items: pd.DataFrame, batches: Batches
    ) -> Self:
        """Begin a store, or resume the one that the same run began.

        `items` have a unique column `item_id`, and each of their rows is in one of the `batches`.
        Shards that are damaged, or missing from a complete store, are warned of and pending again.
        StoreDamagedError for an index or items table that is missing or altered; StoreError for the
        store of another run, one that is being written, a plan that does not fit, or a full disk.
        """
        folder = Path(path)
        index, table = _planned(meta, items, batches)
        make_own(folder, "an activation store", INDEX_NAME)
        lock = locked(folder, StoreError)
        try:
            for tmp in folder.glob(f".*{TMP}"):
                tmp.unlink()
            if not (folder / INDEX_NAME).exists():
                index.write(folder)
            # A run that is killed between the two has none.
            if not ((folder / ITEMS_NAME).exists() or Index.read(folder).shards):
                write_atomic(folder / ITEMS_NAME, table)
            store = cls(folder, *_require_same_run(folder, index, table), lock, writable=True)
            store._recover()
        except BaseException:
            lock.release()
            raise
        return store

    @classmethod
    def join(cls, path: str | Path, meta: StoreMeta, items: pd.DataFrame, batches: Batches) -> Self:
        """Add batches to a store that another process of the same run holds open.

        All processes must list what is pending before any of them writes.
        """
        found = _require_same_run(Path(path), *_planned(meta, items, batches))
        return cls(Path(path), *found, None, writable=True)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a store for reading, complete or not; StoreError if there is none."""
        index = Index.read(folder := Path(path))
        return cls(folder, index, _read_items(folder, index), None, writable=False)

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the folder back to others; what is stored can still be read."""
        lock, self._lock, self._writable = self._lock, None, False
        if lock is not None:
            lock.release()

    @property
    def complete(self) -> bool:
        """Whether every batch is stored and `finish` was called."""
        return self._index.shards is not None

    def pending(self) -> list[int]:
        """The batches of the plan that were not stored when this was opened, nor since here."""
        return [b for b in range(len(self.batches)) if b not in self._stored]

    def write_batch(self, b: int, activations: Tensor) -> None:
        """Store `[len(batches[b]), L, H, D]` in the meta's dtype; StoreError if it cannot be."""
        if not self._writable:
            raise StoreError(f"{self.path} is closed, or open for reading only.")
        if b not in self.pending():
            raise StoreError(f"batch {b} is not pending; the plan has {len(self.batches)} batches.")
        shape, dtype = self._shape(len(self.batches[b]), self.meta.n_layers)
        if (activations.shape, activations.dtype) != (shape, dtype):
            given = f"{tuple(activations.shape)} of {activations.dtype}"
            raise StoreError(f"batch {b} has shape {given}, not {shape} [n, L, H, D] of {dtype}")
        layers = [layer.contiguous() for layer in activations.detach().cpu().unbind(1)]
        checksum = _checksum(self.batches[b], layers)
        tensors = {_key(i): layer for i, layer in enumerate(layers)}
        write_atomic(_shard(self.path, b), save(tensors, metadata={_SUM: checksum}))
        self._intact[b] = checksum
        self._stored.add(b)

    def _shape(self, rows: int, layers: int) -> tuple[tuple[int, ...], torch.dtype]:
        meta = self.meta
        return (rows, layers, meta.n_heads, meta.head_dim), getattr(torch, meta.dtype)

    def finish(self) -> None:
        """Check the batches of other processes, declare the store complete and release it."""
        if self._lock is None:
            raise StoreError(f"{self.path} is finished by the process that opened it for writing.")
        if not self.complete:
            self._stored |= _shards_in(self.path)
            if left := self.pending():
                count = f"{len(left)} of {len(self.batches)} batches are pending"
                raise StoreError(f"{self.path}: {count}, the first is {left[0]}.")
            self._save(tuple(self._checked(b) for b in range(len(self.batches))))
        self.__exit__()

    def read(self, layers: Sequence[int] | None = None) -> Tensor:
        """The activations of all items, or of some layers, `[N, L', H, D]`, rows as `items`."""
        count = self.meta.n_layers
        if not self.complete:
            left = f"{len(self.pending())} of {len(self.batches)} batches are pending"
            raise StoreError(f"{self.path} is not complete: {left}. Run the same command again.")
        chosen = range(count) if layers is None else list(layers)
        if wrong := [layer for layer in chosen if not 0 <= layer < count]:
            raise StoreError(f"{self.path} has layers 0 to {count - 1}, not {wrong}.")
        shape, dtype = self._shape(len(self.items), len(chosen))
        activations = torch.empty(shape, dtype=dtype)
        for b, rows in enumerate(self.batches):
            self._checked(b)
            with safe_open(_shard(self.path, b), framework="pt") as file:
                for column, layer in enumerate(chosen):
                    activations[list(rows), column] = file.get_tensor(_key(layer))
        return activations

    def verify(self) -> None:
        """Check every file against its checksum, from the disk; StoreDamagedError names it."""
        _read_items(self.path, Index.read(self.path))
        self._intact.clear()
        for b in sorted(self._stored):
            self._checked(b)

    def _recover(self) -> None:
        """Drop the damaged shards of an earlier run; those that are whole are kept."""
        for b in sorted(self._stored):
            path = _shard(self.path, b)
            try:
                if not (self.complete and path.exists()):
                    self._checked(b)
            except StoreDamagedError:
                again = f"{path} is damaged or missing; batch {b} will be computed again."
                warnings.warn(again, stacklevel=3)
                path.unlink(missing_ok=True)
                self._stored.remove(b)
        if self.complete and self.pending():
            self._save(None)

    def _checked(self, b: int) -> str:
        """The checksum of a shard that is intact; each is read and hashed once."""
        if b not in self._intact:
            path, known = _shard(self.path, b), self._index.shards
            try:
                with safe_open(path, framework="pt") as file:
                    stated: str = file.metadata()[_SUM]
                    layers = [file.get_tensor(_key(i)) for i in range(self.meta.n_layers)]
            except (OSError, SafetensorError, KeyError, TypeError) as error:
                raise _damaged(path) from error
            expected = known[b] if known else stated
            if not stated == expected == _checksum(self.batches[b], layers):
                raise _damaged(path)
            self._intact[b] = stated
        return self._intact[b]

    def _save(self, shards: tuple[str, ...] | None) -> None:
        self._index = replace(self._index, shards=shards)
        self._index.write(self.path)


def _planned(meta: StoreMeta, items: pd.DataFrame, batches: Batches) -> tuple[Index, bytes]:
    """The index of an empty store, and its items as Parquet."""
    plan = tuple(tuple(int(row) for row in batch) for batch in batches)
    times = Counter(row for batch in plan for row in batch)
    if () in plan or times != Counter(range(len(items))):
        raise StoreError(f"the plan must name each of the {len(items)} items once, no batch empty.")
    if "item_id" not in items or items["item_id"].isna().any() or not items["item_id"].is_unique:
        raise StoreError("the items table needs a column 'item_id' of unique names.")
    table = items.reset_index(drop=True).to_parquet(engine="pyarrow", index=False)
    return Index(meta, hashlib.sha256(table).hexdigest(), plan), table


def _require_same_run(folder: Path, given: Index, table: bytes) -> tuple[Index, pd.DataFrame]:
    """The index and items of a store, which must be those that a run would make."""
    stored = Index.read(folder)
    items = _read_items(folder, stored)
    before, now = (index.meta.extra | asdict(index.meta) for index in (stored, given))
    # What was chosen says more than hashes of what follows from it.
    for name in dict.fromkeys((*given.meta.extra, *stored.meta.extra, *now)):
        one, other = (found.get(name, "not set") for found in (before, now))
        if one != other:
            raise mismatch(folder, f"{name} is {one!r} in the store, {other!r} in this run")
    if not items.equals(pd.read_parquet(io.BytesIO(table))):
        raise mismatch(folder, "it has other items")
    if stored.batches != given.batches:
        raise mismatch(folder, "it has other batches")
    return stored, items


def mismatch(folder: Path, what: str) -> StoreError:
    way = "Choose another --out, or delete that folder to start over."
    return StoreError(f"the store {folder} was made by a different run: {what}. {way}")


def _read_items(folder: Path, index: Index) -> pd.DataFrame:
    path = folder / ITEMS_NAME
    table = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(table).hexdigest() != index.items_sha256:
        raise _damaged(path)
    return pd.read_parquet(io.BytesIO(table))


def _damaged(path: Path) -> StoreDamagedError:
    again = path if path.suffix == ".safetensors" else f"the folder {path.parent}"
    way = f"Delete {again} and run the same command again."
    return StoreDamagedError(f"{path} is missing, cut short or altered. {way}")


def _checksum(rows: Sequence[int], layers: Sequence[Tensor]) -> str:
    """SHA-256 of the numbers of a batch `[n, H, D]` a layer, of their kind and of their rows."""
    kind = layers[0].dtype, tuple(layers[0].shape), tuple(rows)
    digest = hashlib.sha256(repr(kind).encode())
    for layer in layers:
        digest.update(layer.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _shard(folder: Path, b: int) -> Path:
    return folder / f"shard-{b:05d}.safetensors"


def _shards_in(folder: Path) -> set[int]:
    return {int(path.stem.removeprefix("shard-")) for path in folder.glob("shard-*.safetensors")}
