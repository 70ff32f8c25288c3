"""Splits, by place and seed alone, and what is labelled: the tables of figures 6 and 7."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, groupby
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.data.gridtom.plot import PLOTS
from sally_anne.data.gridtom.samples import (
    PUBLISHED,
    assign,
    build,
    members,
    question_pairs,
    sample_set,
    split_of,
)
from sally_anne.data.gridtom.stories import StorySet, generated
from sally_anne.data.samples import SPLITS, Sample
from sally_anne.probing.extraction import items_table
from sally_anne.probing.reporting import confound_report

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
CHOSEN = {5: "train", 30: "validation", 100: "test"}


@pytest.fixture(scope="module")
def stories() -> StorySet:
    return generated(stories=sorted(CHOSEN))


def pairs(samples: list[Sample]) -> list[tuple[Sample, Sample]]:
    """(Y_p true, Y_p false) of each story and condition."""
    both = []
    for _, versions in groupby(samples, key=lambda s: (s.group, s.tags["condition"])):
        true, false = sorted(versions, key=lambda s: not s.labels["y_p"])
        both.append((true, false))
    return both


@pytest.fixture(scope="module")
def both() -> StorySet:
    return generated(plots=PLOTS)


def story_of(sample: Sample) -> int:
    return int(sample.group.removeprefix("story-"))


def context(sample: Sample) -> str:
    return sample.content.rsplit(" Belief: ", 1)[0]


def statement(sample: Sample) -> str:
    return sample.content.rsplit(" Belief: ", 1)[1]


def test_the_published_split_tests_all_but_the_last_148_and_no_story_twice() -> None:
    every = generated()
    split = assign(every, PUBLISHED)
    parts = {name: [i for i in split if split[i] == name] for name in SPLITS}
    assert members(every, PUBLISHED) == parts["test"] == list(range(500))
    assert len(parts["validation"]) <= 37 and len(split) > 630
    content = [{every.identity(i).content for i in part} for part in parts.values()]
    assert not any(one & other for one, other in combinations(content, 2))


@pytest.mark.parametrize("contrast", ["matched", "paper", "released"])
@pytest.mark.parametrize("order", [1, 2])
def test_labels_are_those_of_the_paper(stories, order: Literal[1, 2], contrast) -> None:
    samples = build(stories, CHOSEN, order, contrast, "multimodal")
    for index in CHOSEN:
        own = [s for s in samples if story_of(s) == index]
        assert len(own) == 4 * order
        assert {
            (s.tags["condition"], s.tags["room"]): (s.labels["y_p"], s.labels["y_o"]) for s in own
        } == TABLES[order]


@pytest.mark.parametrize("order", [1, 2])
def test_matched_pairs_differ_in_the_statement_alone(stories, order: Literal[1, 2]) -> None:
    for true, false in pairs(build(stories, CHOSEN, order, "matched", "multimodal")):
        assert context(true) == context(false)
        assert true.tags["perspective"] == false.tags["perspective"] == "omniscient"
        assert true.video.case is false.video.case
        assert statement(true) != statement(false)
    np.testing.assert_array_equal(true.frames(), false.frames())


def test_paper_pairs_of_false_belief_stories_differ_in_perspective(stories) -> None:
    for true, false in pairs(build(stories, CHOSEN, 1, "paper", "multimodal")):
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


def test_released_false_belief_pairs_tell_the_whole_story_behind_a_sentence(stories) -> None:
    paper, released = (build(stories, CHOSEN, 1, c, "multimodal") for c in ("paper", "released"))
    for plain, sample in zip(paper, released, strict=True):
        held, false = sample.labels["y_p"], sample.tags["condition"] == "FB"
        told = context(plain)
        if false and held:
            caption = plain.video.case.captions["omniscient"].removesuffix(" The video ends here.")
            known, hidden = caption.split(" 3. ")
            agent = plain.video.case.cast.protagonist
            sentence = f"So the {agent} agent cannot know what happens then:"
            told = f"{stories.story(story_of(plain)).environment} {known} {sentence} {hidden}"
        gap = "\n\n" if false and not held else "\n"
        assert sample.content == f"Description: {told}{gap}Belief: {statement(plain)}"
        assert (sample.tags, sample.labels, sample.video) == (plain.tags, plain.labels, plain.video)


def test_in_second_order_all_contrasts_are_one(stories) -> None:
    matched, *others = (
        build(stories, CHOSEN, 2, c, "multimodal") for c in ("matched", "paper", "released")
    )
    assert others == [matched, matched]


def test_settings_decide_what_is_told(stories) -> None:
    multimodal, text, video = (
        build(stories, CHOSEN, 1, "paper", setting) for setting in ("multimodal", "text", "video")
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


def test_both_labels_are_independent_of_all_else(both: StorySet) -> None:
    data = sample_set(both, 1, "crossed", "text", 60)
    items = items_table(data.samples)
    table = items.assign(room=[s.tags["room"] for s in data.samples])
    cells = table.groupby(["plot", "condition", "room"])[["y_p", "y_o"]]
    assert (cells.nunique() == 1).all(axis=None) and len(cells) == 8
    for one, other in combinations(("y_p", "y_o", "room", "plot", "condition"), 2):
        if {one, other} & {"y_p", "y_o"}:
            counts = pd.crosstab(table[one], table[other]).to_numpy()
            assert (counts == counts[0, 0]).all(), (one, other)
    for row in confound_report(items, data):
        assert float(str(row["accuracy"])) == pytest.approx(0.5, abs=0.1), row
    lengths = [len(sample.text) for sample in data.samples]
    for label in ("y_p", "y_o"):
        held = items[label].to_numpy(bool)
        assert abs(np.mean(np.array(lengths)[held]) - np.mean(np.array(lengths)[~held])) < 1


def test_the_two_plots_of_a_stage_are_one_group(both: StorySet) -> None:
    data = sample_set(both, 1, "crossed", "text", 40)
    table = pd.DataFrame({"group": [s.group for s in data.samples]})
    table["split"] = [s.split for s in data.samples]
    table["plot"] = [s.tags["plot"] for s in data.samples]
    assert (table.groupby("group")["split"].nunique() == 1).all()
    assert (table.groupby(["group", "plot"]).size() == 4).all() and table["group"].nunique() == 40
    split = assign(generated())
    for sample in data.samples:
        assert sample.split == split[int(sample.group.removeprefix("story-"))]
    pairs = question_pairs(both, 1, "text", 40).pairs
    assert len(pairs) == 80 and len({pair.name for pair in pairs}) == 80
    assert {pair.answers[0] != pair.answers[1] for pair in pairs} == {True}
    # Those of the other contrasts are asked as if there was no other plot.
    asked = {pair.name: pair for pair in question_pairs(generated(), 1, "text", 40).pairs}
    assert asked.items() <= {pair.name: pair for pair in pairs}.items()


@pytest.mark.parametrize("seed", range(5))
def test_maps_are_whole_and_no_words_stand_in_two_splits(seed: int) -> None:
    stories = generated()
    split = assign(stories, seed)
    counts = Counter(split.values())
    assert counts["test"] == 500
    assert 80 <= counts["train"] <= 96 and 40 <= counts["validation"] <= 48
    maps = {name: {i // 24 for i, part in split.items() if part == name} for name in SPLITS}
    assert [len(maps[name]) for name in SPLITS] == [4, 2, 21]
    assert sum(map(len, maps.values())) == len(set.union(*maps.values()))
    words = [
        {stories.identity(i).content for i, part in split.items() if part == name}
        for name in SPLITS
    ]
    assert sum(map(len, words)) == len(set.union(*words))


def test_stories_of_one_content_say_the_same_in_every_text() -> None:
    stories = generated()
    by_content: dict[str, list[int]] = {}
    for index in stories.indices:
        by_content.setdefault(stories.identity(index).content, []).append(index)
    pairs = [group for group in by_content.values() if len(group) > 1]
    assert sum(map(len, pairs)) == 72
    for group in pairs:
        first, *others = (stories.story(i) for i in group)
        for other in others:
            assert other.environment == first.environment
            assert [q.question for q in other.initial] == [q.question for q in first.initial]
            for a, b in zip(first.versions, other.versions, strict=True):
                assert (a.question, a.captions) == (b.question, b.captions)


@given(st.sets(st.integers(0, 647), min_size=1), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_a_part_of_the_data_has_the_splits_of_the_whole(indices: set[int], seed: int) -> None:
    whole = assign(generated(), seed)
    part = assign(generated().subset(sorted(indices)), seed)
    # All that differs: a story may come back whose pair in another split is not in the part.
    assert {i: whole[i] for i in part if i in whole} == {
        i: s for i, s in part.items() if i in whole
    }
    assert indices & whole.keys() <= part.keys()
    tested = {i for i in indices if whole.get(i) == "test"}
    assert {i for i, name in part.items() if name == "test"} == tested


def test_a_renumbered_copy_is_the_same_story() -> None:
    stories = generated()
    record = stories.story(500)
    moved = replace(record, index=3)
    assert moved.identity == record.identity == stories.identity(500)
    unnamed = replace(record, map=None)
    assert unnamed.identity == record.identity


def test_maps_of_other_names_and_numbers_have_splits_of_their_own() -> None:
    drawn = Counter(split_of(f"garden {i}", 0) for i in range(2700))
    assert 2000 < drawn["test"] < 2200 and 300 < drawn["train"] < 500
    further = Counter(split_of(f"map-{i:02d}", i % 24) for i in range(27, 81) for _ in range(24))
    assert further["train"] == 2 * 96 and further["validation"] == 2 * 48
    assert [split_of(f"map-{i:02d}", 0) for i in range(27)] != [
        split_of(f"map-{i:02d}", 0) for i in range(27, 54)
    ]
