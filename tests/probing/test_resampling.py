"""Permutations within stories, p-values, the largest accuracy over heads; stories drawn anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from sally_anne.core.errors import OptionError, ProbingError
from sally_anne.probing.nulls import (
    PermutationTest,
    bootstrap,
    group_weights,
    permutation_test,
    shuffled,
)
from sally_anne.probing.probes import Activations, HeadProbes

C = 0.05


def parts_of(made, *held: str) -> tuple[Activations, Activations]:
    """Training samples, and those of other splits."""
    items = made.items.assign(op=2 * made.items["y_o"].astype(int) + made.items["y_p"].astype(int))
    masks = made.rows("train"), np.any([made.rows(split) for split in held], axis=0)
    train, other = (Activations(made.x[m], items[m], ("y_p", "y_o", "op")) for m in masks)
    return train, other


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
    count=st.integers(1, 5),
)
@settings(max_examples=40, deadline=None)
def test_every_group_keeps_its_labels(sizes: list[int], seed: int, count: int) -> None:
    draw = np.random.default_rng(seed)
    groups = draw.permutation(np.repeat([f"s{i}" for i in range(len(sizes))], sizes))
    labels = np.append(draw.integers(0, 3, size=len(groups)), [0, 1])
    groups = np.append(groups, ["last", "last"])
    found = shuffled(labels, groups, count, seed)
    assert found.shape == (count, len(labels)) and found.dtype == labels.dtype
    for row in found:
        for group in set(groups):
            assert sorted(row[groups == group]) == sorted(labels[groups == group])
    np.testing.assert_array_equal(found, shuffled(labels, groups, count, seed))


def test_all_orders_within_a_group_are_as_likely() -> None:
    found = shuffled(np.array([0, 1, 2, 0]), np.array(["a", "a", "a", "b"]), 6000, 0)
    orders, counts = np.unique(found, axis=0, return_counts=True)
    assert len(orders) == 6 and (orders[:, 3] == 0).all()
    # Five standard deviations of a multinomial count.
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(6000 / 6 * 5 / 6)


def test_labels_that_groups_decide_are_refused() -> None:
    with pytest.raises(ProbingError, match="permuting within groups changes nothing"):
        shuffled(np.array([0, 0, 1]), np.array(["a", "a", "b"]), 3)


def test_accuracies_are_those_of_the_probes(made) -> None:
    train, held = parts_of(made, "validation", "test")
    found = permutation_test(train, held, "y_p", count=5, c=C, seed=3)
    assert found.unconverged == 0 and found.null.shape == (5, *made.x.shape[1:3])
    y = np.concatenate([train.values("y_p"), held.values("y_p")])
    groups = np.concatenate([train.items["group"], held.items["group"]])
    rows = np.concatenate([y[None], shuffled(y, groups, 5, 3)])
    for labels, accuracy in zip(rows, [found.observed, *found.null], strict=True):
        probes = HeadProbes(C, solver="batched").fit(train.x, labels[: len(train)])
        own = probes.score(held.x, labels[len(train) :])
        np.testing.assert_allclose(accuracy, own, atol=1e-12)


def test_four_classes_have_a_null_as_well(made) -> None:
    found = permutation_test(*parts_of(made, "validation", "test"), "op", count=30, c=C)
    assert abs(found.null.mean() - 0.25) < 0.03
    assert found.observed[-1, -1] > found.threshold(0.05)


def test_heads_with_a_signal_stand_out(made) -> None:
    found = permutation_test(*parts_of(made, "validation", "test"), "y_p", count=60, c=C)
    assert found.p_values[-1, -1] == found.p_fwer[-1, -1] == 1 / 61
    assert found.p_fwer[0, 0] > 0.05
    assert (found.p_fwer >= found.p_values).all()
    assert abs(found.null.mean() - 0.5) < 0.03


def test_samples_in_another_order_change_nothing(made) -> None:
    parts, draw = parts_of(made, "validation", "test"), np.random.default_rng(0)
    orders = [draw.permutation(len(part)) for part in parts]
    moved = [
        Activations(part.x[order], part.items.iloc[order], part.labels)
        for part, order in zip(parts, orders, strict=True)
    ]
    one = permutation_test(*parts, "y_p", count=2, c=C)
    other = permutation_test(*moved, "y_p", count=2, c=C)
    np.testing.assert_allclose(one.observed, other.observed)


@given(
    null=st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=3), min_size=1, max_size=40),
    observed=st.lists(st.integers(0, 10), min_size=3, max_size=3),
    level=st.sampled_from([0.01, 0.05, 0.3]),
)
@settings(max_examples=60, deadline=None)
def test_p_values_count_permutations(null, observed, level: float) -> None:
    found = PermutationTest(np.array([observed]) / 10, np.array(null)[:, None] / 10, 0)
    for h in range(3):
        alone = sum(row[h] >= observed[h] for row in null)
        best = sum(max(row) >= observed[h] for row in null)
        assert found.p_values[0, h] == pytest.approx((1 + alone) / (1 + len(null)))
        assert found.p_fwer[0, h] == pytest.approx((1 + best) / (1 + len(null)))
        above = found.observed[0, h] > found.threshold(level)
        assert above == (found.p_fwer[0, h] <= level + 1e-12)


def test_the_best_of_all_heads_is_looked_for_in_all_layers() -> None:
    """Two layers; the best null is in layer 0 twice, in layer 1 twice."""
    null = np.array(
        [
            [[0.9, 0.5], [0.5, 0.5]],
            [[0.5, 0.5], [0.5, 0.8]],
            [[0.5, 0.6], [0.5, 0.5]],
            [[0.3, 0.4], [0.5, 0.2]],
        ]
    )
    found = PermutationTest(np.array([[0.95, 0.7], [0.85, 0.4]]), null, 0)
    np.testing.assert_allclose(found.p_values, [[1 / 5, 1 / 5], [1 / 5, 4 / 5]])
    np.testing.assert_allclose(found.p_fwer, [[1 / 5, 3 / 5], [2 / 5, 5 / 5]])
    # Of the best nulls 0.9, 0.8, 0.6 and 0.5 one may reach what a head scores.
    assert found.threshold(0.4) == 0.8


def test_few_permutations_have_no_threshold() -> None:
    assert PermutationTest(np.ones((1, 1)), np.zeros((3, 1, 1)), 0).threshold(0.05) == np.inf


def test_a_split_that_cuts_a_group_is_refused(made) -> None:
    train, held = parts_of(made, "test")
    for test in (permutation_test, bootstrap):
        with pytest.raises(ProbingError, match="must not cut a group"):
            test(train, train, "y_p", count=2)
        with pytest.raises(ProbingError, match="no label 'y_q'"):
            test(train, held, "y_q", count=2)
        with pytest.raises(ProbingError, match="samples to train on"):
            test(train, held.train, "y_p", count=2)


def test_a_head_that_is_not_finite_is_named(made) -> None:
    made.x[np.flatnonzero(made.rows("train"))[2], 1, 3, 0] = np.nan
    with pytest.raises(ProbingError, match="L1H3: .* NaN"):
        permutation_test(*parts_of(made, "test"), "y_p", count=2)


@given(stories=st.integers(2, 8), each=st.integers(1, 4), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_whole_stories_are_drawn(stories: int, each: int, seed: int) -> None:
    groups = np.repeat(np.arange(stories), each)
    weights = group_weights(groups, 6, np.random.default_rng(seed))
    for row in weights:
        for story in range(stories):
            assert len(set(row[groups == story])) == 1
        assert row.sum() == len(groups)
    again = group_weights(groups, 6, np.random.default_rng(seed))
    np.testing.assert_array_equal(weights, again)


def test_a_draw_is_a_fit_with_weights(made) -> None:
    train, held = parts_of(made, "test")
    found = bootstrap(train, held, "y_p", count=4, c=C, seed=5)
    assert found.unconverged == 0
    draw, y, truth = np.random.default_rng(5), train.values("y_p"), held.values("y_p")
    drawn = [group_weights(part.items["group"].to_numpy(), 4, draw) for part in (train, held)]
    for p, (fitted, scored) in enumerate(zip(*drawn, strict=True)):
        for layer, head in ((0, 0), (1, 3)):
            x, other = (part.x[:, layer, head].astype(float) for part in (train, held))
            own = LogisticRegression(C=C, tol=1e-10, max_iter=1000)
            own.fit(x, y, sample_weight=fitted)
            accuracy = own.score(other, truth, scored)
            assert found.accuracy[p, layer, head] == pytest.approx(accuracy)
            whole = LogisticRegression(C=C, tol=1e-10).fit(x, y)
            a, b = own.coef_[0], whole.coef_[0]
            cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            assert found.cosine[p, layer, head] == pytest.approx(cosine, abs=1e-5)


def test_intervals_hold_the_observed_accuracy(made) -> None:
    found = bootstrap(*parts_of(made, "test"), "y_p", count=80, c=C)
    low, high = found.interval(0.95)
    assert (low <= found.observed).mean() >= 0.9 and (found.observed <= high).mean() >= 0.9
    assert (high - low)[0, 0] > (high - low)[-1, -1]
    assert found.cosine[:, -1, -1].mean() > 0.95 > found.cosine[:, 0, 0].mean()


def test_a_head_without_a_direction_has_no_cosine(made) -> None:
    made.x[:, 0, 0] = 1.0
    found = bootstrap(*parts_of(made, "test"), "y_p", count=2, c=C)
    assert np.isnan(found.cosine[:, 0, 0]).all() and np.isfinite(found.cosine[:, 1]).all()
    assert (found.accuracy[:, 0, 0] == 0.5).all()


def test_bad_numbers_are_refused(made) -> None:
    parts = parts_of(made, "test")
    with pytest.raises(OptionError, match="bootstrap must be at least 1"):
        bootstrap(*parts, "y_p", count=0)
    with pytest.raises(OptionError, match="level must be between"):
        bootstrap(*parts, "y_p", count=2).interval(1.0)
