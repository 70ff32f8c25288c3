"""Splits: a function of place and seed alone, whole maps, no words in two splits."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.data.gridtom.samples import assign, split_of
from sally_anne.data.gridtom.stories import StorySet, generated
from sally_anne.data.samples import SPLITS

SEEDS = range(5)


def said(stories: StorySet, split: dict[int, str], name: str) -> set[str]:
    return {stories.identity(i).content for i, part in split.items() if part == name}


@pytest.mark.parametrize("seed", SEEDS)
def test_maps_are_whole_and_no_words_stand_in_two_splits(seed: int) -> None:
    stories = generated()
    split = assign(stories, seed)
    counts = Counter(split.values())
    assert counts["test"] == 500
    assert 80 <= counts["train"] <= 96 and 40 <= counts["validation"] <= 48
    maps = {name: {i // 24 for i, part in split.items() if part == name} for name in SPLITS}
    assert [len(maps[name]) for name in SPLITS] == [4, 2, 21]
    assert sum(map(len, maps.values())) == len(set.union(*maps.values()))
    words = [said(stories, split, name) for name in SPLITS]
    assert sum(map(len, words)) == len(set.union(*words))


def test_what_is_left_out_are_four_stories_of_a_tested_map_and_pairs() -> None:
    stories = generated()
    split = assign(stories)
    left = [i for i in stories.indices if i not in split]
    surplus = [i for i in left if split_of(stories.identity(i).map, i % 24) is None]
    assert len(surplus) == 4 and len({i // 24 for i in surplus}) == 1
    assert {split[i] for i in stories.indices if i // 24 == surplus[0] // 24 and i in split} == {
        "test"
    }
    kept = {stories.identity(i).content for i in split}
    assert all(stories.identity(i).content in kept for i in left if i not in surplus)


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


def test_seeds_differ_and_repeat() -> None:
    assert assign(generated(), 1) == assign(generated(), 1)
    assert assign(generated(), 1) != assign(generated(), 2)
