"""Probes and the table of heads on disk: safetensors and Parquet."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load, save

from probing.ranking import LABELS, ProbeSet
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import intact, reading, write_atomic

CONFIG, HEADS, PROBES = "config.json", "heads.parquet", "probes.safetensors"
MANIFEST = "activations/manifest.json"
# How a damaged file is made again, with the run's folder.
AGAIN = (
    "Delete that file and run `python -m probing.run` again with the run's options and --out {}: "
    "it goes on from the activations."
)


def save_probes(path: Path, probes: ProbeSet, heads: pd.DataFrame) -> None:
    """Weights of all probes.

    Keys: ``y_p.coef [L, H, D]``, ``y_p.intercept [L, H]``, ``y_p.theta [L, H, D]`` (unit),
    ``y_p.sigma [L, H]``; the same for ``y_o``; ``op.coef [L, H, 4, D]`` and
    ``op.intercept [L, H, 4]`` with classes o0p0, o0p1, o1p0, o1p1 (2 * y_o + y_p).
    """
    tensors: dict[str, np.ndarray] = {}
    for name in (*LABELS, "op"):
        probe = getattr(probes, name)
        tensors[f"{name}.coef"] = probe.coef_
        tensors[f"{name}.intercept"] = probe.intercept_
        tensors[f"{name}.theta"] = probe.theta_
        if name in LABELS:
            tensors[f"{name}.sigma"] = (
                heads[f"{name}_sigma"].to_numpy().reshape(probe.intercept_.shape)
            )
    tensors["op.classes"] = probes.op.classes_.astype(np.int64)
    write_atomic(path, save({k: np.ascontiguousarray(v) for k, v in tensors.items()}))


def load_probes(
    path: Path, sealed: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, np.ndarray]:
    """The tensors written by :func:`save_probes`.

    Args:
        path: the file.
        sealed: the run's config.json, which knows its checksum.

    Raises:
        ProbingError: it is missing, refused or damaged.
        AlteredError: it is not the one that the run wrote.
    """
    with _reading(path):
        return load(_intact(path, sealed))


def save_heads(path: Path, heads: pd.DataFrame) -> None:
    """The table of heads as Parquet."""
    write_atomic(path, heads.to_parquet(None, index=False))


def read_heads(path: Path, sealed: Mapping[str, Any] = MappingProxyType({})) -> pd.DataFrame:
    """The table of heads.

    Args:
        path: the file.
        sealed: the run's config.json, which knows its checksum.

    Raises:
        ProbingError: it is missing, refused or damaged.
        AlteredError: it is not the one that the run wrote.
    """
    with _reading(path):
        return pd.read_parquet(io.BytesIO(_intact(path, sealed)))


def _reading(path: Path) -> AbstractContextManager[None]:
    return reading(path, ProbingError, f"python -m probing.run --out {path.parent}")


def _intact(path: Path, sealed: Mapping[str, Any]) -> bytes:
    return intact(path.parent, path.name, sealed, AGAIN.format(path.parent))
