"""Batches from further processes of the run that has a store: they go into its journal.

One process holds the store; it takes in what the others have written and makes the shards.

    with ActivationStore.open_or_create(out, meta, items, batches) as store:   # the first process
        ...
    with Contributor.open(out, meta, items, batches) as store:                 # each of the others
        for b in its_share_of(store.pending()):
            store.write_batch(b, compute(batches[b]))

All processes list what is pending before any of them writes, or they would not share the same list.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

import pandas as pd
from torch import Tensor

from hooks.store_checks import SHARD_ITEMS, planned, require_batch, require_same_run
from hooks.store_journal import Journal
from hooks.store_lock import lock_contributing
from hooks.store_manifest import Manifest, StoreMeta, read_manifest
from sally_anne.core.errors import StoreError


class Contributor:
    """A store that another process holds, opened for adding batches to its journal."""

    def __init__(
        self, path: Path, manifest: Manifest, items: pd.DataFrame, lock: IO[bytes]
    ) -> None:
        self.path = path
        self._manifest = manifest
        self._items = items
        self._lock: IO[bytes] | None = lock
        self._journal = Journal(path / "journal")
        kept = set(self._journal.batches())
        self._pending = [
            number
            for number in range(len(manifest.batches))
            if number not in kept and not manifest.merged(number)
        ]

    @classmethod
    def open(
        cls,
        path: str | Path,
        meta: StoreMeta,
        items: pd.DataFrame,
        batches: Sequence[Sequence[int]],
        shard_items: int = SHARD_ITEMS,
    ) -> Contributor:
        """Join the run that has opened the store; takes what `ActivationStore` was opened with.

        Raises:
            StoreMismatchError: the folder holds the store of a different run.
            StoreDamagedError: a file of it is missing or altered.
            StoreError: there is no store, or the plan does not fit the items.
        """
        folder = Path(path)
        given, table = planned(meta, items, batches, shard_items)
        manifest = read_manifest(folder)
        stored_items = require_same_run(folder, manifest, given, table)
        return cls(folder, manifest, stored_items, lock_contributing(folder))

    def __enter__(self) -> Contributor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write nothing more."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def pending(self) -> list[int]:
        """The batches that were not stored when this was opened and have not come from here."""
        return list(self._pending)

    def write_batch(self, b: int, activations: Tensor) -> None:
        """Keep the activations of batch `b` for the process that holds the store.

        Args:
            activations: `[len(batches[b]), L, H, D]` in the dtype of the meta.

        Raises:
            NonFiniteError: a value is NaN or infinite; names the item and the layer.
            StoreError: wrong shape or dtype, a batch that is stored already or does not exist,
                a contributor that is closed, or a full disk (what was stored before is kept).
        """
        if self._lock is None:
            raise StoreError(f"{self.path} is closed; open it again to add batches.")
        require_batch(self._manifest, self._items, lambda n: n not in self._pending, b, activations)
        self._journal.write(b, activations.detach().cpu())
        self._pending.remove(b)
