"""Made-up activations whose heads know the labels more or less well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sally_anne.models.loading import LoadedModel
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import run as work
from sally_anne.probing.probes import Activations
from tests.made_replies import printed
from tests.made_run import make_items

STORIES = {"train": 10, "validation": 5, "test": 8}
LAYERS, HEADS, WIDTH = 2, 4, 6


@dataclass(frozen=True, eq=False)
class Made(Activations):
    """Activations of which the rows of a split can be asked for."""

    def rows(self, split: str) -> np.ndarray:
        return (self.items["split"] == split).to_numpy()


@pytest.fixture
def made() -> Made:
    items = make_items(STORIES)
    strength = np.linspace(0.0, 2.5, LAYERS * HEADS).reshape(LAYERS, HEADS)
    x = np.random.default_rng(0).normal(size=(len(items), LAYERS, HEADS, WIDTH))
    for axis, label in enumerate(("y_p", "y_o")):
        x[..., axis] += (2.0 * items[label].to_numpy()[:, None, None] - 1.0) * strength
    return Made(x.astype(np.float32), items, ("y_p", "y_o"))


@pytest.fixture(scope="session")
def options(model_folder: Path) -> dict[str, Any]:
    """A quick run: text alone, few stories and permutations, no scan, no figures."""
    quick = {"permutations": 39, "patching": False, "figures": False}
    return {"model": str(model_folder), "setting": "text", "stories": 24, **quick}


@pytest.fixture(scope="session")
def carry(options: dict[str, Any]) -> Callable[..., str]:
    """``carry(out, **changes)``: do a run; gives what it printed."""

    def run(out: Path, **changes: Any) -> str:
        return printed(work, ProbeConfig(**{**options, "out": out, **changes}))[1]

    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, carry: Callable[..., str]) -> Path:
    """A finished run with its figures: look, but do not touch."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    carry(folder, figures=True)
    return folder


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's weights cannot be read."""

    def refuse(self: LoadedModel) -> None:
        pytest.fail("the weights were read")

    monkeypatch.setattr(LoadedModel, "model", property(refuse))
