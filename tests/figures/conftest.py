"""Runs with planted numbers: what is drawn, read from the artists, is known by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from safetensors.numpy import save_file

from tests.made_run import CONFIG, make_items, make_run, run, write_store  # noqa: F401

CORNERS = {(True, True): (7, 5), (False, False): (-9, -1), (True, False): (3, -3)}
CORNERS[False, True] = (-5, 7)


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures as they are when they are saved."""
    figures: list[Figure] = []

    def keep(figure: Figure, kind: str = "png", dpi: int = 0) -> bytes:
        if kind == "png":
            figure.draw_without_rendering()
            figures.append(figure)
        return b""

    monkeypatch.setattr("sally_anne.figures.style.render", keep)
    return figures


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """One layer of two heads; each (Y_p, Y_o) has a place of its own in head 0.

    Samples lie at x = 10, y = 20 and a corner from there, a little scattered in the held-out ones.
    Y_p's probe is 2 x - 18, so it says 0.5 at x = 9; Y_o's is 4 y - 84, at y = 21. The third
    coordinate varies most and tells nothing; the fourth is the same for all.
    """
    items = make_items({"train": 8, "validation": 6, "test": 6})
    labels = items[["y_p", "y_o"]].itertuples(index=False)
    places = np.array([CORNERS[bool(p), bool(o)] for p, o in labels], dtype=float)
    z = np.zeros((len(items), 1, 2, 4), dtype="float32")
    draw = np.random.default_rng(0)
    held = (items["split"] != "train").to_numpy()
    z[:, 0, 0, :2] = places + [10, 20]
    z[held, 0, 0, :2] += draw.uniform(-0.5, 0.5, (held.sum(), 2))
    z[:, 0, 0, 2] = np.tile([-40, -20, 20, 40], len(items) // 4)[draw.permutation(len(items))]
    z[~held, 0, 0, 2] = np.repeat([-40, 40], 16)  # as often with every label
    z[:, 0, 1, 0] = draw.normal(size=len(items))
    accuracies = {"train": (1.0, 0.5), "validation": (0.96, 0.51), "test": (0.93, 0.54)}
    heads = pd.DataFrame({"layer": [0, 0], "head": [0, 1]})
    for shift, label in ((0.0, "y_p"), (0.03, "y_o")):
        for split, values in accuracies.items():
            heads[f"{label}_{split}_accuracy"] = [value + shift for value in values]
        heads[f"{label}_rank"] = [1, 2]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"config": CONFIG, "results": {}}))
    write_store(folder / "activations", items, z)
    heads.to_parquet(folder / "heads.parquet")
    probes = {
        "y_p.coef": np.array([[[2, 0, 0, 0], [1, 0, 0, 0]]], dtype="float32"),
        "y_p.intercept": np.array([[-18, 0]], dtype="float32"),
        "y_o.coef": np.array([[[0, 4, 0, 0], [0, 1, 0, 0]]], dtype="float32"),
        "y_o.intercept": np.array([[-84, 0]], dtype="float32"),
    }
    save_file(probes, folder / "probes.safetensors")
    return folder
