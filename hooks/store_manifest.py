"""The manifest of a store: what was run, which batches, which shards, and their checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from sally_anne.core.errors import StoreDamagedError, StoreError, StoreMismatchError
from sally_anne.core.files import reading, write_atomic

MANIFEST_NAME = "manifest.json"
ITEMS_NAME = "items.parquet"
FORMAT = "sally-anne-activations"
VERSION = 1


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


@dataclass(frozen=True)
class Manifest:
    """All that a store says about itself.

    `batches` are the planned batches of item rows, the unit of computing and resuming. `shards`
    maps the number of each merged shard to the SHA-256 of its file.
    """

    meta: StoreMeta
    n_items: int
    items_sha256: str
    batches: tuple[tuple[int, ...], ...]
    shard_items: int
    shards: dict[int, str] = field(default_factory=dict)
    complete: bool = False

    @property
    def n_shards(self) -> int:
        """How many shards the complete store has."""
        return -(-self.n_items // self.shard_items)

    def shard_rows(self, shard: int) -> range:
        """The item rows of a shard."""
        start = shard * self.shard_items
        return range(start, min(start + self.shard_items, self.n_items))

    def merged(self, batch: int) -> bool:
        """Whether all rows of a batch lie in merged shards."""
        return all(row // self.shard_items in self.shards for row in self.batches[batch])

    def with_shard(self, shard: int, sha256: str) -> Manifest:
        """The manifest after one more shard was merged."""
        return replace(self, shards={**self.shards, shard: sha256})


def shard_name(shard: int) -> str:
    """The file name of a shard."""
    return f"shard-{shard:05d}.safetensors"


def checked_batches(batches: Sequence[Sequence[int]], n_items: int) -> tuple[tuple[int, ...], ...]:
    """The batch plan as plain integers.

    Raises:
        StoreError: an empty batch, or an item that is not in exactly one batch.
    """
    plan = tuple(tuple(int(row) for row in batch) for batch in batches)
    if () in plan:
        raise StoreError(f"batch {plan.index(())} of the plan is empty.")
    seen = [0] * n_items
    for number, batch in enumerate(plan):
        for row in batch:
            if not 0 <= row < n_items:
                raise StoreError(f"batch {number} names item {row}; there are {n_items} items.")
            seen[row] += 1
    for row, count in enumerate(seen):
        if count != 1:
            raise StoreError(f"item {row} is in {count} batches of the plan; it must be in one.")
    return plan


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest atomically. Raises StoreError when the disk is full."""
    write_atomic(folder / MANIFEST_NAME, _render(_to_json(manifest)))


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
        raise StoreDamagedError(
            f"{path} is cut short or altered. Delete the folder {folder} and extract again."
        )
    if (content["format"], content["version"]) != (FORMAT, VERSION):
        raise StoreMismatchError(
            f"{path}: format {content['format']!r} version {content['version']}; this toolkit "
            f"reads {FORMAT!r} version {VERSION}. Use the version that wrote it, or another --out."
        )
    return Manifest(
        meta=StoreMeta(**content["meta"]),
        n_items=content["n_items"],
        items_sha256=content["items_sha256"],
        batches=tuple(tuple(batch) for batch in content["batches"]),
        shard_items=content["shard_items"],
        shards={int(shard): digest for shard, digest in content["shards"].items()},
        complete=content["complete"],
    )


def require_same_meta(folder: Path, stored: Manifest, given: Manifest) -> None:
    """Check that a store was made by the same run.

    Raises:
        StoreMismatchError: names the field and both values.
    """
    old, new = _flat(stored), _flat(given)
    for name in [*old, *(name for name in new if name not in old)]:
        if old.get(name) != new.get(name):
            raise mismatch(
                folder,
                f"{name} is {old.get(name, '(not set)')!r} in the store, "
                f"{new.get(name, '(not set)')!r} in this run",
            )


def require_same_plan(folder: Path, stored: Manifest, given: Manifest) -> None:
    """Check that a store was made with the same batches, without which numbers may differ.

    Raises:
        StoreMismatchError: names the first batch that differs.
    """
    for number, (before, now) in enumerate(zip(stored.batches, given.batches, strict=False)):
        if before != now:
            raise mismatch(
                folder,
                f"batch {number} of the plan holds items {list(before)} in the store, "
                f"{list(now)} in this run",
            )
    if len(stored.batches) != len(given.batches):
        raise mismatch(
            folder,
            f"the plan has {len(stored.batches)} batches in the store, "
            f"{len(given.batches)} in this run",
        )


def mismatch(folder: Path, what: str) -> StoreMismatchError:
    """The error for a store of another run, with the way out."""
    return StoreMismatchError(
        f"the store {folder} was made by a different run: {what}. "
        "Choose another --out, or delete that folder to start over."
    )


def _flat(manifest: Manifest) -> dict[str, Any]:
    meta = manifest.meta
    flat = {f.name: getattr(meta, f.name) for f in fields(meta) if f.name != "extra"}
    flat |= {f"extra[{name!r}]": value for name, value in sorted(meta.extra.items())}
    return flat | {"shard_items": manifest.shard_items}


def _to_json(manifest: Manifest) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "complete": manifest.complete,
        "meta": asdict(manifest.meta),
        "n_items": manifest.n_items,
        "items_sha256": manifest.items_sha256,
        "shard_items": manifest.shard_items,
        "shards": {str(shard): manifest.shards[shard] for shard in sorted(manifest.shards)},
        "batches": [list(batch) for batch in manifest.batches],
    }


def _render(content: dict[str, Any]) -> bytes:
    """One line a field, and a checksum of the others, so that no altered byte goes unnoticed."""
    body = {name: value for name, value in content.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    lines = [
        f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}"
        for name, value in {**body, "sha256": digest}.items()
    ]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()
