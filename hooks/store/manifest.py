"""What a store says about itself: the run, its items and batches, the checksums of its files."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from sally_anne.core.errors import StoreDamagedError, StoreError, StoreMismatchError
from sally_anne.core.files import reading, write_atomic

MANIFEST_NAME = "manifest.json"
ITEMS_NAME = "items.parquet"
_FORMAT = {"format": "sally-anne-activations", "version": 2}


@dataclass(frozen=True)
class StoreMeta:
    """What must agree between a store and a run: the same activations come out of the same meta.

    `dtype` is torch's name without the prefix ("float32", "bfloat16"); `head_dim` is the width of
    one slice at this site. `extra` holds what else decides the inputs (contrast, order, setting,
    data hash).
    """

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

    @property
    def torch_dtype(self) -> torch.dtype:
        """Of the activations. Raises StoreError if it is no floating point type."""
        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise StoreError(f"dtype {self.dtype!r} is no floating point type of torch.")
        return dtype


@dataclass(frozen=True)
class Manifest:
    """The contents of `manifest.json`.

    `batches` are the planned batches of item rows, the unit of computing and resuming. `shards`
    are the SHA-256 of their files, None as long as the store is not complete.
    """

    meta: StoreMeta
    items_sha256: str
    batches: tuple[tuple[int, ...], ...]
    shards: tuple[str, ...] | None = None


def planned(
    meta: StoreMeta, items: pd.DataFrame, batches: Sequence[Sequence[int]]
) -> tuple[Manifest, bytes]:
    """The manifest of a store that is still empty, and its items table as Parquet.

    Raises:
        StoreError: a batch is empty, an item is not in exactly one, the items lack a unique
            `item_id` or hold what Parquet cannot, or the meta's dtype is none.
    """
    plan = tuple(tuple(int(row) for row in batch) for batch in batches)
    if () in plan:
        raise StoreError(f"batch {plan.index(())} of the plan is empty.")
    times = [0] * len(items)
    for number, batch in enumerate(plan):
        for row in batch:
            if not 0 <= row < len(items):
                raise StoreError(f"batch {number} names item {row}; there are {len(items)} items.")
            times[row] += 1
    for row, found in enumerate(times):
        if found != 1:
            raise StoreError(f"item {row} is in {found} batches of the plan; it must be in one.")
    if "item_id" not in items.columns:
        raise StoreError(f"the items table has no column 'item_id', only {list(items.columns)}.")
    ids = items["item_id"]
    if ids.isna().any():
        raise StoreError("the items table has rows without an item_id.")
    if not ids.is_unique:
        raise StoreError(f"the items table has item_id {ids.mode()[0]!r} more than once.")
    try:
        table = items.reset_index(drop=True).to_parquet(engine="pyarrow", index=False)
    except (ValueError, TypeError) as error:  # pyarrow's own errors are kinds of these
        raise StoreError(f"the items table cannot be stored as Parquet: {error}") from error
    _ = meta.torch_dtype
    return Manifest(meta, hashlib.sha256(table).hexdigest(), plan), table


def items_from_bytes(table: bytes) -> pd.DataFrame:
    """One row an item, from Parquet."""
    return pd.read_parquet(io.BytesIO(table), engine="pyarrow")


def require_same_run(folder: Path, given: Manifest, table: bytes) -> tuple[Manifest, pd.DataFrame]:
    """The manifest and items of a store, which must be the one that a run would make.

    Raises:
        StoreMismatchError: names the first difference, and both values.
        StoreDamagedError: the manifest or the items table is missing or altered.
    """
    stored = read_manifest(folder)
    old, new = _flat(stored.meta), _flat(given.meta)
    for name in old | new:
        was, now = old.get(name, "(not set)"), new.get(name, "(not set)")
        if was != now:
            raise mismatch(folder, f"{name} is {was!r} in the store, {now!r} in this run")
    items = read_items(folder, stored)
    if difference := _first_difference(items, items_from_bytes(table)):
        raise mismatch(folder, difference)
    for number, (before, after) in enumerate(zip(stored.batches, given.batches, strict=False)):
        if before != after:
            difference = f"items {list(before)} in the store, {list(after)} in this run"
            raise mismatch(folder, f"batch {number} of the plan holds {difference}")
    return stored, items


def mismatch(folder: Path, what: str) -> StoreMismatchError:
    """The error for a store of another run, with the way out."""
    return StoreMismatchError(
        f"the store {folder} was made by a different run: {what}. "
        "Choose another --out, or delete that folder to start over."
    )


def read_items(folder: Path, manifest: Manifest) -> pd.DataFrame:
    """The items table of a store. Raises StoreDamagedError if it is missing or altered."""
    path = folder / ITEMS_NAME
    if not path.exists():
        raise _damaged(path, "missing")
    with reading(path, StoreError):
        table = path.read_bytes()
    if hashlib.sha256(table).hexdigest() != manifest.items_sha256:
        raise _damaged(path, "cut short or altered")
    return items_from_bytes(table)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest atomically. Raises StoreError when the disk is full."""
    write_atomic(folder / MANIFEST_NAME, _render(_FORMAT | asdict(manifest)))


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest.

    Raises:
        StoreError: there is none.
        StoreDamagedError: it is cut short or altered.
        StoreMismatchError: another version of this toolkit wrote it.
    """
    path = folder / MANIFEST_NAME
    if not path.exists() and not folder.is_file():
        raise StoreError(f"{folder} is no activation store: it has no {MANIFEST_NAME}.")
    with reading(path, StoreError):
        data = path.read_bytes()
    try:
        content = json.loads(data)
        intact = isinstance(content, dict) and data == _render(content)
    except ValueError:
        intact = False
    if not intact:
        raise _damaged(path, "cut short or altered")
    if (found := {name: content.pop(name) for name in _FORMAT}) != _FORMAT:
        raise StoreMismatchError(
            f"{path}: format {found['format']!r} version {found['version']}; this toolkit reads "
            f"{_FORMAT['format']!r} version {_FORMAT['version']}. Delete the folder {folder} and "
            "run the extraction again, or use the version that wrote it."
        )
    return Manifest(
        StoreMeta(**content["meta"]),
        content["items_sha256"],
        tuple(tuple(batch) for batch in content["batches"]),
        None if content["shards"] is None else tuple(content["shards"]),
    )


def _damaged(path: Path, how: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"{path} is {how}. Delete the folder {path.parent} and run the extraction again."
    )


def _flat(meta: StoreMeta) -> dict[str, Any]:
    flat = asdict(meta)
    extra = flat.pop("extra")
    return flat | {f"extra[{name!r}]": value for name, value in sorted(extra.items())}


def _first_difference(stored: pd.DataFrame, given: pd.DataFrame) -> str | None:
    """Where two items tables that both come from Parquet differ first, in words."""
    if list(stored) != list(given):
        return f"columns {list(stored)} in the store, {list(given)} in this run"
    if len(stored) != len(given):
        return f"{len(stored)} items in the store, {len(given)} in this run"
    for column in stored:
        for row, (old, new) in enumerate(zip(stored[column], given[column], strict=True)):
            if repr(old) != repr(new):
                return (
                    f"item {row} ({stored['item_id'].iloc[row]!r}), column {column!r}: "
                    f"{old!r} in the store, {new!r} in this run"
                )
    return None


def _render(content: dict[str, Any]) -> bytes:
    """One line a field, and a checksum of the others, so that no altered byte goes unnoticed."""
    body = {name: value for name, value in content.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    lines = [
        f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}"
        for name, value in {**body, "sha256": digest}.items()
    ]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()
