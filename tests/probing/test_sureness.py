"""How sure a run is of its heads: family-wise errors, other splits, control tasks, intervals."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.console import Console
from sally_anne.data.samples import Sample, SampleSet
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.nulls import (
    control_accuracy,
    null_columns,
    permutation_test,
    selectivity_columns,
    stability,
)
from sally_anne.probing.pipeline import fit_probes, rank_heads
from sally_anne.probing.probes import Activations
from sally_anne.probing.reporting import add_intervals, print_summary, summarise

LABELS = ("y_p", "y_o")


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
        test = permutation_test(x.train, x.validation, "y", 59, 1.0, seed)
        reported += bool((test.p_fwer <= 0.05).any())
    assert 0 < reported <= 17


def order_of(heads: pd.DataFrame, label: str, count: int) -> list[int]:
    return heads.sort_values(f"{label}_rank").index[:count].tolist()


def test_a_ranking_that_is_true_stays(made) -> None:
    config = ProbeConfig(c=0.05)
    heads = rank_heads(made, fit_probes(made, config))
    groups = made.items["group"].to_numpy()
    accuracy = heads["y_p_validation_accuracy"].to_numpy()
    found = stability(made, "y_p", groups, order_of(heads, "y_p", 3), accuracy, 0.05)
    assert (found["resplits"]["count"], found["c"]["count"]) == (10, 2)
    for part in found.values():
        assert part["least"] <= part["spearman"] <= 1
        assert part["top"] == 3 and 2 <= part["stay"] <= 3
    # Strength grows with the head, so the ranking is known.
    assert found["resplits"]["spearman"] > 0.8
    # Test samples say nothing.
    x = np.where((made.items["split"] == "test").to_numpy()[:, None, None, None], 9e9, made.x)
    blind = Activations(x.astype(np.float32), made.items, LABELS)
    again = stability(blind, "y_p", groups, order_of(heads, "y_p", 3), accuracy, 0.05)
    assert again == found
    assert stability(made, "y_p", made.items["split"].to_numpy(), [0], accuracy) == {}


def test_a_probe_of_the_words_alone_is_not_selective(made) -> None:
    """Head 0 knows the statement's words, which decide every control task; the others do not."""
    types = np.array([f"words {i % 4}" for i in range(len(made.items))])
    x = np.zeros_like(made.x)
    x[:, 0, 0, :4] = 20 * (types[:, None] == np.unique(types))
    words = Activations(x, made.items, LABELS)
    kinds = [types[words.items["split"] == name] for name in ("train", "validation")]
    control = control_accuracy(words.train, words.validation, (kinds[0], kinds[1]), 2, 1.0)
    assert control[0, 0] == 1.0
    np.testing.assert_array_equal(control.ravel()[1:], 0.5)
    heads = rank_heads(words, fit_probes(words, ProbeConfig(c=1.0)))
    names = dict(zip(made.items["item_id"], types, strict=True))
    found = selectivity_columns(words, heads, names, 1.0)
    own = heads["y_p_validation_accuracy"]
    np.testing.assert_array_equal(found["y_p_selectivity"], own - control.ravel())
    assert found["y_p_selectivity"].iloc[0] == 0.0
    pd.testing.assert_frame_equal(selectivity_columns(words, heads, {}, 1.0), heads)


def test_types_that_never_train_do_not_score(made) -> None:
    train, held = made.train, made.validation
    assert np.isnan(control_accuracy(train, held, (["a"] * len(train), ["a"] * len(held)))).all()
    kinds = ["ab"[i % 2] for i in range(len(train))], ["c"] * len(held)
    assert np.isnan(control_accuracy(train, held, kinds)).all()


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
    results = summarise(heads, made, probes)
    add_intervals(results, made, probes, heads, data)
    heads = null_columns(made, heads, 0.05, 400, 99)
    console = Console(file=io.StringIO(), width=300)
    print_summary(console, heads, results, {"y_p": "fits?"}, 0.05)
    assert isinstance(console.file, io.StringIO)
    return results | {"heads": heads}, console.file.getvalue()


def test_intervals_are_over_clusters(made, said) -> None:
    results, printed = said
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
    assert f"test accuracy {accuracy:.3f} [{ends[0]:.3f}, {ends[1]:.3f}] over 2 maps" in printed


def test_what_stands_out_is_printed(said) -> None:
    results, printed = said
    heads = results["heads"]
    count = int((heads["y_p_p_fwer"] <= 0.05).sum())
    assert 0 < count < len(heads)
    assert (
        f"Y_P: {count} of {len(heads)} heads above {heads['y_p_threshold'].iloc[0]:.3f}" in printed
    )
    part = results["y_p"]["stability"]["resplits"]
    assert f"10 other splits: Spearman {part['spearman']:.2f}" in printed
    assert f"{part['stay']:.1f} of the first 8 heads stay" in printed
    best = heads.sort_values("y_p_rank").iloc[0]
    assert f"{best['y_p_p_fwer']:.3f}" in printed
