"""The journal of a store: one file for each finished batch, until its shards are merged."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from sally_anne.core.errors import StoreDamagedError, StoreError
from sally_anne.core.files import reading, remove_leftovers, write_atomic

_KEY = "activations"
_FILES = "batch-*.safetensors"


class Journal:
    """The finished batches of a store that are not in a shard yet.

    Each file carries a checksum of its contents in its header; a file that does not match is never
    used, its batch is computed again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, batch: int) -> Path:
        """The file of a batch."""
        return self.folder / f"batch-{batch:07d}.safetensors"

    def write(self, batch: int, activations: Tensor) -> None:
        """Keep `[n, L, H, D]` of a batch. Raises StoreError when the disk is full."""
        self.folder.mkdir(exist_ok=True)
        activations = activations.contiguous()
        header = {"sha256": _checksum(batch, activations)}
        write_atomic(self.path(batch), save({_KEY: activations}, metadata=header))

    def read(self, batch: int) -> Tensor | None:
        """The activations of a batch, or None if the file is missing or damaged.

        Raises:
            StoreError: the system does not let it be read; it may be whole.
        """
        path = self.path(batch)
        if not path.exists():
            return None
        try:
            with (
                reading(path, StoreError, damaged=StoreDamagedError),
                safe_open(path, "pt") as file,
            ):
                header = file.metadata() or {}
                activations = file.get_tensor(_KEY)
        except StoreDamagedError:
            return None
        return activations if header.get("sha256") == _checksum(batch, activations) else None

    def batches(self) -> list[int]:
        """The batches that have a file, in order; none is read."""
        return sorted(int(path.stem[6:]) for path in self.folder.glob(_FILES))

    def recover(self) -> list[int]:
        """Clear up after a killed writer and return the intact batches, warning of each other."""
        if not self.folder.exists():
            return []
        remove_leftovers(self.folder, [_FILES])
        intact = []
        for batch in self.batches():
            if self.read(batch) is not None:
                intact.append(batch)
                continue
            warnings.warn(
                f"{self.path(batch)} is damaged; batch {batch} will be computed again.",
                stacklevel=2,
            )
            self.remove(batch)
        return intact

    def remove(self, batch: int) -> None:
        """Remove the file of a batch, if there is one."""
        self.path(batch).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder, which must hold nothing any more."""
        if self.folder.exists():
            self.folder.rmdir()


def _checksum(batch: int, activations: Tensor) -> str:
    # Number, type and shape belong in: an altered header must not pass with unaltered numbers.
    digest = hashlib.sha256(f"{batch} {activations.dtype} {list(activations.shape)} ".encode())
    digest.update(activations.view(torch.uint8).numpy().data)
    return digest.hexdigest()
