"""What the tests of all plug-ins share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sally_anne.data.gridtom.stories import generated
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.vector import SteeringVector

# Test stories that are among the three that a limit of 3 draws.
SEEN = ("story-0016", "story-0437")


def random_vector(model: torch.nn.Module, heads: Sequence[tuple[int, int]], **more: Any) -> Any:
    """Directions drawn at random, of one length."""
    found = find_geometry(model)
    draw = torch.Generator().manual_seed(3)
    theta = torch.randn(len(heads), found.head_dim, generator=draw)
    return SteeringVector(
        heads=tuple(heads),
        theta=theta / theta.norm(dim=1, keepdim=True),
        n_layers=found.n_layers,
        n_heads=found.n_heads,
        **{"sigma": torch.ones(len(heads))} | more,
    )


@pytest.fixture
def seen_vector(tmp_path: Path) -> str:
    """Folder of a vector that was fitted on :data:`SEEN`."""
    seen = [generated().identity(int(story[-4:])).content for story in SEEN]
    vector = SteeringVector(
        heads=((0, 0),),
        theta=torch.tensor([[1.0, 0.0]]),
        sigma=torch.ones(1),
        n_layers=1,
        n_heads=1,
        fitted={"seen": {"train": seen, "validation": []}},
    )
    return str(vector.save(tmp_path / "vector"))
