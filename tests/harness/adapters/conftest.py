"""What the tests of all plug-ins share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sally_anne.data.gridtom.stories import generated
from sally_anne.harness.adapters import task_files
from sally_anne.hooks.vector import SteeringVector

# Test stories that are among the three that a limit of 3 draws.
SEEN = ("story-0016", "story-0437")


@pytest.fixture(scope="module")
def files(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Files of the tasks for the `CLASS` of a module."""
    with task_files(request.module.CLASS) as folder:
        yield folder


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
