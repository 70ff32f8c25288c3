"""A safetensors file with facts in JSON and tensors, sealed by their SHA-256.

The same facts and tensors give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from sally_anne.core.errors import SallyAnneError
from sally_anne.core.files import reading, write_atomic

# The one entry of the file's metadata: with more, safetensors leaves their order to chance.
_ENTRY = "sally-anne"


@dataclass(frozen=True)
class TensorFile:
    """One kind of such files.

    Attributes:
        what: what a file holds, e.g. ``steering vector``.
        formats: what is read; the first is how messages call it.
        part: what the facts are called in the file.
        made_by: what writes it, for messages.
        error: what is raised.
        unsummed: a format of earlier versions: two entries, "format" and the facts, no checksum.
    """

    what: str
    formats: tuple[str, ...]
    part: str
    made_by: str
    error: type[SallyAnneError]
    unsummed: str | None = None

    def write(
        self, path: Path, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], form: str
    ) -> None:
        """Write a file in one of the formats."""
        text = json.dumps(facts, default=dict)
        entry = {"format": form, "sha256": _digest(text, tensors), self.part: text}
        write_atomic(path, save(dict(tensors), {_ENTRY: json.dumps(entry)}))

    def read(self, path: Path) -> tuple[str, dict[str, Tensor]]:
        """Facts, as the JSON that was written, and tensors; an ``error`` names what is wrong."""
        with reading(path, self.error, self.made_by), safe_open(path, "pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        if self.unsummed and metadata.get("format") == self.unsummed and self.part in metadata:
            return metadata[self.part], tensors
        try:
            entry = json.loads(metadata[_ENTRY])
            found, digest, text = entry["format"], entry["sha256"], str(entry[self.part])
        except (KeyError, TypeError, ValueError):
            raise self.error(
                f"{path} is not a {self.what} of this toolkit: its format is "
                f"{metadata.get('format')!r}, not {self.formats[0]!r}"
            ) from None
        if digest != _digest(text, tensors):
            raise self.error(
                f"{path} is altered: its checksum does not fit; write the {self.what} again with "
                f"`{self.made_by}`"
            )
        if found not in self.formats:
            raise self.error(
                f"{path} is of format {found!r}; this toolkit reads {self.formats[0]!r}"
            )
        return text, tensors


def _digest(facts: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the facts and of every tensor with its name, type and shape."""
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
