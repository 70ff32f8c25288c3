"""Activations of many items on disk, written batch by batch, resumable, checked when read.

A store is a folder:

    manifest.json              what was run, the batch plan, the checksum of every other file
    items.parquet              one row an item
    shard-00000.safetensors    items 0 .. shard_items - 1, one tensor `[n, H, D]` a layer
    journal/                   finished batches that wait for their shard; gone when complete
    .lock                      empty; held while a run writes

A batch is computed whole or not at all, and its composition never changes, so a resumed run gives
the numbers of an uninterrupted one; nothing depends on time or order of writing, so the files are
the same bytes, too. For the same reason several processes may compute batches at once: one holds
the store, the others add to its journal (`hooks.store_contributor`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO

import pandas as pd
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from hooks.store_checks import (
    SHARD_ITEMS,
    dtype_of,
    planned,
    read_items,
    require_batch,
    require_same_run,
)
from hooks.store_items import items_from_bytes
from hooks.store_journal import Journal
from hooks.store_lock import lock_store, require_no_contributor
from hooks.store_manifest import (
    ITEMS_NAME,
    MANIFEST_NAME,
    Manifest,
    StoreMeta,
    read_manifest,
    shard_name,
    write_manifest,
)
from sally_anne.core.errors import StoreDamagedError, StoreError
from sally_anne.core.files import file_sha256, reading, remove_leftovers, write_atomic
from sally_anne.core.run_folder import LOCK_NAME

__all__ = ["ActivationStore", "StoreMeta"]

_OWN_FILES = (MANIFEST_NAME, ITEMS_NAME, "shard-*.safetensors")


class ActivationStore:
    """A store opened for writing (`open_or_create`) or for reading (`open`).

    with ActivationStore.open_or_create(out, meta, items, batches) as store:
        for b in store.pending():
            store.write_batch(b, compute(batches[b]))
        store.finish()
    """

    def __init__(
        self, path: Path, manifest: Manifest, items: pd.DataFrame, lock: IO[bytes] | None
    ) -> None:
        self.path = path
        self.items = items
        self._manifest = manifest
        self._lock = lock
        self._journal = Journal(path / "journal")
        self._journalled: set[int] = set()
        self._intact_shards: set[int] = set()

    @classmethod
    def open_or_create(
        cls,
        path: str | Path,
        meta: StoreMeta,
        items: pd.DataFrame,
        batches: Sequence[Sequence[int]],
        shard_items: int = SHARD_ITEMS,
    ) -> ActivationStore:
        """Begin a store, or go on with the one that the same run began.

        Args:
            items: one row an item, with a unique column `item_id`.
            batches: rows of `items`; each row in exactly one batch, in any order.
            shard_items: items a shard file holds.

        Raises:
            StoreMismatchError: the folder holds the store of a different run.
            StoreDamagedError: a file of it is missing or altered.
            StoreError: another run, or a process of one, is writing to it, the folder holds
                something else, the plan does not fit the items, or the disk is full.
        """
        folder = Path(path)
        given, table = planned(meta, items, batches, shard_items)
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is a file; a store is a folder. Choose another --out.")
        folder.mkdir(parents=True, exist_ok=True)
        lock = lock_store(folder)
        try:
            remove_leftovers(folder, _OWN_FILES)
            if (folder / MANIFEST_NAME).exists():
                stored = read_manifest(folder)
                old_items = require_same_run(folder, stored, given, table)
                require_no_contributor(folder)
            else:
                _require_unused(folder, table)
                write_atomic(folder / ITEMS_NAME, table)
                write_manifest(folder, given)
                stored, old_items = given, items_from_bytes(table)
            store = cls(folder, stored, old_items, lock)
            store._recover()
        except BaseException:
            lock.close()
            raise
        return store

    @classmethod
    def open(cls, path: str | Path) -> ActivationStore:
        """Open a store for reading, complete or not.

        Raises:
            StoreError: there is no store.
            StoreDamagedError: the manifest or the items table is missing or altered.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        return cls(folder, manifest, read_items(folder, manifest), None)

    def __enter__(self) -> ActivationStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another run write. What was stored stays; reading goes on working."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def meta(self) -> StoreMeta:
        """What was run."""
        return self._manifest.meta

    @property
    def complete(self) -> bool:
        """Whether every batch is stored and `finish` was called."""
        return self._manifest.complete

    def pending(self) -> list[int]:
        """The batches not stored yet, as indices into the plan."""
        done = self._journalled if self._lock is not None else set(self._journal.batches())
        return [
            number
            for number in range(len(self._manifest.batches))
            if number not in done and not self._manifest.merged(number)
        ]

    def write_batch(self, b: int, activations: Tensor) -> None:
        """Store the activations of batch `b` for good.

        Args:
            activations: `[len(batches[b]), L, H, D]` in the dtype of the meta.

        Raises:
            NonFiniteError: a value is NaN or infinite; names the item and the layer.
            StoreError: wrong shape or dtype, a batch that is stored already or does not exist, a
                store opened for reading, or a full disk (what was stored before is kept).
        """
        self._require_writable()
        require_batch(self._manifest, self.items, self._stored, b, activations)
        self._journal.write(b, activations.detach().cpu())
        self._journalled.add(b)
        size = self._manifest.shard_items
        self._merge({row // size for row in self._manifest.batches[b]})

    def take_in(self) -> None:
        """Take over the batches that contributors have written meanwhile.

        Raises:
            StoreDamagedError: one of them was altered; it is dropped.
            StoreError: the store was opened for reading, or the disk is full.
        """
        self._require_writable()
        self._journalled.update(self._journal.batches())
        self._merge(set(range(self._manifest.n_shards)))

    def finish(self) -> None:
        """Declare the store complete and let go of it. Does nothing if it is complete already.

        Raises:
            StoreError: batches are still pending, the store was opened for reading, or the disk is
                full.
        """
        self._require_writable()
        left = self.pending()
        if left:
            raise StoreError(
                f"{self.path}: {len(left)} of {len(self._manifest.batches)} batches are pending "
                f"(the first is {left[0]}); write them before finish()."
            )
        if not self.complete:
            # A batch may have come while an earlier merge failed on a full disk.
            self._merge(set(range(self._manifest.n_shards)))
            self._save(replace(self._manifest, complete=True))
        self._journal.close()
        self.close()

    def read(self, layers: Sequence[int] | None = None) -> Tensor:
        """The activations of all items, `[N, L', H, D]`, in the order of `items`.

        Only the tensors of `layers` are loaded; each shard's checksum is checked the first time.

        Raises:
            StoreError: the store is not complete, or a layer is out of range.
            StoreDamagedError: names the shard that is missing or altered.
        """
        manifest, meta = self._manifest, self.meta
        if not self.complete:
            raise StoreError(
                f"{self.path} is not complete: {len(self.pending())} of {len(manifest.batches)} "
                "batches are pending. Run the extraction again with the same --out to go on."
            )
        chosen = range(meta.n_layers) if layers is None else list(layers)
        wrong = [layer for layer in chosen if not 0 <= layer < meta.n_layers]
        if wrong:
            raise StoreError(f"{self.path} has layers 0 to {meta.n_layers - 1}, not {wrong}.")
        shape = (manifest.n_items, len(chosen), meta.n_heads, meta.head_dim)
        activations = torch.empty(shape, dtype=dtype_of(meta))
        for shard in range(manifest.n_shards):
            self._require_intact(shard)
            rows = manifest.shard_rows(shard)
            with safe_open(self.path / shard_name(shard), framework="pt") as file:
                for column, layer in enumerate(chosen):
                    activations[rows.start : rows.stop, column] = file.get_tensor(_key(layer))
        return activations

    def verify(self) -> None:
        """Check every file of the store against its checksum, from the disk.

        Raises:
            StoreDamagedError: names the file.
        """
        manifest = read_manifest(self.path)
        read_items(self.path, manifest)
        for shard in manifest.shards:
            self._intact_shards.discard(shard)
            self._require_intact(shard)
        for batch in self._journal.batches():
            if self._journal.read(batch) is None:
                raise StoreDamagedError(
                    f"{self._journal.path(batch)} is cut short or altered. Run the extraction "
                    "again with the same --out: that batch will be computed again."
                )

    def _recover(self) -> None:
        """Bring the folder of a killed run in order. A finished batch is never lost."""
        for path in self.path.glob("shard-*.safetensors"):
            if int(path.stem[6:]) not in self._manifest.shards:
                path.unlink()  # renamed, but not in the manifest yet: its journal is still there
        for shard in self._manifest.shards:
            self._require_present(shard)
        self._journalled = set(self._journal.recover())
        self._merge(set(range(self._manifest.n_shards)))
        self._drop_merged()
        if self.complete:
            self._journal.close()

    def _merge(self, shards: set[int]) -> None:
        """Write those of `shards` whose batches are all in the journal."""
        by_shard: dict[int, list[int]] = {
            shard: [] for shard in shards - set(self._manifest.shards)
        }
        if not by_shard:
            return
        for number, batch in enumerate(self._manifest.batches):
            for shard in {row // self._manifest.shard_items for row in batch} & by_shard.keys():
                by_shard[shard].append(number)
        for shard in sorted(by_shard):
            if self._journalled.issuperset(by_shard[shard]):
                self._merge_shard(shard, by_shard[shard])
        self._drop_merged()

    def _merge_shard(self, shard: int, numbers: list[int]) -> None:
        meta, rows = self.meta, self._manifest.shard_rows(shard)
        merged = torch.empty(
            (len(rows), meta.n_layers, meta.n_heads, meta.head_dim), dtype=dtype_of(meta)
        )
        for number in numbers:
            activations = self._journal.read(number)
            if activations is None:
                self._journal.remove(number)
                self._journalled.discard(number)
                raise StoreDamagedError(
                    f"{self._journal.path(number)} was altered while the run went on and has been "
                    f"dropped. Run again with the same --out: batch {number} is computed again."
                )
            for place, row in enumerate(self._manifest.batches[number]):
                if row in rows:
                    merged[row - rows.start] = activations[place]
        # No header metadata: safetensors writes its entries in no fixed order.
        data = save({_key(layer): merged[:, layer].contiguous() for layer in range(meta.n_layers)})
        write_atomic(self.path / shard_name(shard), data)
        digest = hashlib.sha256(data).hexdigest()
        self._save(self._manifest.with_shard(shard, digest))

    def _drop_merged(self) -> None:
        for number in sorted(self._journalled):
            if self._manifest.merged(number):
                self._journal.remove(number)
                self._journalled.discard(number)

    def _stored(self, b: int) -> bool:
        return b in self._journalled or self._manifest.merged(b)

    def _save(self, manifest: Manifest) -> None:
        write_manifest(self.path, manifest)
        self._manifest = manifest

    def _require_writable(self) -> None:
        if self._lock is None:
            raise StoreError(
                f"{self.path} is open for reading only; use open_or_create to write to it."
            )

    def _require_present(self, shard: int) -> Path:
        path = self.path / shard_name(shard)
        if not path.exists():
            raise StoreDamagedError(
                f"{path} is missing. Delete the folder {self.path} and extract again."
            )
        return path

    def _require_intact(self, shard: int) -> None:
        if shard in self._intact_shards:
            return
        path = self._require_present(shard)
        with reading(path, StoreError):
            digest = file_sha256(path)
        if digest != self._manifest.shards[shard]:
            raise StoreDamagedError(
                f"{path} is cut short or altered: its checksum is not the one in {MANIFEST_NAME}. "
                f"Delete the folder {self.path} and extract again."
            )
        self._intact_shards.add(shard)


def _key(layer: int) -> str:
    return f"layer.{layer:02d}"


def _require_unused(folder: Path, table: bytes) -> None:
    # A run killed before its first manifest leaves these two; anything else is somebody's work.
    foreign = sorted(
        path.name
        for path in folder.iterdir()
        if path.name != LOCK_NAME and not (path.name == ITEMS_NAME and path.read_bytes() == table)
    )
    if foreign:
        raise StoreError(
            f"{folder} holds other files ({', '.join(foreign[:3])}) and no {MANIFEST_NAME}. "
            "Choose another --out."
        )
