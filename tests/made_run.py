"""A made-up run folder: activations with known directions, probes fitted in closed form."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file

from sally_anne.core.store import ActivationStore, StoreMeta
from sally_anne.probing.probes import Activations

ROWS = ((True, True, "TB"), (False, False, "TB"), (True, False, "FB"), (False, True, "FB"))
CONFIG = {
    "model": "tiny-qwen2-vl",
    "order": 1,
    "contrast": "matched",
    "setting": "multimodal",
    "site": "head_out",
    "position": "statement",
}
WIDTH = 6


@dataclass(frozen=True)
class MadeRun:
    """The folder and all that was put in it."""

    folder: Path
    items: pd.DataFrame
    z: np.ndarray  # [N, L, H, D]
    heads: pd.DataFrame
    probes: dict[str, np.ndarray]


def write_store(folder: Path, items: pd.DataFrame, z: np.ndarray) -> None:
    """A complete activation store of ``z [N, L, H, D]``, written as an extraction does."""
    meta = StoreMeta(
        site="head_out",
        position="statement",
        model_id="tiny",
        model_revision="0",
        processor_hash="0",
        prompt_hash="0",
        dtype="float32",
        n_layers=z.shape[1],
        n_heads=z.shape[2],
        head_dim=z.shape[3],
    )
    rows = np.arange(len(items))
    with ActivationStore.open_or_create(folder, meta, items, [rows.tolist()]) as store:
        store.write_batch(0, torch.from_numpy(z))
        store.finish()


def make_items(groups: dict[str, int]) -> pd.DataFrame:
    rows = []
    for split, count in groups.items():
        for group in range(count):
            for y_p, y_o, condition in ROWS:
                rows.append(
                    {
                        "item_id": f"{split}-{group}-{int(y_p)}{int(y_o)}",
                        "group": f"{split}-{group}",
                        "split": split,
                        "y_p": y_p,
                        "y_o": y_o,
                        "condition": condition,
                    }
                )
    return pd.DataFrame(rows)


def make_activations(items: pd.DataFrame, strength: np.ndarray, seed: int = 0) -> np.ndarray:
    """Y_p on axis 0 and Y_o on axis 1 of each head, ``strength [L, H]`` standard deviations."""
    z = np.random.default_rng(seed).normal(size=(len(items), *strength.shape, WIDTH))
    for axis, label in enumerate(("y_p", "y_o")):
        z[..., axis] += (2.0 * items[label].to_numpy()[:, None, None] - 1.0) * strength
    z[..., 2] *= 3.0  # the main direction off both labels
    return z.astype("float32")


def fit(items: pd.DataFrame, z: np.ndarray) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """A probe a head whose weight is the difference of class means; its accuracies."""
    layers, heads = np.indices(z.shape[1:3])
    table = pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel()})
    probes: dict[str, np.ndarray] = {}
    train = (items["split"] == "train").to_numpy()
    for label in ("y_p", "y_o"):
        truth = items[label].to_numpy(dtype=bool)
        upper, lower = z[train & truth].mean(axis=0), z[train & ~truth].mean(axis=0)
        coef = upper - lower
        intercept = -0.5 * (coef * (upper + lower)).sum(axis=-1)
        probes[f"{label}.coef"] = coef.astype("float32")
        probes[f"{label}.intercept"] = intercept.astype("float32")
        right = ((z * coef).sum(axis=-1) + intercept > 0) == truth[:, None, None]
        for split in ("train", "validation", "test"):
            rows = (items["split"] == split).to_numpy()
            score = right[rows].mean(axis=0) if rows.any() else np.full(coef.shape[:2], np.nan)
            table[f"{label}_{split}_accuracy"] = score.ravel()
        table[f"{label}_rank"] = (
            table[f"{label}_validation_accuracy"].rank(method="first", ascending=False).astype(int)
        )
    return table, probes


def three_kinds(**more: Any) -> Activations:
    """Sixty samples of three kinds, which head 1 of layer 0 tells apart."""
    kinds = np.arange(60) % 3
    items = pd.DataFrame(
        {
            "item_id": [f"s{i}" for i in range(60)],
            "group": [f"g{i}" for i in range(60)],
            "split": ["train"] * 36 + ["validation"] * 12 + ["test"] * 12,
            "kind": np.array(["cat", "dog", "owl"])[kinds],
            "warm": kinds == 1,
        }
    )
    x = np.random.default_rng(0).normal(size=(60, 2, 2, 4)).astype("float32")
    x[np.arange(60), 0, 1, kinds] += 6.0
    return Activations(x, items, ("kind", "warm"), **more)


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., MadeRun]:
    def make(
        layers: int = 6,
        heads: int = 8,
        groups: dict[str, int] | None = None,
        strength: np.ndarray | None = None,
        name: str = "run",
        config: dict | None = None,
    ) -> MadeRun:
        items = make_items(groups or {"train": 25, "validation": 10, "test": 15})
        if strength is None:
            strength = np.zeros((layers, heads))
            strength[layers - 2, min(3, heads - 1)] = 3.0
            strength[layers // 2, :2] = 1.0
        z = make_activations(items, strength)
        table, probes = fit(items, z)
        folder = tmp_path / name
        folder.mkdir()
        saved = {"config": CONFIG if config is None else config, "versions": {}, "results": {}}
        (folder / "config.json").write_text(json.dumps(saved))
        write_store(folder / "activations", items, z)
        table.to_parquet(folder / "heads.parquet")
        save_file(probes, folder / "probes.safetensors")
        return MadeRun(folder, items, z, table, probes)

    return make


@pytest.fixture
def run(make_run: Callable[..., MadeRun]) -> MadeRun:
    return make_run()
