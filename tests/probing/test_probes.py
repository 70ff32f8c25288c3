"""Every head's probe against scikit-learn's own; theta and sigma against plain loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from sally_anne.core.errors import ProbingError
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import fit_probes, rank_heads, save_probes
from sally_anne.probing.probes import Activations, HeadProbes, Solver, chance

N, L, H, D = 48, 2, 3, 5

C = 0.3


def labelled(n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(N) % n_classes
    x = np.random.default_rng(seed).normal(size=(N, L, H, D))
    x += np.eye(n_classes, D)[y][:, None, None] * np.linspace(0, 2, H)[:, None]
    return x.astype(np.float32), y


@pytest.mark.parametrize(("n_classes", "normalise"), [(2, True), (2, False), (4, False)])
def test_each_head_is_its_own_logistic_regression(n_classes: int, normalise: bool) -> None:
    x, y = labelled(n_classes, seed=0)
    held_x, held_y = labelled(n_classes, seed=1)
    probes = HeadProbes(c=C, max_iter=200, solver="sklearn", normalise=normalise).fit(x, y)
    probabilities, accuracy = probes.predict_proba(held_x), probes.score(held_x, held_y)
    predicted, logits = probes.predict(held_x), probes.decision_function(held_x)
    losses = probes.log_loss(logits, held_y)
    assert probabilities.shape == (N, L, H, n_classes)
    assert probes.coef_.shape == ((L, H, D) if n_classes == 2 else (L, H, n_classes, D))
    for layer in range(L):
        for head in range(H):
            at = (slice(None), layer, head)
            train, z = x[at].astype(np.float64), held_x[at].astype(np.float64)
            unit = np.sqrt(train.var(axis=0).mean()) if normalise else 1.0
            own = LogisticRegression(C=C, max_iter=200).fit(train / unit, y)
            own.coef_ = own.coef_ / unit  # of activations as they are
            np.testing.assert_allclose(
                probes.coef_[layer, head].reshape(own.coef_.shape), own.coef_, rtol=1e-12
            )
            np.testing.assert_allclose(
                np.atleast_1d(probes.intercept_[layer, head]), own.intercept_, rtol=1e-12
            )
            np.testing.assert_allclose(logits[at], own.decision_function(z), atol=1e-12)
            np.testing.assert_allclose(probabilities[at], own.predict_proba(z), atol=1e-12)
            np.testing.assert_array_equal(predicted[at], own.predict(z))
            assert accuracy[layer, head] == own.score(z, held_y)
            assert losses[layer, head] == pytest.approx(log_loss(held_y, own.predict_proba(z)))
            if n_classes == 2:
                auc = roc_auc_score(held_y, own.decision_function(z))
                assert probes.auc(logits, held_y)[layer, head] == pytest.approx(auc)
    assert accuracy.max() > accuracy.min()


@pytest.mark.parametrize("n_classes", [2, 4])
def test_sigma_is_the_deviation_of_projections_on_the_unit_theta(n_classes: int) -> None:
    x, y = labelled(n_classes, seed=0)
    probes = HeadProbes(c=C).fit(x, y)
    np.testing.assert_allclose(np.linalg.norm(probes.theta_, axis=-1), 1.0)
    sigma = probes.sigma(x)
    for layer in range(L):
        for head in range(H):
            weights = probes.coef_[layer, head].reshape(-1, D)
            for k, weight in enumerate(weights):
                length = float(sum(w * w for w in weight)) ** 0.5
                along = [
                    sum(float(z) * w / length for z, w in zip(row, weight, strict=True))
                    for row in x[:, layer, head]
                ]
                mean = sum(along) / N
                expected = (sum((a - mean) ** 2 for a in along) / N) ** 0.5
                assert np.atleast_1d(sigma[layer, head])[k] == pytest.approx(expected)


def test_batched_probes_name_classes_and_heads() -> None:
    x, y = labelled(2, seed=0)
    probes = HeadProbes(c=C, solver="batched").fit(x, np.array(["no", "yes"])[y])
    assert probes.classes_.tolist() == ["no", "yes"]
    assert set(probes.predict(x).ravel()) == {"no", "yes"}
    x[3, 1, 2, 0] = np.nan
    with pytest.raises(ProbingError, match="L1H2: .* NaN"):
        probes.fit(x, y)


@pytest.mark.parametrize("solver", ["sklearn", "batched"])
def test_a_head_that_knows_nothing_keeps_zero_weights(solver: Solver) -> None:
    x, y = labelled(2, seed=0)
    x[:, 0, 1] = 7 + 1e-6 * x[:, 0, 1]
    probes = HeadProbes(c=C, solver=solver).fit(x, y)
    assert not probes.coef_[0, 1].any() and probes.unconverged_ == 0
    assert probes.score(x, y)[0, 1] == 0.5
    assert probes.coef_.any(axis=-1).sum() == L * H - 1


def _activations() -> Activations:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2, 3, 4)).astype(np.float32)
    mood = np.array(["sad", "glad", "calm"])[np.arange(60) % 3]
    true = np.arange(60) % 2 == 0
    x[true, 1, 2] += 2
    x[mood == "sad", 0, 1] += 3
    split = np.repeat(["train", "validation", "test"], 20)
    items = pd.DataFrame({"item_id": range(60), "split": split, "true": true, "mood": mood})
    return Activations(x, items, ("true", "mood"), model={"model": "made"})


def test_an_estimator_of_scikit_learn() -> None:
    probes = HeadProbes(c=2.0).fit(_activations().train, label="true")
    copy = clone(probes)
    assert copy.get_params() == {"c": 2.0, "max_iter": 400, "solver": "batched", "normalise": True}
    assert not hasattr(copy, "coef_")
    assert copy.set_params(c=3.0).c == 3.0
    with pytest.raises(NotFittedError):
        copy.binary  # noqa: B018


def test_activations_are_fitted_and_ranked_by_the_name_of_a_label() -> None:
    x = _activations()
    probes = HeadProbes(c=1.0).fit(x.train, label="true")
    table = probes.rank(x.validation)
    assert table.loc[table["true_rank"] == 1, ["layer", "head"]].values.tolist() == [[1, 2]]
    assert table["true_test_accuracy"].isna().all()
    whole = probes.rank(x)
    assert whole["true_test_accuracy"].notna().all()
    columns = [name for name in table if not name.startswith("true_test")]
    pd.testing.assert_frame_equal(whole[columns], table[columns])
    np.testing.assert_array_equal(
        whole["true_validation_auc"],
        probes.auc(probes.decision_function(x.validation), x.validation.values("true")).ravel(),
    )


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40), st.lists(st.integers(0, 5), max_size=40)
)
@settings(max_examples=200)
def test_chance_is_that_of_the_better_guesser(train: list[int], y: list[int]) -> None:
    found = chance(np.array(train), np.array(y))
    common = min(set(train), key=lambda c: (-train.count(c), c))
    floor = 1 / len(set(train))
    assert np.isnan(found) if not y else found == max(floor, y.count(common) / len(y))


def test_several_classes_are_ranked_too() -> None:
    x = _activations()
    probes = HeadProbes(c=1.0).fit(x.train, label="mood")
    assert probes.classes_.tolist() == ["calm", "glad", "sad"]
    table = probes.rank(x)
    assert table.loc[table["mood_rank"] == 1, ["layer", "head"]].values.tolist() == [[0, 1]]
    assert table[["mood_sigma", "mood_test_auc"]].isna().all(axis=None)


def test_a_label_that_is_not_there_is_named() -> None:
    x = _activations()
    with pytest.raises(ProbingError, match="theirs are true, mood"):
        HeadProbes().fit(x.train, label="y_p")
    with pytest.raises(ProbingError, match="one of true, mood"):
        HeadProbes().fit(x.train)
    probes = HeadProbes().fit(x.train, label="true")
    with pytest.raises(ProbingError, match="no validation samples"):
        probes.rank(x.test)
    with pytest.raises(ProbingError, match="on activations first"):
        HeadProbes().fit(x.x, x.values("true")).rank(x)


def test_a_vector_has_the_best_heads_with_sigma_of_the_training_activations() -> None:
    x = _activations()
    probes = HeadProbes(c=1.0).fit(x.train, label="true")
    with pytest.raises(ProbingError, match="rank the heads first"):
        probes.to_vector(k=1)
    table = probes.rank(x.validation).sort_values("true_rank")
    vector = probes.to_vector(k=3, alpha=2.0)
    assert list(vector.heads) == list(zip(table["layer"], table["head"], strict=True))[:3]
    at = tuple(np.array(vector.heads).T)
    np.testing.assert_allclose(vector.theta.numpy(), probes.theta_[at], rtol=1e-12)
    np.testing.assert_allclose(vector.sigma.numpy(), probes.sigma(x.train.x)[at], rtol=1e-12)
    assert (vector.alpha, vector.fitted["model"], vector.fitted["label"]) == (2.0, "made", "true")
    away = probes.to_vector(k=3, towards=False)
    assert (away.theta == -vector.theta).all()
    assert away.fitted["towards"] is False and "towards" not in vector.fitted
    with pytest.raises(ProbingError, match="2 x 3 = 6 heads"):
        probes.to_vector(k=7)


def test_of_several_classes_a_vector_goes_towards_one() -> None:
    x = _activations()
    probes = HeadProbes(c=1.0).fit(x.train, label="mood")
    probes.rank(x.validation)
    vector = probes.to_vector(k=1, towards="sad")
    assert vector.heads == ((0, 1),) and vector.fitted["towards"] == "sad"
    np.testing.assert_allclose(vector.theta[0].numpy(), probes.theta_[0, 1, 2], rtol=1e-12)
    with pytest.raises(ProbingError, match="towards must be one of"):
        probes.to_vector(k=1)


@pytest.mark.parametrize(
    ("options", "x", "y"),
    [
        *(({"c": c}, (N, L, H, D), np.arange(N) % 2) for c in (0.0, np.inf, 1e30, "1", None)),
        ({"solver": "svm"}, (N, L, H, D), np.arange(N) % 2),
        ({}, (N, L, H, D), np.ones(N, dtype=bool)),
        ({}, (N, L, H), np.arange(N) % 2),
    ],
)
def test_what_cannot_be_fitted_is_refused(options: dict[str, Any], x: Any, y: np.ndarray) -> None:
    with pytest.raises(ProbingError):
        HeadProbes(**options).fit(np.zeros(x), y)


def test_extreme_logits_do_not_overflow_and_one_class_has_no_auc() -> None:
    x, y = labelled(2, seed=0)
    probes = HeadProbes().fit(x, y)
    np.testing.assert_allclose(probes.predict_proba(x * 1e6).sum(axis=-1), 1.0)
    assert np.isnan(probes.auc(probes.decision_function(x), np.ones(N))).all()
    with pytest.raises(ProbingError):
        probes.score(x[..., :4], y)


def test_only_training_samples_are_fitted_and_unseen_classes_are_named() -> None:
    x, y = labelled(3, seed=0)
    split = np.array(["train", "train", "validation", "test"])[np.arange(N) // 12]
    items = pd.DataFrame({"item_id": range(N), "group": range(N), "split": split, "kind": y})
    given = Activations(x, items, ("kind",))
    with pytest.warns(UserWarning, match="24 training samples of 48"):
        whole = HeadProbes(c=C).fit(given, label="kind")
    np.testing.assert_array_equal(whole.coef_, HeadProbes(c=C).fit(given.train, label="kind").coef_)
    twice = HeadProbes(c=C).fit(given.train[given.train.values("kind") < 2], label="kind")
    with pytest.raises(ProbingError, match="kind = 2"):
        twice.rank(given)
    with pytest.raises(ProbingError, match="none of the 12 samples is for training"):
        HeadProbes(c=C).fit(given.test, label="kind")
    with pytest.raises(ProbingError, match="x.validation"):
        whole.rank(given.validation.x)  # type: ignore[arg-type]


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
    parts = heads[[f"y_p_validation_{name}" for name in ("TB", "FB")]]
    assert (heads["y_p_validation_worst"] == parts.min(axis=1)).all()
    assert heads["y_p_validation_accuracy"].to_numpy() == pytest.approx(parts.mean(axis=1))
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
        logits = probe.decision_function(made.x[held])
        np.testing.assert_array_equal(
            heads[f"{label}_test_auc"], probe.auc(logits, y[held]).ravel()
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
