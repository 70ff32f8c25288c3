"""Which contrasts can be told apart without any belief."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sally_anne.data.gridtom.samples import FEATURES, build
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.samples import Sample, SampleSet
from sally_anne.probing.probes import items_table
from sally_anne.probing.reporting import confound_report

SPLITS = {i: ("train", "validation", "test")[i % 3] for i in range(12)}
PERSPECTIVE, ROOM = FEATURES["perspective"], FEATURES["room"]
LENGTH = "length of the text in words"


def accuracies(samples) -> dict[tuple[str, str, str], float]:
    data = SampleSet(samples, "test", "", features=FEATURES, content=("room",))
    rows = confound_report(items_table(samples), data)
    found = {(r["condition"], r["feature"], r["label"]): r["accuracy"] for r in rows}
    assert len(found) == len(rows)
    return found


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
    surface = {k: v for k, v in found.items() if k[1] != ROOM}
    assert len(surface) == (8 if order == 1 else 16)
    assert set(surface.values()) == {0.5}


def test_the_room_gives_away_reality_but_not_the_belief(stories) -> None:
    found = accuracies(build(stories, SPLITS, 1, "matched", "multimodal"))
    assert found["all", ROOM, "y_o"] == 1.0
    assert found["all", ROOM, "y_p"] == 0.5


def test_a_guess_is_learned_from_training_stories_alone(stories) -> None:
    samples = build(stories, SPLITS, 1, "paper", "multimodal")
    held_out_changed = [s if s.split == "train" else seen_by(s, "participant") for s in samples]
    # A value that no training sample has is a coin toss.
    assert accuracies(held_out_changed)["FB", PERSPECTIVE, "y_p"] == 0.5
    train_changed = [s if s.split != "train" else seen_by(s, "omniscient") for s in samples]
    assert accuracies(train_changed)["FB", PERSPECTIVE, "y_p"] == 0.5
