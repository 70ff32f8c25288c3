"""The tiny models of both families, opened, and clips for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.tiny import FAMILIES, Family


@pytest.fixture(scope="session", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, folders: dict[Family, Path]) -> LoadedModel:
    """Each family's model, opened once: do not change it."""
    return load_model(str(folders[request.param]))


@pytest.fixture(params=FAMILIES)
def fresh(request: pytest.FixtureRequest, folders: dict[Family, Path]) -> LoadedModel:
    """Each family's model, opened for one test."""
    return load_model(str(folders[request.param]))


@pytest.fixture
def copy(folders: dict[Family, Path], tmp_path: Path) -> Callable[[Family], Path]:
    """A model folder that a test may damage."""

    def make(family: Family = "qwen2-vl") -> Path:
        return Path(shutil.copytree(folders[family], tmp_path / "copy" / family))

    return make


@pytest.fixture(scope="session")
def clips() -> list[np.ndarray]:
    """Two clips of seven frames."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (7, 420, 294, 3), dtype=np.uint8) for _ in range(2)]
