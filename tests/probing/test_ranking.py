"""The table of heads: what is fitted on which split, and how heads are ordered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import fit_probes, rank_heads, save_probes
from sally_anne.probing.probes import HeadProbes

LABELS = ("y_p", "y_o")

CONFIG = ProbeConfig(c=0.05, max_iter=200)


def probed(made) -> tuple[dict[str, HeadProbes], pd.DataFrame]:
    probes = fit_probes(made, CONFIG)
    return probes, rank_heads(made, probes)


def corrupted(made, split: str):
    """Other activations and other labels in one split."""
    rows = made.rows(split)
    x, items = made.x.copy(), made.items.copy()
    rng = np.random.default_rng(1)
    x[rows] = 50 * rng.normal(size=x[rows].shape)
    for label in LABELS:
        items.loc[rows, label] = rng.permutation(items.loc[rows, label].to_numpy())
    return replace(made, x=x, items=items)


def test_test_stories_touch_nothing_but_their_own_columns(made) -> None:
    probes, heads = probed(made)
    other_probes, other = probed(corrupted(made, "test"))
    for name in (*LABELS, "op"):
        before, after = probes[name], other_probes[name]
        np.testing.assert_array_equal(before.coef_, after.coef_)
        np.testing.assert_array_equal(before.intercept_, after.intercept_)
        np.testing.assert_array_equal(before.theta_, after.theta_)
    kept = [c for c in heads.columns if "_test_" not in c]
    assert {"y_p_rank", "y_o_rank", "y_p_sigma", "y_o_sigma"} <= set(kept)
    pd.testing.assert_frame_equal(heads[kept], other[kept], check_exact=True)
    assert not heads.drop(columns=kept).equals(other.drop(columns=kept))


def test_validation_stories_rank_but_are_never_fitted(made) -> None:
    probes, heads = probed(made)
    other_probes, other = probed(corrupted(made, "validation"))
    for name in (*LABELS, "op"):
        np.testing.assert_array_equal(probes[name].coef_, other_probes[name].coef_)
    for label in LABELS:
        pd.testing.assert_series_equal(heads[f"{label}_sigma"], other[f"{label}_sigma"])
        assert not heads[f"{label}_rank"].equals(other[f"{label}_rank"])


def test_ranked_by_validation_accuracy_then_by_log_loss(made) -> None:
    _, heads = probed(made)
    for label in LABELS:
        accuracy = heads[f"{label}_validation_accuracy"].tolist()
        loss = heads[f"{label}_validation_log_loss"].tolist()
        assert len(set(accuracy)) < len(accuracy), "no tie, so nothing is tested"
        best_first = sorted(range(len(heads)), key=lambda i: (-accuracy[i], loss[i]))
        ranks = heads[f"{label}_rank"].tolist()
        assert [ranks[i] for i in best_first] == list(range(1, len(heads) + 1))


def test_numbers_are_those_of_the_probes_on_each_split(made) -> None:
    probes, heads = probed(made)
    _, layers, n_heads, _ = made.x.shape
    assert heads["layer"].tolist() == [i for i in range(layers) for _ in range(n_heads)]
    assert heads["head"].tolist() == list(range(n_heads)) * layers
    for label in LABELS:
        probe, y = probes[label], made.items[label].to_numpy()
        for split in ("train", "validation", "test"):
            rows = made.rows(split)
            np.testing.assert_array_equal(
                heads[f"{label}_{split}_accuracy"], probe.score(made.x[rows], y[rows]).ravel()
            )
        held = made.rows("test")
        np.testing.assert_array_equal(
            heads[f"{label}_test_auc"], probe.auc(made.x[held], y[held]).ravel()
        )
        np.testing.assert_array_equal(
            heads[f"{label}_sigma"], probe.sigma(made.x[made.rows("train")]).ravel()
        )


def test_four_way_label_and_its_probe(made) -> None:
    probes, _ = probed(made)
    assert probes["op"].classes_.tolist() == [0, 1, 2, 3]
    both = 2 * made.test.values("y_o") + made.test.values("y_p")
    strongest = probes["op"].score(made.test.x, both)
    assert strongest[-1, -1] > 0.9 > strongest[0, 0]


def test_own_labels_named_like_beliefs_have_no_four_way_probe(made) -> None:
    words = made.items["y_o"].map({True: "yes", False: "no"})
    probes, _ = probed(replace(made, items=made.items.assign(y_o=words)))
    assert set(probes) == {"y_p", "y_o"}


def test_without_test_stories_their_columns_are_empty(made) -> None:
    kept = ~made.rows("test")
    _, heads = probed(replace(made, x=made.x[kept], items=made.items[kept].reset_index(drop=True)))
    assert heads.filter(like="_test_").isna().all(axis=None)
    assert heads.filter(like="_validation_").notna().all(axis=None)


def test_probes_come_back(made, tmp_path) -> None:
    probes = fit_probes(made, CONFIG)
    save_probes(tmp_path / "probes.safetensors", probes)
    tensors = load_file(tmp_path / "probes.safetensors")
    own = {
        f"{name}.{part}": getattr(probes[name], f"{part}_")
        for name in ("y_p", "y_o", "op")
        for part in ("coef", "intercept", "theta")
    }
    for name in ("y_p", "y_o"):
        own[f"{name}.sigma"] = probes[name].sigma(made.x[made.rows("train")])
    own["op.classes"] = np.arange(4)
    assert tensors.keys() == own.keys()
    for name, value in own.items():
        np.testing.assert_array_equal(tensors[name], value)
        assert tensors[name].shape == value.shape
