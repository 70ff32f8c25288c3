"""Vectors from a run: which heads, which directions, how wide, and from which stories alone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from sally_anne.core.errors import SteeringError
from sally_anne.hooks.vector import SteeringVector
from sally_anne.probing.activations import Activations
from sally_anne.steering.fit import DIRECTIONS, VectorConfig, fit_vector
from sally_anne.steering.fit import run as steer

pytestmark = pytest.mark.integration

K = 5


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def unit_of(x: np.ndarray) -> float:
    """One number for a head, by which the penalty does not depend on its unit."""
    return np.sqrt(x.var(axis=0).mean())


def same(one, other) -> bool:
    return (
        one.heads == other.heads
        and torch.equal(one.theta, other.theta)
        and torch.equal(one.sigma, other.sigma)
    )


def ranked(folder, label: str) -> list[tuple[int, int]]:
    """Heads by validation accuracy, ties by validation log-loss."""
    table = pd.read_parquet(folder / "heads.parquet")
    columns = [f"{label}_validation_accuracy", f"{label}_validation_log_loss"]
    table = table.sort_values(columns, ascending=[False, True])
    return list(zip(table["layer"].tolist(), table["head"].tolist(), strict=True))


@pytest.mark.parametrize("label", ["y_p", "y_o"])
def test_heads_are_the_best_by_validation_accuracy(made, label: str) -> None:
    vector = fit_vector(made.folder, K, label=label)
    assert list(vector.heads) == ranked(made.folder, label)[:K]
    x, y = made.x.astype(np.float64), made.items[label].to_numpy(bool)
    train, held = made.rows("train"), made.rows("validation")
    scores = {}
    for layer, head in np.ndindex(*x.shape[1:3]):
        z = x[:, layer, head] / unit_of(x[train, layer, head])
        probe = LogisticRegression(C=0.05, max_iter=200).fit(z[train], y[train])
        scores[layer, head] = probe.score(z[held], y[held])
    found = [scores[head] for head in vector.heads]
    assert found == sorted(scores.values(), reverse=True)[:K]
    assert len(set(scores.values())) > K


def reference(kind: str, x: np.ndarray, y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The direction of one head, made in another way: of ``x [N, D]`` and labels ``[N]``."""
    if kind == "logistic":
        return LogisticRegression(C=0.05, max_iter=200).fit(x / unit_of(x), y).coef_[0]
    if kind.startswith("multinomial"):
        number = 2 * int(kind[-3]) + int(kind[-1])
        return LogisticRegression(C=0.05, max_iter=200).fit(x / unit_of(x), classes).coef_[number]
    between = x[y].mean(axis=0) - x[~y].mean(axis=0)
    if kind in ("mass_mean", "patched_mean"):
        return between
    if kind == "pca":
        spread, axes = np.linalg.eigh(np.cov(x, rowvar=False))
        first = axes[:, np.argmax(spread)]
        return first * np.sign(between @ first)
    # Each class' covariance shrunk after Ledoit and Wolf (2004, lemmata 3.2 to 3.4), averaged.
    pooled = np.zeros(2 * x.shape[1:])
    for value in (False, True):
        own = x[y == value]
        scale = own.std(axis=0)
        z = (own - own.mean(axis=0)) / scale
        cov = z.T @ z / len(z)
        mu = np.trace(cov) / len(cov)
        spread = ((cov - mu * np.eye(len(cov))) ** 2).sum()
        error = sum(((np.outer(row, row) - cov) ** 2).sum() for row in z) / len(z) ** 2
        shrink = min(error, spread) / spread
        cov = (1 - shrink) * cov + shrink * mu * np.eye(len(cov))
        pooled += (y == value).mean() * cov * np.outer(scale, scale)
    return np.linalg.solve(pooled, between)


@pytest.mark.parametrize("kind", DIRECTIONS)
def test_directions_and_widths_are_of_training_activations(made, kind: str) -> None:
    label = "y_o"
    patched = Activations(made.x, made.items, (label,)).train
    vector = fit_vector(made.folder, K, direction=kind, label=label, patched=patched)
    assert vector.heads == fit_vector(made.folder, K, label=label).heads
    train = made.rows("train")
    items = made.items[train]
    y, classes = items[label].to_numpy(bool), 2 * items["y_o"].to_numpy(int) + items["y_p"]
    for (layer, head), theta, sigma in zip(
        vector.heads, vector.theta.numpy(), vector.sigma.tolist(), strict=True
    ):
        x = made.x[train, layer, head].astype(np.float64)
        expected = unit(reference(kind, x, y, classes))
        np.testing.assert_allclose(theta, expected, rtol=1e-6, atol=1e-8)
        assert math.isclose(np.linalg.norm(theta), 1.0, rel_tol=1e-12)
        along = [sum(float(value) * t for value, t in zip(row, theta, strict=True)) for row in x]
        mean = sum(along) / len(along)
        width = math.sqrt(sum((a - mean) ** 2 for a in along) / len(along))
        assert sigma == pytest.approx(width, rel=1e-9)


@pytest.mark.parametrize("kind", ["logistic", "pca"])
@pytest.mark.parametrize("control", ["random", "random_heads"])
def test_a_control_steps_as_far_as_its_vector(made, control: str, kind: str) -> None:
    vector = fit_vector(made.folder, K, 2.5, direction=kind, positions="all")
    everyone = fit_vector(made.folder, 12, direction=kind)
    thetas = []
    for seed in range(3):
        drawn = fit_vector(made.folder, K, None, control, seed=seed, norm_matched_to=vector)
        again = fit_vector(made.folder, K, 2.5, control, seed=seed, norm_matched_to=vector)
        assert same(drawn, again) and drawn.fitted["seed"] == seed
        thetas.append(drawn.theta)
        sizes = [
            torch.stack([v.delta()[layer, head].norm() for layer, head in v.heads])
            for v in (vector, drawn)
        ]
        torch.testing.assert_close(*sizes, rtol=1e-6, atol=1e-6)
        assert drawn.fitted["norm_matched_to"] == kind
        assert (drawn.alpha, drawn.positions) == (2.5, "all")
        if control == "random":
            assert drawn.heads == vector.heads
            assert not torch.allclose(drawn.theta, vector.theta)
        else:
            assert not set(drawn.heads) & set(vector.heads)
            for head, theta in zip(drawn.heads, drawn.theta, strict=True):
                assert torch.equal(theta, everyone.theta[everyone.heads.index(head)])
    assert not torch.allclose(thetas[0], thetas[1])


def test_heads_by_patching(made, copy) -> None:
    with pytest.raises(SteeringError):
        fit_vector(copy.folder, K, rank_by="patching")
    path = copy.folder / "heads.parquet"
    table = pd.read_parquet(path)
    carried = np.random.default_rng(3).permutation(len(table)) / len(table)
    table.assign(question_effect_validation=carried).to_parquet(path, index=False)
    best = table.iloc[np.argsort(-carried)[:K]]
    vector = fit_vector(copy.folder, K, rank_by="patching")
    assert list(vector.heads) == list(zip(best["layer"], best["head"], strict=True))
    assert vector.heads != fit_vector(copy.folder, K).heads
    assert vector.fitted["rank_by"] == "patching"
    drawn = fit_vector(
        copy.folder, K, direction="random_heads", rank_by="patching", norm_matched_to=vector
    )
    assert not set(drawn.heads) & set(vector.heads)
    # Or by what they are worth where they are worst.
    both = {"question_effect_validation": carried, "y_p_validation_worst": carried}
    table.assign(**both).to_parquet(path, index=False)
    assert fit_vector(copy.folder, K, rank_by="worst_condition").heads == vector.heads
    out = copy.folder / "by-cause"
    steer(VectorConfig(run=copy.folder, k=K, alpha=1.0, rank_by="patching", out=out))
    assert SteeringVector.load(out).heads == vector.heads


def test_test_stories_have_no_influence(made, write) -> None:
    x, items = made.x.copy(), made.items.copy()
    rows, rng = made.rows("test"), np.random.default_rng(1)
    x[rows] = 50 * rng.normal(size=x[rows].shape)
    for label in ("y_p", "y_o"):
        items.loc[rows, label] = rng.permutation(items.loc[rows, label].to_numpy())
    other = write(x, items)
    tables = [pd.read_parquet(run.folder / "heads.parquet") for run in (made, other)]
    assert not tables[0]["y_p_test_accuracy"].equals(tables[1]["y_p_test_accuracy"])
    for direction in set(DIRECTIONS) - {"patched_mean"}:
        one, two = (fit_vector(run.folder, K, direction=direction) for run in (made, other))
        assert same(one, two), direction


def test_labels_of_ones_own(write) -> None:
    """Two values or several, of any name: the vector leads to the value that is asked for."""
    rng = np.random.default_rng(0)
    n = 90
    items = pd.DataFrame(
        {
            "item_id": [f"s{i}" for i in range(n)],
            "group": [f"g{i}" for i in range(n)],
            "split": ["train", "validation", "test"] * (n // 3),
            "polite": rng.random(n) < 0.5,
            "mood": rng.choice(["calm", "glad", "sad"], n),
        }
    )
    x = rng.normal(size=(n, 2, 2, 3))
    x[:, 1, 0, 0] += 4 * items["polite"].to_numpy()
    x[:, 0, 1, 2] += 4 * (items["mood"] == "glad").to_numpy()
    run = write(x, items, labels=("polite", "mood"), samples="mine.jsonl").folder
    vector = fit_vector(run, 1, label="polite")
    assert vector.heads == ((1, 0),) and vector.theta[0, 0] > 0.9
    assert (vector.fitted["label"], vector.fitted["samples"]) == ("polite", "mine.jsonl")
    back = fit_vector(run, 1, label="polite", towards="False")
    assert torch.equal(back.theta, -vector.theta) and back.fitted["towards"] is False
    for direction in ("logistic", "mass_mean"):
        glad = fit_vector(run, 1, label="mood", towards="glad", direction=direction)
        assert glad.heads == ((0, 1),) and glad.theta[0, 2] > 0.9
    for wrong in ({"label": "mood"}, {"label": "mood", "towards": "grim"}, {"label": "y_p"}):
        with pytest.raises(SteeringError):
            fit_vector(run, 1, **wrong)
    first = fit_vector(run, 1)
    assert first.fitted == vector.fitted and torch.equal(first.theta, vector.theta)
    steer(VectorConfig(run=run, k=1, alpha=1.0))
    saved = SteeringVector.load(run / "vectors" / "logistic-polite-K1-alpha1")
    assert torch.equal(saved.theta, vector.theta)


@pytest.mark.parametrize(
    ("given", "k", "alpha"), [({}, 3, 2.5), ({"k": 2}, 2, 2.5), ({"alpha": -1.5}, 3, -1.5)]
)
def test_the_sweep_gives_what_is_left_out(
    made, tmp_path: Path, given: dict[str, Any], k: int, alpha: float
) -> None:
    saved = {
        "config": {"direction": "mass_mean", "label": "y_p", "towards": None},
        # Of several rankings the first one's.
        "about": {"fitted": {**fit_vector(made.folder, 1).fitted, "rank_by": "patching"}},
        "found": "Both, less the baseline's: 3 points",
        "chosen": {"k": 3, "alpha": 2.5, "rank_by": "probe_accuracy"},
        "run": str(made.folder),
    }
    (tmp_path / "results.json").write_text(json.dumps(saved))
    steer(VectorConfig(sweep=tmp_path, out=tmp_path / "v", **given))
    vector = SteeringVector.load(tmp_path / "v")
    unit = fit_vector(made.folder, k, direction="mass_mean")
    assert (vector.k, vector.alpha, unit.alpha) == (k, alpha, 1.0)
    # What the sweep found is of what it chose.
    assert ("found" in vector.fitted) == (given == {})
    assert vector.heads == unit.heads
    assert torch.equal(vector.delta(), unit.delta(alpha))
