"""Activations of many items on disk, written batch by batch, resumable, checked when read.

A folder: `manifest.json` (what was run, the batch plan; once complete, every shard's checksum),
`items.parquet` (a row an item), `shard-00000.safetensors` and so on (a batch each, one tensor
`[n, H, D]` a layer) and `.lock` (empty; held while a run writes).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Self

import pandas as pd
import torch
from torch import Tensor

from sally_anne.core.errors import StoreDamagedError, StoreError
from sally_anne.core.files import remove_leftovers, write_atomic
from sally_anne.core.run_folder import LOCK_NAME, lock
from sally_anne.hooks.store import files
from sally_anne.hooks.store.files import ITEMS_NAME, MANIFEST_NAME, Manifest, StoreMeta

__all__ = ["ActivationStore", "BatchWriter", "StoreMeta"]


class BatchWriter:
    """A store that another process holds, opened for adding batches.

    with ActivationStore.open_or_create(out, meta, items, batches) as store:   # the first process
        ...
    with BatchWriter.join(out, meta, items, batches) as store:                 # each of the others
        for b in its_share_of(store.pending()):
            store.write_batch(b, compute(batches[b]))

    All list what is pending before any of them writes, or their lists would differ.
    """

    def __init__(
        self, path: Path, manifest: Manifest, items: pd.DataFrame, lock: IO[bytes] | None
    ) -> None:
        self.path = path
        self.items = items
        self._manifest = manifest
        self._lock = lock
        self._stored = set(range(len(manifest.batches))) if self.complete else files.shards_in(path)
        # Checksums of the shards that were written or checked here: they are not hashed again.
        self._intact: dict[int, str] = {}

    @classmethod
    def join(
        cls,
        path: str | Path,
        meta: StoreMeta,
        items: pd.DataFrame,
        batches: Sequence[Sequence[int]],
    ) -> BatchWriter:
        """Join the run that has opened the store; takes what `ActivationStore` was opened with.

        Raises:
            StoreMismatchError, StoreDamagedError: as `ActivationStore.open_or_create`.
            StoreError: likewise, or there is no store, or a run is just beginning there.
        """
        folder = Path(path)
        given, table = files.planned(meta, items, batches)
        manifest, own_items = files.require_same_run(folder, given, table)
        # Together, and on a file that is never replaced, so that no further one is left behind.
        held = _locked(folder / ITEMS_NAME, "rb", "another run begins to write to", shared=True)
        return BatchWriter(folder, manifest, own_items, held)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write nothing more, and let another run write. Reading goes on working."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def meta(self) -> StoreMeta:
        """What was run."""
        return self._manifest.meta

    @property
    def complete(self) -> bool:
        """Whether every batch is stored and `ActivationStore.finish` was called."""
        return self._manifest.shards is not None

    def pending(self) -> list[int]:
        """The batches of the plan that were not stored when this was opened, nor since here."""
        return [b for b in range(len(self._manifest.batches)) if b not in self._stored]

    def write_batch(self, b: int, activations: Tensor) -> None:
        """Store `[len(batches[b]), L, H, D]`, finite and in the meta's dtype, for good.

        Raises:
            StoreError: wrong shape or dtype, a batch that is stored already or does not exist, a
                store closed or opened for reading, or a full disk (what was stored before is kept).
        """
        self._require_writable()
        batches, meta = self._manifest.batches, self.meta
        if not 0 <= b < len(batches):
            raise StoreError(f"there is no batch {b}; the plan has {len(batches)}.")
        if b in self._stored:
            raise StoreError(f"batch {b} is stored already; write only the batches of pending().")
        wanted = (len(batches[b]), meta.n_layers, meta.n_heads, meta.head_dim)
        if (shape := tuple(activations.shape)) != wanted:
            raise StoreError(
                f"batch {b} has shape {shape}, not {wanted} [items, layers, heads, head width]."
            )
        if activations.dtype != meta.torch_dtype:
            raise StoreError(
                f"batch {b} is {activations.dtype}, the store holds {meta.dtype}: "
                f"call .to(torch.{meta.dtype}) before writing."
            )
        self._intact[b] = files.write_shard(self.path, b, activations.detach().cpu())
        self._stored.add(b)

    def _require_writable(self) -> None:
        if self._lock is None:
            raise StoreError(
                f"{self.path} is closed, or open for reading only; write by open_or_create."
            )


class ActivationStore(BatchWriter):
    """A store opened for writing (`open_or_create`) or for reading (`open`).

    A batch is computed whole or not at all and is one shard, written once, atomically. So a resumed
    run gives the same bytes as an uninterrupted one, whoever computed which batch.

    with ActivationStore.open_or_create(out, meta, items, batches) as store:
        for b in store.pending():
            store.write_batch(b, compute(batches[b]))
        store.finish()
    """

    @classmethod
    def open_or_create(
        cls,
        path: str | Path,
        meta: StoreMeta,
        items: pd.DataFrame,
        batches: Sequence[Sequence[int]],
    ) -> ActivationStore:
        """Begin a store, or go on with the one that the same run began.

        Shards that are damaged, or missing from a complete store, are warned of and pending again.

        Args:
            items: one row an item, with a unique column `item_id`.
            batches: rows of `items`; each row in exactly one batch, in any order.

        Raises:
            StoreMismatchError: the folder holds the store of a different run.
            StoreDamagedError: its manifest or items table is missing or altered.
            StoreError: another run, or a process of one, is writing to it, the folder holds
                something else, the plan does not fit the items, or the disk is full.
        """
        folder = Path(path)
        given, table = files.planned(meta, items, batches)
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is a file; a store is a folder. Choose another --out.")
        folder.mkdir(parents=True, exist_ok=True)
        # The file stays: if it were removed, two writers could hold different ones.
        held = _locked(folder / LOCK_NAME, "ab", "another run is writing to")
        try:
            if (folder / MANIFEST_NAME).exists():
                manifest, own_items = files.require_same_run(folder, given, table)
                # Some network disks lock wholly only what is open for writing.
                before = "a process of an earlier run is still writing to"
                _locked(folder / ITEMS_NAME, "r+b", before).close()
                remove_leftovers(folder, ["*"])
            else:
                remove_leftovers(folder, (MANIFEST_NAME, ITEMS_NAME))
                _require_unused(folder, table)
                write_atomic(folder / ITEMS_NAME, table)
                files.write_manifest(folder, given)
                manifest, own_items = given, files.items_from_bytes(table)
            store = cls(folder, manifest, own_items, held)
            store._recover()
        except BaseException:
            held.close()
            raise
        return store

    @classmethod
    def open(cls, path: str | Path) -> ActivationStore:
        """Open a store for reading, complete or not; StoreError if there is none, or damaged."""
        folder = Path(path)
        manifest = files.read_manifest(folder)
        return cls(folder, manifest, files.read_items(folder, manifest), None)

    def finish(self) -> None:
        """Declare the store complete, with the batches of other processes, and let go of it.

        Raises:
            StoreError: as `write_batch`, or batches are pending.
            StoreDamagedError: a batch of another process was altered since.
        """
        self._require_writable()
        if not self.complete:
            self._stored |= files.shards_in(self.path)
            if left := self.pending():
                raise StoreError(
                    f"{self.path}: {len(left)} of {len(self._manifest.batches)} batches are "
                    f"pending (the first is {left[0]}); write them before finish()."
                )
            self._save(tuple(self._checked(b) for b in range(len(self._manifest.batches))))
        self.close()

    def read(self, layers: Sequence[int] | None = None) -> Tensor:
        """The activations of all items, `[N, L', H, D]`, in the order of `items`.

        Only the tensors of `layers` are loaded. A shard that was not written here is hashed once.

        Raises:
            StoreError: the store is not complete, or a layer is out of range.
            StoreDamagedError: names the shard that is missing or altered.
        """
        meta, batches = self.meta, self._manifest.batches
        if not self.complete:
            raise StoreError(
                f"{self.path} is not complete: {len(self.pending())} of {len(batches)} "
                "batches are pending. Run the extraction again with the same --out to go on."
            )
        chosen = range(meta.n_layers) if layers is None else list(layers)
        if wrong := [layer for layer in chosen if not 0 <= layer < meta.n_layers]:
            raise StoreError(f"{self.path} has layers 0 to {meta.n_layers - 1}, not {wrong}.")
        shape = (len(self.items), len(chosen), meta.n_heads, meta.head_dim)
        activations = torch.empty(shape, dtype=meta.torch_dtype)
        for b, rows in enumerate(batches):
            self._checked(b)
            for column, values in enumerate(files.read_shard(self.path, b, chosen)):
                activations[list(rows), column] = values
        return activations

    def verify(self) -> None:
        """Check every file against its checksum, from the disk; StoreDamagedError names it."""
        files.read_items(self.path, files.read_manifest(self.path))
        self._intact.clear()
        for b in sorted(self._stored):
            self._checked(b)

    def _recover(self) -> None:
        """Bring the folder of an earlier run in order. A finished batch is never lost."""
        for b in sorted(self._stored):
            path = files.shard_path(self.path, b)
            try:
                if not (self.complete and path.exists()):
                    self._checked(b)
            except StoreDamagedError:
                message = f"{path} is damaged or missing; batch {b} will be computed again."
                warnings.warn(message, stacklevel=3)
                path.unlink(missing_ok=True)
                self._stored.remove(b)
        if self.complete and self.pending():
            self._save(None)

    def _checked(self, b: int) -> str:
        """The checksum of a shard that is intact; each is hashed once."""
        if b not in self._intact:
            checksum = files.check_shard(self.path, b)
            if self._manifest.shards is not None and checksum != self._manifest.shards[b]:
                raise files.damaged_shard(
                    files.shard_path(self.path, b), "is the shard of another run"
                )
            self._intact[b] = checksum
        return self._intact[b]

    def _save(self, shards: tuple[str, ...] | None) -> None:
        manifest = replace(self._manifest, shards=shards)
        files.write_manifest(self.path, manifest)
        self._manifest = manifest


def _locked(path: Path, mode: str, busy: str, shared: bool = False) -> IO[bytes]:
    file = open(path, mode)  # noqa: SIM115  # open as long as the lock is held
    way_out = "Wait for it to end, or choose another --out."
    return lock(file, StoreError(f"{busy} the store {path.parent}. {way_out}"), shared)


def _require_unused(folder: Path, table: bytes) -> None:
    # A run killed before its first manifest leaves these two; anything else is somebody's work.
    foreign = {path.name for path in folder.iterdir()} - {LOCK_NAME}
    if ITEMS_NAME in foreign and (folder / ITEMS_NAME).read_bytes() == table:
        foreign.remove(ITEMS_NAME)
    if foreign:
        names = ", ".join(sorted(foreign)[:3])
        raise StoreError(
            f"{folder} holds other files ({names}) and no {MANIFEST_NAME}. Choose another --out."
        )
