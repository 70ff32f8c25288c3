"""Probes and the table of heads on disk: safetensors and Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from hooks.atomic import write_atomic
from probing.errors import ProbingError
from probing.ranking import LABELS, ProbeSet


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


def load_probes(path: Path) -> dict[str, np.ndarray]:
    """The tensors written by :func:`save_probes`.

    Raises:
        ProbingError: there is no such file, or it is damaged.
    """
    if not path.exists():
        raise ProbingError(f"{path} is missing; `python -m probing.run` writes it")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ProbingError(
            f"{path} is damaged ({error}); delete it and run `python -m probing.run` again"
        ) from error


def save_heads(path: Path, heads: pd.DataFrame) -> None:
    """The table of heads as Parquet."""
    write_atomic(path, heads.to_parquet(None, index=False))
