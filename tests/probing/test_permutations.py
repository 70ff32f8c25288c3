"""Permutations within stories, p-values, and the largest accuracy over heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probing.permutations import PermutationTest, permutation_test, shuffled
from probing.probes import HeadProbes
from probing.refits import Split
from sally_anne.core.errors import ProbingError

C = 0.05


def split_of(made) -> Split:
    groups = made.items["group"].to_numpy(str)
    held = made.rows("validation") | made.rows("test")
    return Split(made.x, groups, made.rows("train"), held)


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
    with pytest.raises(ProbingError, match="need labels and groups"):
        shuffled(np.array([0, 1]), np.array(["a"]), 3)
    with pytest.raises(ProbingError, match="at least 1 permutation"):
        shuffled(np.array([0, 1]), np.array(["a", "a"]), 0)


def test_accuracies_are_those_of_the_probes(made) -> None:
    split = split_of(made)
    y = made.items["y_p"].to_numpy(bool)
    found = permutation_test(split, y, count=5, c=C, seed=3)
    assert found.unconverged == 0 and found.null.shape == (5, *split.heads)
    rows = np.concatenate([y[None], shuffled(y, split.groups, 5, 3)])
    for labels, accuracy in zip(rows, [found.observed, *found.null], strict=True):
        probes = HeadProbes(C, solver="batched").fit(split.x[split.train], labels[split.train])
        own = probes.score(split.x[split.held], labels[split.held])
        np.testing.assert_allclose(accuracy, own, atol=1e-12)


def test_four_classes_have_a_null_as_well(made) -> None:
    y = 2 * made.items["y_o"].astype(int) + made.items["y_p"].astype(int)
    found = permutation_test(split_of(made), y.to_numpy(), count=30, c=C)
    assert abs(found.null.mean() - 0.25) < 0.03
    assert found.observed[-1, -1] > found.threshold(0.05)


def test_heads_with_a_signal_stand_out(made) -> None:
    found = permutation_test(split_of(made), made.items["y_p"].to_numpy(bool), count=60, c=C)
    assert found.p_values[-1, -1] == found.corrected[-1, -1] == 1 / 61
    assert found.corrected[0, 0] > 0.05
    assert (found.corrected >= found.p_values).all()
    assert abs(found.null.mean() - 0.5) < 0.03


def test_samples_in_another_order_change_nothing(made) -> None:
    split = split_of(made)
    y = made.items["y_p"].to_numpy(bool)
    order = np.random.default_rng(0).permutation(len(y))
    moved = Split(*(a[order] for a in (split.x, split.groups, split.train, split.held)))
    one = permutation_test(split, y, count=2, c=C)
    other = permutation_test(moved, y[order], count=2, c=C)
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
        assert found.corrected[0, h] == pytest.approx((1 + best) / (1 + len(null)))
        above = found.observed[0, h] > found.threshold(level)
        assert above == (found.corrected[0, h] <= level + 1e-12)


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
    np.testing.assert_allclose(found.corrected, [[1 / 5, 3 / 5], [2 / 5, 5 / 5]])
    # Of the best nulls 0.9, 0.8, 0.6 and 0.5 one may reach what a head scores.
    assert found.threshold(0.4) == 0.8


def test_levels_are_checked(made) -> None:
    found = PermutationTest(np.ones((1, 1)), np.zeros((3, 1, 1)), 0)
    assert found.threshold(0.05) == np.inf
    with pytest.raises(ProbingError, match="level must be between"):
        found.threshold(0.0)


def test_a_split_that_cuts_a_group_is_refused(made) -> None:
    split = split_of(made)
    with pytest.raises(ProbingError, match="must not cut a group"):
        replace(split, held=np.ones(len(split.x), dtype=bool))
    with pytest.raises(ProbingError, match="train must be a mask"):
        replace(split, train=np.zeros(len(split.x), dtype=bool))
    with pytest.raises(ProbingError, match=r"need groups \[\d+\]"):
        replace(split, groups=split.groups[:3])
    with pytest.raises(ProbingError, match=r"need x \[N, L, H, D\]"):
        replace(split, x=split.x[0])


def test_a_head_that_is_not_finite_is_named(made) -> None:
    made.x[np.flatnonzero(made.rows("train"))[2], 1, 3, 0] = np.nan
    with pytest.raises(ProbingError, match="layer 1 head 3: .* NaN"):
        permutation_test(split_of(made), made.items["y_p"].to_numpy(bool), count=2)
