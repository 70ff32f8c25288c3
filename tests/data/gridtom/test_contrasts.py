"""What is labelled: the tables of the paper's figures 6 and 7, and what a pair shares."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Literal

import numpy as np
import pytest

from sally_anne.data.gridtom.samples import build
from sally_anne.data.gridtom.stories import StorySet, generated
from sally_anne.data.samples import Sample

# (y_p, y_o): first order, the protagonist and the omniscient.
FIGURE_6 = {
    ("TB", "last"): (True, True),
    ("TB", "first"): (False, False),
    ("FB", "last"): (False, True),
    ("FB", "first"): (True, False),
}
# (y_p, y_o): second order, the participant and the protagonist. Conditions are first/second.
FIGURE_7 = {
    ("TB/TB", "last"): (True, True),
    ("TB/TB", "first"): (False, False),
    ("FB/TB", "last"): (False, False),
    ("FB/TB", "first"): (True, True),
    ("TB/FB", "last"): (False, True),
    ("TB/FB", "first"): (True, False),
    ("FB/FB", "last"): (True, False),
    ("FB/FB", "first"): (False, True),
}
TABLES = {1: FIGURE_6, 2: FIGURE_7}
SPLITS = {5: "train", 30: "validation", 100: "test"}


@pytest.fixture(scope="module")
def stories() -> StorySet:
    return generated(stories=sorted(SPLITS))


def pairs(samples: list[Sample]) -> list[tuple[Sample, Sample]]:
    """(Y_p true, Y_p false) of each story and condition."""
    found = []
    for _, members in groupby(samples, key=lambda s: (s.group, s.tags["condition"])):
        true, false = sorted(members, key=lambda s: not s.labels["y_p"])
        found.append((true, false))
    return found


def story_of(sample: Sample) -> int:
    return int(sample.group.removeprefix("story-"))


def context(sample: Sample) -> str:
    return sample.content.rsplit(" Belief: ", 1)[0]


def statement(sample: Sample) -> str:
    return sample.content.rsplit(" Belief: ", 1)[1]


@pytest.mark.parametrize("contrast", ["matched", "paper", "released"])
@pytest.mark.parametrize("order", [1, 2])
def test_labels_are_those_of_the_paper(stories, order: Literal[1, 2], contrast) -> None:
    samples = build(stories, SPLITS, order, contrast, "multimodal")
    for index in SPLITS:
        own = [s for s in samples if story_of(s) == index]
        assert len(own) == 4 * order
        assert {
            (s.tags["condition"], s.tags["room"]): (s.labels["y_p"], s.labels["y_o"]) for s in own
        } == TABLES[order]


@pytest.mark.parametrize("order", [1, 2])
def test_matched_pairs_differ_in_the_statement_alone(stories, order: Literal[1, 2]) -> None:
    for true, false in pairs(build(stories, SPLITS, order, "matched", "multimodal")):
        assert context(true) == context(false)
        assert true.tags["perspective"] == false.tags["perspective"] == "omniscient"
        assert true.video.case is false.video.case
        assert statement(true) != statement(false)
    np.testing.assert_array_equal(true.frames(), false.frames())


def test_paper_pairs_of_false_belief_stories_differ_in_perspective(stories) -> None:
    for true, false in pairs(build(stories, SPLITS, 1, "paper", "multimodal")):
        told = true.video.case.captions
        if true.tags["condition"] == "TB":
            assert context(true) == context(false)
            assert true.tags["perspective"] == false.tags["perspective"] == "omniscient"
            continue
        assert (true.tags["perspective"], false.tags["perspective"]) == (
            "protagonist",
            "omniscient",
        )
        assert context(true).endswith(told["protagonist"])
        assert context(false).endswith(told["omniscient"])
        assert told["protagonist"] != told["omniscient"]
    seen = [s.frames() for s in (true, false)]
    assert seen[0].shape == seen[1].shape and (seen[0] != seen[1]).any()


def test_released_false_belief_pairs_differ_in_their_form(stories) -> None:
    paper, released = (build(stories, SPLITS, 1, c, "multimodal") for c in ("paper", "released"))
    for plain, sample in zip(paper, released, strict=True):
        known = plain.content
        if sample.tags["condition"] == "FB" and sample.labels["y_p"]:
            assert known.count("does not know") == 1
            known = known.replace("does not know", "is unable to know")
        elif sample.tags["condition"] == "FB":
            known = known.replace(" Belief:", "\n\nBelief:")
        assert sample.content == known
        assert (sample.tags, sample.labels, sample.video) == (plain.tags, plain.labels, plain.video)
    assert sum("\n\n" in s.content for s in released) == len(SPLITS)


def test_settings_decide_what_is_told(stories) -> None:
    multimodal, text, video = (
        build(stories, SPLITS, 1, "paper", setting) for setting in ("multimodal", "text", "video")
    )
    for full, told, shown in zip(multimodal, text, video, strict=True):
        record = stories.story(story_of(full))
        caption = full.video.case.captions[full.tags["perspective"]]
        assert full.content == told.content
        assert context(told) == f"{record.environment} {caption}"
        assert context(shown) == record.environment
        assert statement(shown) == statement(full)
        # The frames still follow the contrast.
        assert shown.tags["perspective"] == full.tags["perspective"]


@pytest.mark.parametrize("order", [1, 2])
def test_ids_are_unique_and_groups_lie_in_one_split(order: Literal[1, 2]) -> None:
    assigned = {i: ("test", "validation", "train")[i % 3] for i in range(48)}
    samples = build(generated(stories=range(48)), assigned, order, "matched", "text")
    assert max(Counter(s.item_id for s in samples).values()) == 1
    assert Counter(story_of(s) for s in samples) == dict.fromkeys(range(48), 4 * order)
    of_group: dict[str, set[str]] = {}
    for s in samples:
        of_group.setdefault(s.group, set()).add(s.split)
        assert s.split == assigned[story_of(s)]
        assert s.item_id == f"{s.group}/{s.tags['condition']}/{s.tags['room']}"
    assert len(of_group) == 48
    assert all(len(found) == 1 for found in of_group.values())
