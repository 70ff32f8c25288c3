"""A tiny untrained model in a folder, and runs on it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from models.loading import LoadedModel
from probing.config import ProbeConfig
from probing.pipeline import carry_out


@pytest.fixture(scope="session")
def options(model_folder: Path) -> dict[str, Any]:
    """A quick run: text alone, few stories, no figures."""
    return {"model": str(model_folder), "setting": "text", "stories": 24, "figures": False}


@pytest.fixture(scope="session")
def carry(options: dict[str, Any]) -> Callable[..., str]:
    """``carry(out, **changes)``: do a run; gives what it printed."""

    def run(out: Path, **changes: Any) -> str:
        printed = io.StringIO()
        config = ProbeConfig(**{**options, "out": out, **changes})
        carry_out(config, Console(file=printed, width=200))
        return printed.getvalue()

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
