"""No story is tested that was seen in fitting, by whatever way it comes (design, contract 4)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import BenchmarkError, HarnessError
from sally_anne.data.gridtom.samples import choose_stories
from sally_anne.data.gridtom.stories import StorySet, generated, identity_of, seeded_stories
from sally_anne.data.samples import SEEN, Lineage
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.gridtom import choose_new_stories
from sally_anne.steering.sweep import unseen_stories


@dataclass(frozen=True)
class Data:
    """Some stories of a seed under other numbers, with or without the names of their maps."""

    seed: int = 2025
    step: int = 1
    first: int = 0
    shift: int = 0
    named: bool = True

    def numbers(self) -> dict[int, int]:
        """Number in the benchmark by number here."""
        kept = range(self.first, 648, self.step)
        return {index - self.shift if index >= self.shift else index: index for index in kept}

    def stories(self) -> StorySet:
        numbers = self.numbers()

        def identity(index: int):
            story = seeded_stories(self.seed)[numbers[index]]
            name = story.layout.name if self.named else None
            return identity_of(index, story.cast, story.rooms, name)

        return StorySet(
            numbers, lambda index: pytest.fail("a story was made"), "test", str, identity
        )

    def told(self, indices) -> set[Any]:
        """What the stories say: nothing else goes into their texts."""
        numbers = self.numbers()
        found = (seeded_stories(self.seed)[numbers[i]] for i in indices)
        return {(story.cast, story.rooms) for story in found}


DATA = st.builds(
    Data,
    seed=st.sampled_from([2025, 7]),
    step=st.integers(1, 3),
    first=st.integers(0, 200),
    shift=st.sampled_from([0, 0, 5, 100]),
    named=st.booleans(),
)
SEEDS = st.integers(0, 3)
SOME = st.sampled_from([None, 3, 40])


@given(DATA, DATA, DATA, SEEDS, SEEDS, SEEDS, st.sampled_from([None, 24, 100]), SOME, SOME)
@example(Data(), Data(), Data(), 1, 0, 0, 24, 10, None)
@example(Data(), Data(step=2), Data(named=False, shift=100), 0, 0, 2, None, None, None)
@settings(max_examples=40, deadline=None)
def test_what_is_tested_was_not_seen(
    probed: Data,
    swept: Data,
    asked: Data,
    probe_seed: int,
    sweep_seed: int,
    ask_seed: int,
    count: int | None,
    sweep_limit: int | None,
    ask_limit: int | None,
) -> None:
    stories = probed.stories()
    try:
        run = choose_stories(stories, count, probe_seed)
    except BenchmarkError:
        assume(False)
    train = probed.told(i for i, split in run.items() if split == "train")
    seen = train | probed.told(i for i, split in run.items() if split == "validation")
    assert not seen & probed.told(i for i, split in run.items() if split == "test")
    train_seen, validation_seen = (
        frozenset(stories.identity(i).content for i, split in run.items() if split == name)
        for name in ("train", "validation")
    )
    lineage = Lineage(train_seen, validation_seen)
    kept = json.loads(json.dumps({SEEN: lineage.facts()}))

    stories = swept.stories()
    of = {
        split: EvalConfig(split=split, split_seed=sweep_seed, limit=sweep_limit)
        for split in ("validation", "test")
    }
    try:
        members, unseen, after = unseen_stories(of, stories, Lineage.read(kept, "config.json"))
    except HarnessError:
        assume(False)
    chosen_on = swept.told(members["validation"])
    assert not train & chosen_on
    seen |= chosen_on
    assert not seen & swept.told(members["test"])
    assert after is not None and unseen.known

    vector = json.loads(json.dumps({SEEN: after.facts()}))
    config = EvalConfig(split_seed=ask_seed, limit=ask_limit)
    try:
        reported, left = choose_new_stories(config, asked.stories(), vector)
    except HarnessError:
        assume(False)
    assert not seen & asked.told(reported)
    everything, _ = choose_new_stories(EvalConfig(split_seed=ask_seed), asked.stories(), None)
    assert left is not None and left.of == len(everything)
    assert left.left_out == sum(bool(seen & asked.told([i])) for i in everything)


def test_where_every_test_story_was_seen_there_is_nothing_to_report() -> None:
    stories = generated()
    everything = frozenset(stories.identity(i).content for i in stories.indices)
    with pytest.raises(HarnessError, match="all 500 test stories of --split-seed 2 were seen"):
        choose_new_stories(EvalConfig(split_seed=2), stories, {SEEN: Lineage(everything).facts()})
