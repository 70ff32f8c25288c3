"""What a run says of itself: the quoted numbers, the warnings, and what is read back."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from sally_anne.core.errors import RunFolderError
from sally_anne.core.run import CONFIG, HEADS, PROBES
from sally_anne.data.gridtom.samples import FEATURES, MEANING, build
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.samples import Sample, SampleSet
from sally_anne.probing.activations import Activations, items_table
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import _finished, fit_probes, rank_heads, require_same_probes
from sally_anne.probing.probes import HeadProbes
from sally_anne.probing.reporting import confound_report, print_summary, summarise

C = 0.05

LABELS = ("y_p", "y_o")
DATA = SampleSet([], "made", "", noun="stories")


@pytest.fixture
def summarised(made):
    """The heads and results of the made-up run; the named heads' activations never vary."""

    def summary(*silent: tuple[int, int]) -> tuple[Any, dict[str, Any]]:
        x = made.x.copy()
        for layer, head in silent:
            x[:, layer, head] = 1.0
        silenced = replace(made, x=x)
        probes = fit_probes(silenced, ProbeConfig(c=C, max_iter=200))
        heads = rank_heads(silenced, probes)
        return heads, summarise(heads, silenced, probes, DATA)

    return summary


def printed(heads, results: dict[str, Any]) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    print_summary(console, heads, {"results": results}, MEANING[1])
    assert isinstance(console.file, io.StringIO)
    return [line.strip() for line in console.file.getvalue().splitlines()]


# Twelve heads of four layers. What is at place i is told from all else by its last digits.
PLACES = range(12)

RANKS = {
    "y_p": [8, 3, 12, 5, 1, 9, 2, 11, 6, 10, 4, 7],
    "y_o": [6, 9, 2, 10, 4, 12, 7, 3, 11, 5, 8, 1],
}

BASE = {
    "train_accuracy": 0.9,
    "validation_accuracy": 0.8,
    "test_accuracy": 0.7,
    "test_auc": 0.6,
    "sigma": 1.5,
}


def by_hand() -> tuple[Any, dict[str, Any]]:
    """A made-up table of heads and what is quoted from it."""
    columns = {"layer": [i // 3 for i in PLACES], "head": [i % 3 for i in PLACES]}
    for shift, label in ((0.0, "y_p"), (0.05, "y_o")):
        columns[f"{label}_rank"] = RANKS[label]
        for name, base in BASE.items():
            columns[f"{label}_{name}"] = [base + shift + i**2 / 1000 for i in PLACES]
    heads = pd.DataFrame(columns)
    items = pd.DataFrame(
        {
            "split": ["train"] * 6 + ["validation"] * 3 + ["test"] * 4,
            "group": ["a", "a", "b", "b", "c", "c", "d", "d", "d", "e", "e", "f", "g"],
            "y_p": [True, True, True, True, False, False] * 2 + [True],
            "y_o": [True, False] * 6 + [True],
        }
    )
    probes = {}
    for name, unconverged in (("y_p", 0), ("y_o", 3), ("op", 5)):
        probe = probes[name] = HeadProbes()
        probe.coef_, probe.intercept_ = np.ones((4, 3, 2)), np.zeros((4, 3))
        probe.classes_, probe.unconverged_ = np.array([False, True]), unconverged
    x = Activations(np.ones((13, 4, 3, 2)), items, LABELS)
    return heads, summarise(heads, x, probes, DATA)


def test_what_is_quoted_is_what_the_table_says() -> None:
    _, results = by_hand()
    ends = {"best_test_low": ANY, "best_test_high": ANY, "test_clusters": 3, "clusters": "stories"}
    assert results == {
        "samples": {"train": 6, "test": 4, "validation": 3},
        "stories": {"test": 3, "train": 3, "validation": 1},
        "unconverged_heads": {"y_p": 0, "y_o": 3, "op": 5},
        "y_p": {
            "best_layer": 1,
            "best_head": 1,
            "best_validation_accuracy": pytest.approx(0.816),
            "best_test_accuracy": pytest.approx(0.716),
            # Most training samples are true, and of four test samples two.
            "chance_test_accuracy": 0.5,
            **ends,
        },
        "y_o": {
            "best_layer": 3,
            "best_head": 2,
            "best_validation_accuracy": pytest.approx(0.971),
            "best_test_accuracy": pytest.approx(0.871),
            "chance_test_accuracy": 0.5,
            **ends,
        },
    }


def test_every_printed_number_is_that_of_the_table() -> None:
    lines = printed(*by_hand())
    rows = [line.split() for line in lines if line.startswith("Y_o ")]
    best = sorted(PLACES, key=RANKS["y_o"].__getitem__)[:2]
    assert rows == [
        ["Y_o", f"L{i // 3}H{i % 3}", *(f"{b + 0.05 + i**2 / 1000:.3f}" for b in (0.8, 0.7))]
        for i in best
    ]
    assert any(line.startswith("Y_o: best head L3H2, test accuracy 0.871 [") for line in lines)
    assert any("Y_o: 3 heads unconverged" in line for line in lines)


def write(folder: Path, saved: object) -> None:
    for name in (HEADS, PROBES):
        (folder / name).touch()
    (folder / CONFIG).write_text(json.dumps(saved))


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_config_does_not_pass_for_no_run(tmp_path, text) -> None:
    write(tmp_path, {})
    (tmp_path / CONFIG).write_text(text)
    for use in (
        lambda: _finished(tmp_path, "key"),
        lambda: require_same_probes(ProbeConfig(out=tmp_path)),
    ):
        with pytest.raises(RunFolderError, match=r"config\.json is damaged.*delete it and run"):
            use()


SPLITS = {i: ("train", "validation", "test")[i % 3] for i in range(12)}

PERSPECTIVE, ROOM = FEATURES["perspective"], FEATURES["room"]

LENGTH = "length of the text in words"


def accuracies(samples) -> dict[tuple[str, str, str], float]:
    data = SampleSet(samples, "test", "", features=FEATURES, content=("room",))
    rows = confound_report(items_table(samples), data)
    found = {(r["condition"], r["feature"], r["label"]): r["accuracy"] for r in rows}
    assert len(found) == len(rows)
    return found


def test_a_condition_that_some_samples_have_and_a_label_of_any_name() -> None:
    samples = [
        Sample(
            f"s{i}",
            f"word {i}",
            labels={"value": i % 2 == 1, "y": i % 4 < 2},
            tags={"kind": "ab"[i % 4 < 2]} | ({"condition": "TB"} if i < 8 else {}),
            split=("train", "test")[i // 4 % 2],
        )
        for i in range(80)
    ]
    rows = confound_report(items_table(samples), SampleSet(samples, "test", ""))
    found = {(r["condition"], r["feature"], r["label"]): r["accuracy"] for r in rows}
    assert found["none", "kind", "y"] == found["TB", "kind", "y"] == 1
    assert found["none", LENGTH, "value"] == found["none", "kind", "value"] == 0.5


def seen_by(sample: Sample, perspective: str) -> Sample:
    return replace(sample, tags={**sample.tags, "perspective": perspective})


@pytest.fixture(scope="module")
def stories():
    return generated(stories=SPLITS)


def test_the_papers_false_belief_pairs_are_flagged(stories) -> None:
    found = accuracies(build(stories, SPLITS, 1, "paper", "multimodal"))
    for feature in (PERSPECTIVE, LENGTH):
        for label in ("y_p", "y_o"):
            assert found["FB", feature, label] == 1.0
            assert found["TB", feature, label] == 0.5


@pytest.mark.parametrize("order", [1, 2])
def test_matched_pairs_cannot_be_told_apart_by_surface(stories, order) -> None:
    found = accuracies(build(stories, SPLITS, order, "matched", "multimodal"))
    if order == 1:
        assert (found["all", ROOM, "y_o"], found["all", ROOM, "y_p"]) == (1.0, 0.5)
    surface = {k: v for k, v in found.items() if k[1] != ROOM}
    assert len(surface) == (8 if order == 1 else 16)
    assert set(surface.values()) == {0.5}


def test_a_guess_is_learned_from_training_stories_alone(stories) -> None:
    samples = build(stories, SPLITS, 1, "paper", "multimodal")
    held_out_changed = [s if s.split == "train" else seen_by(s, "participant") for s in samples]
    # A value that no training sample has is a coin toss.
    assert accuracies(held_out_changed)["FB", PERSPECTIVE, "y_p"] == 0.5
    train_changed = [s if s.split != "train" else seen_by(s, "omniscient") for s in samples]
    assert accuracies(train_changed)["FB", PERSPECTIVE, "y_p"] == 0.5
