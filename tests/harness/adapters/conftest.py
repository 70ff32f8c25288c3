"""What the tests of all plug-ins share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hooks.vector import SteeringVector
from sally_anne.benchmarks.gridtom.stories import generated


@pytest.fixture
def seen_vector(tmp_path: Path) -> str:
    """Folder of a vector that was fitted on the first and third story, which are test stories."""
    seen = [generated().identity(i).content for i in (0, 2)]
    vector = SteeringVector(
        heads=((0, 0),),
        theta=torch.tensor([[1.0, 0.0]]),
        sigma=torch.ones(1),
        n_layers=1,
        n_heads=1,
        fitted={"seen": {"train": seen, "validation": []}},
    )
    return str(vector.save(tmp_path / "vector"))
