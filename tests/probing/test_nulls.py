"""Nulls: permuted labels, resampled groups, other splits, control tasks; the command itself."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rich.console import Console
from sklearn.linear_model import LogisticRegression

from sally_anne.core.errors import ProbingError
from sally_anne.core.run import conclusions
from sally_anne.data.samples import Sample, SampleSet
from sally_anne.probing.config import NullsConfig, ProbeConfig
from sally_anne.probing.pipeline import fit_probes, rank_heads
from sally_anne.probing.probes import Activations, HeadProbes
from sally_anne.probing.reporting import (
    bootstrap,
    group_weights,
    null_columns,
    nulls,
    print_summary,
    selectivity_columns,
    summarise,
)
from sally_anne.probing.solver import PermutationTest, permutation_test, shuffled
from tests.made_replies import printed

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
    parts = [groups == group for group in sorted({*groups})]
    alone = [part for part in parts if len({*labels[part]}) == 1]
    for row in found:
        for part in parts:
            if len({*labels[part]}) > 1:
                assert sorted(row[part]) == sorted(labels[part])
        # Those of one label have one of theirs.
        assert all(len({*row[part]}) == 1 for part in alone)
        own = (sorted(y[part][0] for part in alone) for y in (row, labels))
        assert next(own) == next(own)
    np.testing.assert_array_equal(found, shuffled(labels, groups, count, seed))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), min_size=4), st.data())
def test_labels_of_whole_groups_are_permuted_among_them(groups: list, data: st.DataObject) -> None:
    sizes, held, values = map(np.array, zip(*groups, strict=True))
    assume(all(len(set(values[held == part])) == 2 for part in (False, True)))
    group, part, labels = (np.repeat(a, sizes) for a in (np.arange(len(sizes)), held, values))
    order = np.array(data.draw(st.permutations(range(len(group)))))
    found = shuffled(labels[order], group[order], 60, 0, part[order])
    first = [list(group[order]).index(g) for g in range(len(sizes))]
    for row in found:
        assert (row == row[first][group[order]]).all()
        for side in (False, True):
            assert sorted(row[first][held == side]) == sorted(values[held == side])
    assert (found != labels[order]).any()


def test_a_few_groups_of_two_labels_leave_the_null_as_it_is() -> None:
    """Of groups with one label each, a label of one sample is another."""
    draw = np.random.default_rng(0)
    y = np.repeat(draw.permutation(np.arange(40) % 2), 4)
    x = draw.normal(size=(160, 1, 2, 4)).astype(np.float32)
    x[:, 0, 0, 0] += 3 * y
    for flipped in (0, 1):
        y[0] ^= flipped
        split = np.where(np.arange(160) < 100, "train", "validation")
        items = pd.DataFrame({"group": np.arange(160) // 4, "split": split, "y": y})
        made = Activations(x, items, ("y",))
        found = permutation_test(made.train, made.validation, "y", 200)
        assert found.p_fwer[0, 0] == 1 / 201 < 0.05 < found.p_fwer[0, 1]


def test_one_label_has_nothing_to_permute() -> None:
    with pytest.raises(ProbingError):
        shuffled(np.zeros(3), np.array(["a", "a", "b"]), 3)


def test_accuracies_are_those_of_the_probes(made) -> None:
    train, held = parts_of(made, "validation", "test")
    found = permutation_test(train, held, "y_p", count=5, c=C, seed=3)
    assert found.null.shape == (5, *made.x.shape[1:3])
    y = np.concatenate([train.values("y_p"), held.values("y_p")])
    groups = np.concatenate([train.items["group"], held.items["group"]])
    rows = np.concatenate([y[None], shuffled(y, groups, 5, 3)])
    for labels, accuracy in zip(rows, [found.observed, *found.null], strict=True):
        probes = HeadProbes(C, solver="batched").fit(train.x, labels[: len(train)])
        own = probes.score(held.x, labels[len(train) :])
        np.testing.assert_allclose(accuracy, own, atol=1e-12)


def test_heads_with_a_signal_stand_out(made) -> None:
    found = permutation_test(*parts_of(made, "validation", "test"), "y_p", count=60, c=C)
    assert found.p_values[-1, -1] == found.p_fwer[-1, -1] == 1 / 61
    assert found.p_fwer[0, 0] > 0.05
    assert (found.p_fwer >= found.p_values).all()
    assert abs(found.null.mean() - 0.5) < 0.03


@given(
    null=st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=3), min_size=1, max_size=40),
    observed=st.lists(st.integers(0, 10), min_size=3, max_size=3),
    level=st.sampled_from([0.01, 0.05, 0.3]),
)
@settings(max_examples=60, deadline=None)
def test_p_values_count_permutations(null, observed, level: float) -> None:
    found = PermutationTest(np.array([observed]) / 10, np.array(null)[:, None] / 10)
    for h in range(3):
        alone = sum(row[h] >= observed[h] for row in null)
        best = sum(max(row) >= observed[h] for row in null)
        assert found.p_values[0, h] == pytest.approx((1 + alone) / (1 + len(null)))
        assert found.p_fwer[0, h] == pytest.approx((1 + best) / (1 + len(null)))
        above = found.observed[0, h] > found.threshold(level)
        assert above == (found.p_fwer[0, h] <= level + 1e-12)


def test_a_split_that_cuts_a_group_is_refused(made) -> None:
    train, held = parts_of(made, "test")
    for test, own in ((permutation_test, train), (bootstrap, train), (bootstrap, held.train)):
        with pytest.raises(ProbingError, match="of other groups"):
            test(train, own, "y_p", count=2)


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
    accuracy = bootstrap(train, held, "y_p", count=4, c=C, seed=5, normalise=False)
    draw, y, truth = np.random.default_rng(5), train.values("y_p"), held.values("y_p")
    drawn = [group_weights(part.items["group"].to_numpy(), 4, draw) for part in (train, held)]
    for p, (fitted, scored) in enumerate(zip(*drawn, strict=True)):
        for layer, head in ((0, 0), (1, 3)):
            x, other = (part.x[:, layer, head].astype(float) for part in (train, held))
            own = LogisticRegression(C=C, tol=1e-10, max_iter=1000)
            own.fit(x, y, sample_weight=fitted)
            assert accuracy[p, layer, head] == pytest.approx(own.score(other, truth, scored))


def meaningless(seed: int) -> Activations:
    """Heads that know their stories, and nothing of the label."""
    draw = np.random.default_rng(seed)
    group = np.repeat(np.arange(14), 4)
    stories = draw.normal(size=(14, 2, 3, 3))[group]
    # Heads are correlated, too, and so are samples of one condition.
    x = stories + 0.5 * draw.normal(size=(56, 1, 1, 3)) + 0.5 * draw.normal(size=(56, 2, 3, 3))
    y = np.concatenate([draw.permutation([True, True, False, False]) for _ in range(14)])
    split = np.where(group < 8, "train", "validation")
    items = pd.DataFrame({"group": group.astype(str), "split": split, "y": y})
    return Activations(x.astype(np.float32), items, ("y",))


@pytest.mark.integration
def test_labels_without_meaning_are_rarely_reported() -> None:
    """Family-wise level 5 %: of 200 runs 10 are expected, above 17 are one in a hundred."""
    reported = 0
    for seed in range(200):
        x = meaningless(seed)
        test = permutation_test(x.train, x.validation, "y", 59, seed, c=1.0)
        reported += bool((test.p_fwer <= 0.05).any())
    assert 0 < reported <= 17


def test_a_probe_of_the_words_alone_is_not_selective(made) -> None:
    """Head 0 knows the statement's words, which decide every control task; the others do not."""
    types = np.array([f"words {i % 4}" for i in range(len(made.items))])
    x = np.zeros_like(made.x)
    x[:, 0, 0, :4] = 20 * (types[:, None] == np.unique(types))
    words = Activations(x, made.items, ("y_p", "y_o"))
    heads = rank_heads(words, fit_probes(words, how := ProbeConfig(c=1.0)))
    names = dict(zip(made.items["item_id"], types, strict=True))
    found = selectivity_columns(words, heads, names, how)
    own = heads["y_p_validation_accuracy"]
    # Of control tasks head 0 has all, the others are at chance.
    assert found["y_p_selectivity"].iloc[0] == own.iloc[0] - 1.0
    np.testing.assert_array_equal(found["y_p_selectivity"].iloc[1:], own.iloc[1:] - 0.5)


@pytest.fixture
def said(made) -> tuple[dict, str]:
    """What is quoted and printed of the made run, whose stories are of two maps a split."""
    samples = [
        Sample(name, "words", group=g) for name, g in made.items[["item_id", "group"]].values
    ]
    clusters = {g: f"{g.split('-')[0]}-{int(g.split('-')[1]) % 2}" for g in made.items["group"]}
    data = SampleSet(samples, "made", "", noun="stories", clusters=clusters)
    probes = fit_probes(made, ProbeConfig(c=0.05))
    heads = rank_heads(made, probes)
    results = summarise(heads, made, probes, data)
    heads = null_columns(made, heads, ProbeConfig(c=0.05, permutations=99))
    console = Console(file=io.StringIO(), width=300)
    print_summary(console, heads, {"results": results}, {"y_p": "fits?"})
    assert isinstance(console.file, io.StringIO)
    return results | {"heads": heads}, console.file.getvalue()


def test_too_few_permutations_test_nothing(made) -> None:
    heads = rank_heads(made, fit_probes(made, how := ProbeConfig(c=0.05, permutations=15)))
    found = null_columns(made, heads, how)
    assert found["y_p_p"].notna().all()
    assert found[["y_p_p_fwer", "y_p_threshold"]].isna().all(axis=None)
    heads = found.assign(question_used="used")
    assert conclusions(heads, "question", "y_p") == ["used"] * len(heads)


def test_intervals_are_over_clusters(made, said) -> None:
    results, words = said
    quoted = results["y_o"]
    probe = fit_probes(made, ProbeConfig(c=0.05))["y_o"]
    test = made.test
    right = probe.predict(test.x)[:, quoted["best_layer"], quoted["best_head"]] == test.values(
        "y_o"
    )
    odd = test.items["group"].str[-1].astype(int).to_numpy() % 2
    # Of two clusters a quarter of the draws are one alone: the ends are their means.
    ends = sorted(float(right[odd == side].mean()) for side in (0, 1))
    assert [quoted["best_test_low"], quoted["best_test_high"]] == ends
    assert (quoted["test_clusters"], quoted["clusters"]) == (2, "maps")
    accuracy = quoted["best_test_accuracy"]
    assert f"test accuracy {accuracy:.3f} [{ends[0]:.3f}, {ends[1]:.3f}] (2 maps" in words


@pytest.mark.integration
def test_a_runs_heads_against_permuted_labels(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    config = NullsConfig(folder, permutations=39, bootstraps=20, split="test", seed=1)
    heads, said = printed(nulls, config)
    pd.testing.assert_frame_equal(heads, pd.read_parquet(folder / "nulls-test.parquet"))
    own = pd.read_parquet(folder / "heads.parquet")
    for label in ("y_p", "y_o"):
        # Of the same probes, up to samples beside a boundary.
        off = (heads[f"{label}_accuracy"] - own[f"{label}_test_accuracy"]).abs()
        assert off.max() <= 0.02
        assert heads[f"{label}_p"].between(1 / 40, 1).all()
        assert (heads[f"{label}_p_fwer"] >= heads[f"{label}_p"]).all()
        above = heads[f"{label}_accuracy"] > heads[f"{label}_threshold"]
        assert (above == (heads[f"{label}_p_fwer"] <= 0.05)).all()
        assert (heads[f"{label}_low"] <= heads[f"{label}_high"]).all()
    assert "heads above" in said and "nulls-test.parquet" in said
