"""Sweeps over directions that mean nothing: what they cost does not depend on that."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from sally_anne.harness.items import Item
from sally_anne.harness.journal import Journal
from sally_anne.hooks.geometry import Geometry
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel
from sally_anne.steering.cells import Cell, run_cells


def random_vector(geometry: Geometry, k: int, seed: int = 0) -> SteeringVector:
    """A weak vector in ``k`` heads of a model; with one seed, fewer heads are among those of more.

    Args:
        geometry: of the model.
        k: number of heads, at most all.
        seed: of heads and directions.
    """
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(geometry.n_layers * geometry.n_heads, generator=draw).tolist()
    theta = torch.randn(k, geometry.head_dim, generator=draw, dtype=torch.float64)
    return SteeringVector(
        heads=tuple(divmod(n, geometry.n_heads) for n in order[:k]),
        theta=theta / theta.norm(dim=1, keepdim=True),
        sigma=torch.full((k,), 0.01, dtype=torch.float64),
        n_layers=geometry.n_layers,
        n_heads=geometry.n_heads,
    )


def run_once(
    loaded: LoadedModel,
    asked: Sequence[Item],
    vectors: Mapping[Cell, SteeringVector | None],
    batch_size: int,
    rows: int,
    max_new_tokens: int,
) -> None:
    """A whole sweep, of which nothing is kept; arguments as of `run_cells`."""
    with (
        tempfile.TemporaryDirectory(prefix="perf-") as folder,
        Journal(Path(folder) / "sweep.jsonl", {}) as journal,
    ):
        run_cells(loaded, asked, vectors, journal, batch_size, rows, max_new_tokens)
