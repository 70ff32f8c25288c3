"""Steering vectors on disk: a folder that can be pushed to a hub as it is.

A model with a vector baked into its weights has the vector's facts beside them, in ``RECORD``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, uint8

from hooks.identity import SEEN
from sally_anne.core.errors import SallyAnneError, SteeringError
from sally_anne.core.files import read_object, reading, write_atomic
from sally_anne.core.run_folder import VECTOR, require_own

FILE, CARD = "vector.safetensors", "README.md"
# In a checkpoint that a vector is baked into.
RECORD = "steering.json"
FORMAT = "sally-anne steering vector 2"
# What a vector is beside its tensors ``theta`` and ``sigma``.
FACTS = ("heads", "n_layers", "n_heads", "alpha", "direction", "site", "positions", "fitted")
# The one entry of the file's metadata: with more, safetensors leaves their order to chance.
_ENTRY = "sally-anne"
# Of earlier versions: two entries, "format" and "vector", and no checksum.
_UNSUMMED = "sally-anne steering vector 1"
_MADE_BY = "sally-anne steer"


def write_vector(
    folder: Path | str, facts: Mapping[str, Any], theta: Tensor, sigma: Tensor
) -> Path:
    """Write ``vector.safetensors`` (tensors ``theta``, ``sigma``; JSON metadata) and a card.

    The same vector gives the same bytes. A checksum of facts and numbers is in the metadata.

    Args:
        folder: made if it is not there.
        facts: ``FACTS`` by name.
        theta: ``[K, D]``.
        sigma: ``[K]``.

    Returns:
        The folder.

    Raises:
        StoreError: the disk is full.
        FolderError: the folder holds something else than a vector.
        SteeringError: the folder cannot be made.
    """
    folder = Path(folder)
    require_own(folder, VECTOR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SteeringError(f"{folder} cannot be made ({error.strerror})") from error
    tensors = {
        name: tensor.double().contiguous().cpu()
        for name, tensor in (("theta", theta), ("sigma", sigma))
    }
    text = json.dumps(facts, default=dict)
    entry = {"format": FORMAT, "sha256": _digest(text, tensors), "vector": text}
    write_atomic(folder / FILE, save(tensors, {_ENTRY: json.dumps(entry)}))
    write_atomic(folder / CARD, card(facts, theta.shape[1]).encode())
    return folder


def read_vector(file: Path) -> dict[str, Any]:
    """The facts of a vector, with ``theta`` and ``sigma``, as they were written.

    Raises:
        SteeringError: no such file, a file cut short, altered or of another kind, or a part that
            is missing.
    """
    with reading(file, SteeringError, _MADE_BY), safe_open(file, "pt") as stored:
        metadata = stored.metadata() or {}
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    text = _facts(file, metadata, tensors)
    try:
        facts = json.loads(text)
        parts = {name: facts[name] for name in FACTS}
        return parts | {name: tensors[name] for name in ("theta", "sigma")}
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise SteeringError(f"{file} lacks a part of a steering vector: {error}") from error


def baked_facts(model: Path | str, error: type[SallyAnneError]) -> dict[str, Any] | None:
    """What a vector that is baked into the checkpoint of a folder was fitted on; None without one.

    Raises:
        error: the folder's record is damaged.
    """
    record = Path(model).expanduser() / RECORD
    if not record.exists():
        return None
    saved = read_object(record, error, "sally-anne bake", {"vector": ("fitted",)})
    return dict(saved["vector"]["fitted"])


def _facts(file: Path, metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """The facts of a vector as JSON, as they were written.

    Raises:
        SteeringError: it is no vector, or its checksum does not fit.
    """
    if metadata.get("format") == _UNSUMMED and "vector" in metadata:
        return metadata["vector"]
    try:
        entry = json.loads(metadata[_ENTRY])
        found, digest, text = entry["format"], entry["sha256"], str(entry["vector"])
    except (KeyError, TypeError, ValueError):
        raise SteeringError(
            f"{file} is not a steering vector of this toolkit: its format is "
            f"{metadata.get('format')!r}, not {FORMAT!r}"
        ) from None
    if digest != _digest(text, tensors):
        raise SteeringError(
            f"{file} is altered: its checksum does not fit; write the vector again with "
            f"`{_MADE_BY}`"
        )
    if found != FORMAT:
        raise SteeringError(f"{file} is of format {found!r}; this toolkit reads {FORMAT!r}")
    return text


def _digest(facts: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the facts and of every tensor with its name, type and shape."""
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(uint8).numpy().data)
    return digest.hexdigest()


def card(facts: Mapping[str, Any], width: int) -> str:
    """The README of a saved vector: ``FACTS``, and the width D of its heads."""
    fitted = facts["fitted"]
    model = fitted.get("model", "unknown")
    rows = "\n".join(f"| {name} | {_in_words(name, value)} |" for name, value in fitted.items())
    heads = ", ".join(f"L{layer}H{head}" for layer, head in facts["heads"])
    return f"""---
license: apache-2.0
base_model: {json.dumps(model)}
tags: [steering-vector, theory-of-mind, interpretability]
---
# Steering vector for {model}

Adds `alpha * sigma * theta` to the `{facts["site"]}` of {len(facts["heads"])} attention heads
({facts["n_layers"]} layers x {facts["n_heads"]} heads x {width}), at `{facts["positions"]}`.

| | |
|---|---|
| direction | {facts["direction"]} |
| alpha | {facts["alpha"]:g} |
| K | {len(facts["heads"])} |
| heads, best first | {heads} |
{rows}

## Use

```python
import sally_anne as sa

vector = sa.SteeringVector.load("this/folder", model)
with vector.apply(model):
    model.generate(**inputs)
```
"""


def _in_words(name: str, value: Any) -> str:
    if name == SEEN:
        parts = (f"{len(hashes)} {part}" for part, hashes in value.items())
        return f"{' and '.join(parts)} stories, whose hashes are in {FILE}"
    return value if isinstance(value, str) else f"`{json.dumps(value)}`"
