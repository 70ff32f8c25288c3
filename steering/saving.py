"""Steering vectors on disk: a folder that can be pushed to a hub as it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from sally_anne.benchmarks.lineage import SEEN
from sally_anne.core.errors import PositionError, SteeringError
from sally_anne.core.files import reading, write_atomic
from sally_anne.core.run_folder import VECTOR, require_own
from sally_anne.models.identity import FORCED, ModelIdentity, require_fitted
from steering.vector import SteeringVector

FILE = "vector.safetensors"
FORMAT = "sally-anne steering vector 2"
# The one entry of the file's metadata: with more, safetensors leaves their order to chance.
_ENTRY = "sally-anne"
# Of earlier versions: two entries, "format" and "vector", and no checksum.
_UNSUMMED = "sally-anne steering vector 1"
_AGAIN = "write the vector again with `python -m steering.run`"
_FACTS = ("heads", "n_layers", "n_heads", "alpha", "direction", "site", "positions", "fitted")


def save_vector(vector: SteeringVector, folder: Path | str) -> Path:
    """Write ``vector.safetensors`` (tensors ``theta``, ``sigma``; JSON metadata) and a card.

    The same vector gives the same bytes. A checksum of facts and numbers is in the metadata.

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
    facts = {name: getattr(vector, name) for name in _FACTS}
    tensors = {
        "theta": vector.theta.double().contiguous().cpu(),
        "sigma": vector.sigma.double().contiguous().cpu(),
    }
    text = json.dumps(facts, default=dict)
    entry = {"format": FORMAT, "sha256": _digest(text, tensors), "vector": text}
    write_atomic(folder / FILE, save(tensors, {_ENTRY: json.dumps(entry)}))
    write_atomic(folder / "README.md", card(vector).encode())
    return folder


def load_vector(
    path: Path | str, model: nn.Module | None = None, force: bool = False
) -> SteeringVector:
    """Read a vector.

    Args:
        path: the folder, or the safetensors file itself.
        model: refuse a vector that does not fit this model, or was fitted on another one as far as
            the modules can tell.
        force: take a vector that was fitted on another model; its facts say ``forced``.

    Raises:
        OtherModelError: it was fitted on other weights or in another dtype; both are named.
        SteeringError: no such file, a file cut short, altered or of another kind, a part that is
            missing, or a vector for another model (both shapes are named).
    """
    path = Path(path)
    file = path / FILE if path.is_dir() else path
    with reading(file, SteeringError, "python -m steering.run"), safe_open(file, "pt") as stored:
        metadata = stored.metadata() or {}
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    text = _facts(file, metadata, tensors)
    try:
        facts: dict[str, Any] = json.loads(text)
        facts["heads"] = tuple((int(layer), int(head)) for layer, head in facts["heads"])
        vector = SteeringVector(
            theta=tensors["theta"], sigma=tensors["sigma"], **{n: facts[n] for n in _FACTS}
        )
    except (KeyError, TypeError, RuntimeError, json.JSONDecodeError) as error:
        raise SteeringError(f"{file} lacks a part of a steering vector: {error}") from error
    except (ValueError, PositionError) as error:
        raise SteeringError(f"{file}: {error}") from error
    if force:
        vector = replace(vector, fitted={**vector.fitted, FORCED: True})
    if model is not None:
        vector.check(model)
        require_fitted(vector, ModelIdentity.of_module(model))
    return vector


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
        raise SteeringError(f"{file} is altered: its checksum does not fit; {_AGAIN}")
    if found != FORMAT:
        raise SteeringError(f"{file} is of format {found!r}; this toolkit reads {FORMAT!r}")
    return text


def _digest(facts: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the facts and of every tensor with its name, type and shape."""
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def describe(vector: SteeringVector) -> dict[str, Any]:
    """What identifies a vector: its facts, and a hash of its numbers."""
    digest = hashlib.sha256()
    for tensor in (vector.theta, vector.sigma):
        digest.update(tensor.double().contiguous().cpu().numpy().tobytes())
    facts = {name: getattr(vector, name) for name in _FACTS if name != "fitted"}
    return {**facts, "numbers": digest.hexdigest()[:16]}


def card(vector: SteeringVector) -> str:
    """The README of a saved vector."""
    fitted = vector.fitted
    model = fitted.get("model", "unknown")
    rows = "\n".join(f"| {name} | {_shown(name, value)} |" for name, value in fitted.items())
    heads = ", ".join(f"L{layer}H{head}" for layer, head in vector.heads)
    return f"""---
license: apache-2.0
base_model: {json.dumps(model)}
tags: [steering-vector, theory-of-mind, interpretability]
---
# Steering vector for {model}

Adds `alpha * sigma * theta` to the `{vector.site}` of {vector.k} attention heads
({vector.n_layers} layers x {vector.n_heads} heads x {vector.width}), at `{vector.positions}`.

| | |
|---|---|
| direction | {vector.direction} |
| alpha | {vector.alpha:g} |
| K | {vector.k} |
| heads, best first | {heads} |

## Fitted on

| | |
|---|---|
{rows}

## Use

```python
from steering.saving import load_vector

vector = load_vector("this/folder", model)
with vector.apply(model):
    model.generate(**inputs)
```
"""


def _shown(name: str, value: Any) -> str:
    if name == SEEN:
        parts = (f"{len(hashes)} {part}" for part, hashes in value.items())
        return f"{' and '.join(parts)} stories, whose hashes are in {FILE}"
    return value if isinstance(value, str) else f"`{json.dumps(value)}`"
