"""The files of a store: what each holds, how it is written, and what is wrong with one."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from sally_anne.core.errors import StoreDamagedError, StoreError, StoreMismatchError
from sally_anne.core.files import reading, write_atomic

MANIFEST_NAME = "manifest.json"
ITEMS_NAME = "items.parquet"
_FORMAT = {"format": "sally-anne-activations", "version": 2}
_SEAL = "sha256"
# Where a shard's own checksum stands while it is worked out.
_BLANK = b"0" * 64
# More than any header of a shard takes up.
_HEAD = 1 << 20


@dataclass(frozen=True)
class StoreMeta:
    """What must agree between a store and a run: the same activations come out of the same meta.

    `dtype` is torch's name without the prefix ("float32"); `head_dim` is the width of one slice at
    this site. `extra` holds what else decides the inputs (contrast, order, setting, data hash).
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
        """Of the activations."""
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
    """The manifest of a store that is still empty, and its items as Parquet."""
    plan = tuple(tuple(int(row) for row in batch) for batch in batches)
    if () in plan:
        raise StoreError(f"batch {plan.index(())} of the plan is empty.")
    times = Counter(row for batch in plan for row in batch)
    if beyond := times.keys() - range(len(items)):
        raise StoreError(f"the plan names item {min(beyond)}; there are {len(items)} items.")
    for row in range(len(items)):
        if times[row] != 1:
            raise StoreError(f"item {row} is in {times[row]} batches of the plan, not in one.")
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
    """The manifest and items of a store, which must be the one that a run would make."""
    stored = read_manifest(folder)
    items = read_items(folder, stored)
    before = _comparable(stored, items, items["item_id"])
    now = _comparable(given, items_from_bytes(table), items["item_id"])
    for name in now | before:
        one, other = before.get(name, "(not set)"), now.get(name, "(not set)")
        # By what is shown: nan is not nan.
        if repr(one) != repr(other):
            raise mismatch(folder, f"{name} is {one!r} in the store, {other!r} in this run")
    return stored, items


def _comparable(manifest: Manifest, items: pd.DataFrame, ids: pd.Series) -> dict[str, Any]:
    """All that must agree between a store and a run, what says most about a difference first."""
    meta = asdict(manifest.meta)
    extra = meta.pop("extra")
    found = {f"option {name}": value for name, value in extra.items()} | meta
    found |= {"list of columns": list(items), "number of items": len(items)}
    for column in items:
        for row, (name, value) in enumerate(zip(ids, items[column], strict=False)):
            found[f"item {row} ({name!r}), column {column!r}"] = value
    batches = enumerate(manifest.batches)
    return found | {f"batch {number} of the plan": list(rows) for number, rows in batches}


def mismatch(folder: Path, what: str) -> StoreMismatchError:
    """The error for a store of another run, with the way out."""
    return StoreMismatchError(
        f"the store {folder} was made by a different run: {what}. "
        "Choose another --out, or delete that folder to start over."
    )


def read_items(folder: Path, manifest: Manifest) -> pd.DataFrame:
    """The items table of a store, if it is whole."""
    path = folder / ITEMS_NAME
    if not path.exists():
        raise _damaged(path, "missing")
    with reading(path, StoreError):
        table = path.read_bytes()
    if hashlib.sha256(table).hexdigest() != manifest.items_sha256:
        raise _damaged(path, "cut short or altered")
    return items_from_bytes(table)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest atomically."""
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


def _render(content: dict[str, Any]) -> bytes:
    """One line a field, and a checksum of the others, so that no altered byte goes unnoticed."""
    body = {name: value for name, value in content.items() if name != _SEAL}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    lines = [
        f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}"
        for name, value in {**body, _SEAL: digest}.items()
    ]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def shard_path(folder: Path, batch: int) -> Path:
    """The file of a batch."""
    return folder / f"shard-{batch:05d}.safetensors"


def shards_in(folder: Path) -> set[int]:
    """The batches that have a file; none is read."""
    return {int(path.stem.removeprefix("shard-")) for path in folder.glob("shard-*.safetensors")}


def write_shard(folder: Path, batch: int, activations: Tensor) -> str:
    """Write `[n, L, H, D]` of a batch; gives its checksum.

    A shard vouches for itself: the only entry of its metadata, as safetensors writes several in no
    fixed order, is the SHA-256 of the batch's number and the whole file, with zeros in its place.
    """
    tensors = {_key(i): layer.contiguous() for i, layer in enumerate(activations.unbind(1))}
    data = save(tensors, metadata={_SEAL: _BLANK.decode()})
    digest = hashlib.sha256(f"{batch} ".encode())
    digest.update(data)
    checksum = digest.hexdigest()
    write_atomic(shard_path(folder, batch), data.replace(_BLANK, checksum.encode(), 1))
    return checksum


def check_shard(folder: Path, batch: int) -> str:
    """The checksum of a shard, which is read from the disk, if it is as it was written."""
    path = shard_path(folder, batch)
    if not path.exists():
        raise damaged_shard(path, "is missing")
    try:
        with reading(path, StoreError, damaged=StoreDamagedError):
            with safe_open(path, framework="pt") as shard:
                stated: str = shard.metadata()[_SEAL]
            digest = hashlib.sha256(f"{batch} ".encode())
            with open(path, "rb") as file:
                digest.update(file.read(_HEAD).replace(stated.encode(), _BLANK, 1))
                hashlib.file_digest(file, lambda: digest)
    except StoreDamagedError as error:
        raise damaged_shard(path, "is cut short or altered") from error
    if digest.hexdigest() != stated:
        raise damaged_shard(path, "is cut short or altered: its checksum is another")
    return stated


def damaged_shard(path: Path, what: str) -> StoreDamagedError:
    """The error for a shard, with the way out."""
    return StoreDamagedError(
        f"{path} {what}. Delete it and run the extraction again with the same --out: "
        "that batch alone is computed again."
    )


def read_shard(folder: Path, batch: int, layers: Sequence[int]) -> list[Tensor]:
    """`[n, H, D]` of each of `layers`; nothing else is read. Check the shard first."""
    with safe_open(shard_path(folder, batch), framework="pt") as file:
        return [file.get_tensor(_key(layer)) for layer in layers]


def _key(layer: int) -> str:
    return f"layer.{layer:02d}"
