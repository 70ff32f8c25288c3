"""Finished probing runs, of made-up activations and of the tiny model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

import sally_anne.steering.questions
from sally_anne.core.folder import Journal
from sally_anne.core.store import ActivationStore, StoreMeta
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import fit_probes, rank_heads, save_probes
from sally_anne.probing.pipeline import run as probe
from sally_anne.probing.probes import Activations
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.fit import fit_vector
from sally_anne.steering.points import SweepPoint
from sally_anne.steering.questions import answer_points
from sally_anne.steering.sweep import Sweep
from sally_anne.steering.sweep import run as work
from tests.made_run import make_items
from tests.steering.made_sweep import STORIES as ASKED
from tests.steering.made_sweep import replies

STORIES = {"train": 12, "validation": 10, "test": 8}
MADE_LAYERS, MADE_HEADS, MADE_WIDTH = 3, 4, 5


@dataclass(frozen=True)
class Made:
    """Activations ``[N, L, H, D]``, their labels and the run folder made of them."""

    x: np.ndarray
    items: pd.DataFrame
    folder: Path

    def rows(self, split: str) -> np.ndarray:
        return (self.items["split"] == split).to_numpy()


@pytest.fixture(scope="session")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Made]:
    """``write(x, items, **options)``: a finished run folder on these activations."""

    def make(
        x: np.ndarray,
        items: pd.DataFrame,
        dtype: str = "float32",
        labels: tuple[str, ...] = ("y_p", "y_o"),
        **options,
    ) -> Made:
        folder = tmp_path_factory.mktemp("run")
        stored = torch.from_numpy(x).to(getattr(torch, dtype))
        meta = StoreMeta("head_out", "statement", "tiny", "0", "p", "q", dtype, *x.shape[1:])
        order = np.random.default_rng(5).permutation(len(items)).tolist()
        batches = [order[start : start + 7] for start in range(0, len(order), 7)]
        with ActivationStore.open_or_create(folder / "activations", meta, items, batches) as store:
            for number, batch in enumerate(batches):
                store.write_batch(number, stored[batch])
            store.finish()
        x = stored.float().numpy()
        config = ProbeConfig(model="tiny", solver="sklearn", c=0.05, max_iter=200, **options)
        activations = Activations(x, items, labels)
        probes = fit_probes(activations, config)
        heads = rank_heads(activations, probes)
        save_probes(folder / "probes.safetensors", probes)
        heads.to_parquet(folder / "heads.parquet", index=False)
        saved = {
            "config": json.loads(json.dumps(asdict(config), default=str))
            | {"position": "statement"},
            "model": {"source": "tiny", "revision": "0", "dtype": dtype},
            "data": {"source": "generated", "fingerprint": "abc"},
        }
        (folder / "config.json").write_text(json.dumps(saved))
        return Made(x, items, folder)

    return make


@pytest.fixture(scope="session")
def made(write: Callable[..., Made]) -> Made:
    """A run in which some heads know the labels: look, but do not touch."""
    items = make_items(STORIES)
    strength = np.linspace(0.1, 1.2, MADE_LAYERS * MADE_HEADS).reshape(MADE_LAYERS, MADE_HEADS)
    x = np.random.default_rng(0).normal(size=(len(items), MADE_LAYERS, MADE_HEADS, MADE_WIDTH))
    for axis, label in enumerate(("y_p", "y_o")):
        x[..., axis] += (2.0 * items[label].to_numpy()[:, None, None] - 1.0) * strength
        strength = strength[::-1]
    # Far from zero, as true activations are, and wider in one direction off both labels.
    x[..., 2] *= 1.5
    return write((x + 0.7).astype(np.float32), items)


@pytest.fixture
def copy(made: Made, tmp_path: Path) -> Made:
    """The run in a folder that a test may damage."""
    return replace(made, folder=Path(shutil.copytree(made.folder, tmp_path / "run")))


@pytest.fixture(scope="session")
def probed(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A true run on the untrained model: look, but do not touch."""
    folder = tmp_path_factory.mktemp("probed") / "run"
    config = ProbeConfig(
        model=str(model_folder),
        setting="text",
        stories=24,
        figures=False,
        out=folder,
        permutations=19,
        patching=False,
    )
    probe(config, Console(quiet=True))
    return folder


@pytest.fixture(scope="session")
def steering_folder(probed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vector of that run, which is strong enough that the model says something else."""
    folder = tmp_path_factory.mktemp("vectors") / "strong"
    return fit_vector(probed, 8, 50.0).save(folder)


def answer_before(
    monkeypatch: pytest.MonkeyPatch, said: Callable[[SweepPoint, Any], dict[str, str]]
) -> list[tuple[str, list[SweepPoint]]]:
    """Replies are in the journals before they are asked for; tells which journals, which points."""
    asked: list[tuple[str, list[SweepPoint]]] = []

    def prepared(
        loaded: Any, items: Any, vectors: Mapping[SweepPoint, Any], journal: Journal, *rest: Any
    ) -> pd.DataFrame:
        asked.append((journal.path.name, list(vectors)))
        journal.add(
            {"item_id": f"{point.name}|{item_id}", "reply": reply}
            for point in vectors
            for item_id, reply in said(point, items).items()
        )
        return answer_points(loaded, items, vectors, journal, *rest)

    monkeypatch.setattr(sally_anne.steering.questions, "answer_points", prepared)
    return asked


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[SweepPoint]]]:
    """All replies are those of the made sweep."""
    return answer_before(monkeypatch, replies)


@pytest.fixture
def config(model_folder: Path, probed: Path, tmp_path: Path) -> SweepConfig:
    return SweepConfig(
        model=str(model_folder),
        k=(2, 3, 4),
        alpha=(0.0, 1.0, 2.0),
        setting="text",
        run=probed,
        limit=ASKED,
        random_controls=2,
        leave_out=2,
        out=tmp_path / "sweep",
    )


@pytest.fixture
def sweep(config: SweepConfig, answered: list[Any]) -> Callable[..., Sweep]:
    """``sweep(**changes)``: what a sweep finds."""
    return lambda **changes: work(replace(config, **changes), Console(quiet=True))
