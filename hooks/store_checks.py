"""What every writer checks: that the store is the same run's, and that a batch fits the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from hooks.finite import require_finite
from hooks.store_items import first_difference, items_from_bytes, items_to_bytes
from hooks.store_manifest import (
    ITEMS_NAME,
    Manifest,
    StoreMeta,
    checked_batches,
    mismatch,
    require_same_meta,
    require_same_plan,
)
from sally_anne.core.errors import StoreDamagedError, StoreError
from sally_anne.core.files import reading

SHARD_ITEMS = 256


def planned(
    meta: StoreMeta, items: pd.DataFrame, batches: Sequence[Sequence[int]], shard_items: int
) -> tuple[Manifest, bytes]:
    """The manifest of a store that is still empty, and its items table as Parquet.

    Raises:
        StoreError: the plan does not fit the items, or the meta's dtype is none.
    """
    if shard_items < 1:
        raise StoreError(f"shard_items is {shard_items}; a shard holds at least one item.")
    dtype_of(meta)
    table = items_to_bytes(items)
    manifest = Manifest(
        meta=meta,
        n_items=len(items),
        items_sha256=hashlib.sha256(table).hexdigest(),
        batches=checked_batches(batches, len(items)),
        shard_items=shard_items,
    )
    return manifest, table


def require_same_run(folder: Path, stored: Manifest, given: Manifest, table: bytes) -> pd.DataFrame:
    """Check that a store on disk is the one that a run would make; returns its items.

    Raises:
        StoreMismatchError: names the first difference.
        StoreDamagedError: the items table is missing or altered.
    """
    require_same_meta(folder, stored, given)
    items = read_items(folder, stored)
    difference = first_difference(items, items_from_bytes(table))
    if difference is not None:
        raise mismatch(folder, difference)
    require_same_plan(folder, stored, given)
    return items


def read_items(folder: Path, manifest: Manifest) -> pd.DataFrame:
    """The items table of a store.

    Raises:
        StoreDamagedError: it is missing or altered.
    """
    path = folder / ITEMS_NAME
    if not path.exists():
        raise StoreDamagedError(f"{path} is missing. Delete the folder {folder} and extract again.")
    with reading(path, StoreError):
        data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != manifest.items_sha256:
        raise StoreDamagedError(
            f"{path} is cut short or altered. Delete the folder {folder} and extract again."
        )
    return items_from_bytes(data)


def dtype_of(meta: StoreMeta) -> torch.dtype:
    """The dtype of a store's activations. Raises StoreError if it is no floating point type."""
    dtype = getattr(torch, meta.dtype, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise StoreError(f"dtype {meta.dtype!r} is no floating point type of torch.")
    return dtype


def require_batch(
    manifest: Manifest,
    items: pd.DataFrame,
    stored: Callable[[int], bool],
    b: int,
    activations: Tensor,
) -> None:
    """Check that activations are those of a batch that is still to be stored.

    Args:
        stored: whether a batch of the plan is stored already.
        activations: `[len(batches[b]), L, H, D]`.

    Raises:
        NonFiniteError: a value is NaN or infinite; names the item and the layer.
        StoreError: wrong shape or dtype, a batch that is stored already or does not exist.
    """
    if not 0 <= b < len(manifest.batches):
        raise StoreError(f"there is no batch {b}; the plan has {len(manifest.batches)}.")
    if stored(b):
        raise StoreError(f"batch {b} is stored already; write only the batches of pending().")
    rows, meta = manifest.batches[b], manifest.meta
    wanted = (len(rows), meta.n_layers, meta.n_heads, meta.head_dim)
    if tuple(activations.shape) != wanted:
        raise StoreError(
            f"batch {b} has shape {tuple(activations.shape)}; the store wants {wanted} "
            "[items, layers, heads, head width]."
        )
    if activations.dtype != dtype_of(meta):
        raise StoreError(
            f"batch {b} is {activations.dtype}, the store holds {meta.dtype}: "
            f"call .to(torch.{meta.dtype}) before writing."
        )
    require_finite(activations, [str(items["item_id"].iloc[row]) for row in rows])
