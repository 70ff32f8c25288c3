"""The shards of a store: one safetensors file a batch, with one tensor `[n, H, D]` a layer.

A shard vouches for itself. Its header holds the SHA-256 of the batch's number and the whole file,
with zeros where that checksum stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from sally_anne.core.errors import StoreDamagedError, StoreError
from sally_anne.core.files import reading, write_atomic

# The only entry: safetensors writes several in no fixed order.
_SEAL = "sha256"
_BLANK = b"0" * 64
# More than any header takes up.
_HEAD = 1 << 20


def shard_path(folder: Path, batch: int) -> Path:
    """The file of a batch."""
    return folder / f"shard-{batch:05d}.safetensors"


def shards_in(folder: Path) -> set[int]:
    """The batches that have a file; none is read."""
    return {int(path.stem.removeprefix("shard-")) for path in folder.glob("shard-*.safetensors")}


def write_shard(folder: Path, batch: int, activations: Tensor) -> str:
    """Write `[n, L, H, D]` of a batch; gives its checksum. Raises StoreError on a full disk."""
    tensors = {
        _key(layer): activations[:, layer].contiguous() for layer in range(activations.shape[1])
    }
    data = save(tensors, metadata={_SEAL: _BLANK.decode()})
    digest = _begun(batch)
    digest.update(data)
    checksum = digest.hexdigest()
    write_atomic(shard_path(folder, batch), data.replace(_BLANK, checksum.encode(), 1))
    return checksum


def check_shard(folder: Path, batch: int) -> str:
    """The checksum of a shard, which is read from the disk and as it was written.

    Raises:
        StoreDamagedError: names the file, which is missing, cut short or altered.
        StoreError: the system does not let it be read; it may be whole.
    """
    path = shard_path(folder, batch)
    if not path.exists():
        raise damaged_shard(path, "is missing")
    try:
        with reading(path, StoreError, damaged=StoreDamagedError):
            with safe_open(path, framework="pt") as shard:
                stated: str = shard.metadata()[_SEAL]
            digest = _begun(batch)
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


def _begun(batch: int) -> hashlib._Hash:
    return hashlib.sha256(f"{batch} ".encode())


def _key(layer: int) -> str:
    return f"layer.{layer:02d}"
