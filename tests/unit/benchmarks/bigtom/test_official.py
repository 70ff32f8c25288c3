"""The published stories, of which some or all conditions may be beside the checkout."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.bigtom.benchmark import BIGTOM
from benchmarks.items import BenchmarkItem
from tests.shared_data import shared_data

ROWS = 200


@pytest.fixture(scope="module")
def items() -> list[BenchmarkItem]:
    return BIGTOM.load(shared_data("bigtom"))


def right_text(item: BenchmarkItem) -> str:
    return next(option.text for option in item.options if option.label == item.answer)


def first_order(items: list[BenchmarkItem]) -> dict[tuple[str, str], BenchmarkItem]:
    """Forward belief with the first belief hidden, by group and condition."""
    return {
        (item.group, item.tags["condition"][0]): item
        for item in items
        if item.item_id.startswith("0_forward_belief_") and "control" not in item.item_id
    }


def test_every_condition_has_all_stories(items) -> None:
    sizes = Counter(item.item_id.split("/")[0] for item in items)
    assert set(sizes.values()) == {ROWS}
    assert {"0_forward_belief_false_belief", "0_forward_belief_true_belief"} <= set(sizes)
    assert len({item.item_id for item in items}) == len(items)
    assert {item.group for item in items} == {f"story-{n:03d}" for n in range(1, ROWS + 1)}


def test_the_same_row_is_the_same_story_with_the_other_answer(items) -> None:
    found = first_order(items)
    for number in range(1, ROWS + 1):
        seen, unseen = (found[f"story-{number:03d}", condition] for condition in ("TB", "FB"))
        assert seen.question == unseen.question
        # They differ in the last sentence alone, which tells what the person noticed.
        assert seen.context.scene != unseen.context.scene
        told = [item.context.scene.rsplit(". ", 1)[0] for item in (seen, unseen)]
        assert told[0] == told[1]
        assert {o.text for o in seen.options} == {o.text for o in unseen.options}
        assert right_text(seen) != right_text(unseen)


def test_no_part_is_empty_and_every_answer_is_an_option(items) -> None:
    for item in items:
        assert [option.label for option in item.options] == ["A", "B"]
        assert item.answer in ("A", "B")
        parts = [item.context.scene, item.question, *(option.text for option in item.options)]
        assert all(part and part == part.strip() for part in parts)
        assert item.question.endswith("?")


def test_letters_are_balanced_in_every_condition(items) -> None:
    for name in {item.item_id.split("/")[0] for item in items}:
        answers = [item.answer for item in items if item.item_id.startswith(name + "/")]
        assert 0.4 < answers.count("A") / len(answers) < 0.6, name


def test_the_first_story_word_by_word(items) -> None:
    found = first_order(items)
    seen, unseen = found["story-001", "TB"], found["story-001", "FB"]
    assert seen.context.scene.startswith("Noor is working as a barista at a busy coffee shop.")
    assert seen.context.scene.endswith("Noor sees her coworker swapping the milk.")
    assert unseen.context.scene.endswith("Noor does not see her coworker swapping the milk.")
    assert right_text(seen) == "Noor believes the milk pitcher contains almond milk."
    assert right_text(unseen) == "Noor believes the milk pitcher contains oat milk."
