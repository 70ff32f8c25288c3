"""A vector among its controls: rank, verdict, harm, and the heads that it needs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.data.items import Question
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.controls import (
    control_rank,
    describe_rank,
    left_out,
    made_worse,
    needed_heads,
    random_controls,
    spread,
    without_a_head,
)
from sally_anne.steering.points import BASELINE, SweepPoint

CHOSEN = SweepPoint("logistic", 3, -2.0)
STORIES = 12


def answers(right: dict[SweepPoint, np.ndarray]) -> pd.DataFrame:
    """A table of answers: ``right [stories, 2]`` says which of TB and FB is right in a point."""
    return pd.DataFrame(
        {
            "item_id": f"{story:02d}/{condition}",
            "story": f"{story:02d}",
            "map": f"map-{story % 6}",
            "split": "test",
            "condition": condition,
            "first": condition,
            "point": point.name,
            "robust_correct": bool(tasks[story, number]),
            "robust_invalid": False,
        }
        for point, tasks in right.items()
        for story in range(len(tasks))
        for number, condition in enumerate(("TB", "FB"))
    )


def first(count: int, stories: int = STORIES) -> np.ndarray:
    """Both right in the first so many stories; elsewhere TB alone."""
    tasks = np.ones((stories, 2), bool)
    tasks[count:, 1] = False
    return tasks


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 12), st.integers(0, 12), st.lists(st.integers(0, 12), min_size=6, max_size=6))
def test_the_rank_is_what_a_loop_finds(before: int, after: int, drawn: list[int]) -> None:
    draws = random_controls(CHOSEN, 3, 2**32 - 2)
    assert [point.seed for point in draws] == 2 * [2**32 - 2, 2**32 - 1, 0]
    plan = {BASELINE: first(before), CHOSEN: first(after)}
    plan |= {point: first(count) for point, count in zip(draws, drawn, strict=True)}
    found = control_rank(answers(plan), CHOSEN, draws, "robust")
    rank = 1
    for count in drawn:
        if count >= after:
            rank += 1
    worse = max(sum(count >= after for count in own) for own in (drawn[:3], drawn[3:]))
    assert (found["rank"], found["of"], found["p"]) == (rank, 7, (1 + worse) / 4)
    assert found["gain"] == pytest.approx((after - before) / STORIES)
    gains = [(count - before) / STORIES for count in drawn]
    assert list(found["controls"].values()) == pytest.approx(gains)
    for kind, own in (("random", gains[:3]), ("random_heads", gains[3:])):
        expected = {"value": sum(own) / 3, "low": min(own), "high": max(own), "n": 3}
        assert found["kinds"][kind] == pytest.approx(expected)
    # Three draws of a kind cannot say it.
    assert not found["beats_controls"]
    said = describe_rank(found)[0]
    assert said.startswith(f"rank {rank} of 7, ")
    assert ("not specific" in said) == (not found["beats_controls"])
    assert ("above all its controls" in said) == found["beats_controls"]


def test_enough_draws_can_say_that_a_vector_is_specific() -> None:
    draws = random_controls(CHOSEN, 20, 0)
    plan = {BASELINE: first(0), CHOSEN: first(6), **{point: first(2) for point in draws}}
    found = control_rank(answers(plan), CHOSEN, draws, "robust")
    assert found["beats_controls"] and found["p"] == 1 / 21
    # One draw of one kind does as well: among 20 of that kind it is one of two.
    plan[draws[0]] = first(6)
    found = control_rank(answers(plan), CHOSEN, draws, "robust")
    assert not found["beats_controls"] and found["p"] == 2 / 21


def test_only_the_stories_of_the_draws_count() -> None:
    """Beyond the first six stories the vector is perfect, but nothing was drawn there."""
    draws = random_controls(CHOSEN, 1, 0)
    late = first(1)
    late[6:] = True
    plan = {BASELINE: first(0), CHOSEN: late, **{point: first(2, 6) for point in draws}}
    found = control_rank(answers(plan), CHOSEN, draws, "robust")
    assert (found["rank"], found["stories"], found["beats_controls"]) == (3, 6, False)
    assert found["gain"] == pytest.approx(1 / 6)


def test_control_stories_are_of_all_maps_whatever_their_order() -> None:
    """Six maps in turn: even steps through the list would take one of them alone."""
    chosen = set()
    for order in (range(48), np.random.default_rng(1).permutation(48)):
        items = [
            Question(f"{story}/{task}", "m", "test", str(story), "", map=f"m{story % 6}")
            for story in order
            for task in ("TB", "FB")
        ]
        found = spread(items, 8)
        assert found == [item for item in items if item in found] and len(found) == 2 * 8
        counts = Counter(item.map for item in found)
        assert len(counts) == 6 and set(counts.values()) == {2, 4}
        chosen.add(frozenset(item.group for item in found))
        assert {item.group for item in spread(items, 6)} < {item.group for item in found}
        assert spread(items, 48) == spread(items, 99) == items
    assert len(chosen) == 1


def test_stories_made_worse_are_counted_once() -> None:
    before, after = np.ones((STORIES, 2), bool), np.ones((STORIES, 2), bool)
    before[0] = False
    after[0] = [True, False]  # never worse
    after[1] = False  # both lost, one story
    after[2, 1] = False
    sheets = []
    for tasks in (before, after):
        table = answers({BASELINE: tasks})
        names = {"robust_correct": "correct", "robust_invalid": "invalid"}
        sheets.append(table.rename(columns=names))
    # An answer that chooses nothing is not right.
    sheets[1].loc[sheets[1]["item_id"] == "03/TB", "invalid"] = True
    found = made_worse(*sheets)
    assert (found.value, found.n) == (3 / STORIES, STORIES)
    # Six maps of two stories; none is lost in half of the maps or less.
    assert 0 <= found.low < found.value < found.high <= 0.5
    assert made_worse(sheets[0], sheets[0]).value == 0


def test_without_each_head_in_turn() -> None:
    heads = ((0, 1), (2, 3), (1, 0))
    vector = SteeringVector(heads, torch.eye(4)[:3], torch.arange(1.0, 4.0), 3, 4, alpha=-2.0)
    rests = without_a_head(CHOSEN, vector, 2)
    assert [point.name for point in rests] == [
        "logistic without L0H1/K2/alpha-2",
        "logistic without L2H3/K2/alpha-2",
    ]
    for (layer, head), rest in zip(heads, rests.values(), strict=False):
        assert rest is not None
        expected = vector.delta().clone()
        expected[layer, head] = 0
        assert torch.equal(rest.delta(), expected)
    assert without_a_head(CHOSEN, vector.top(1), 8) == {}
    plan = {BASELINE: first(0), CHOSEN: first(9)}
    plan |= dict(zip(rests, (first(2), first(9)), strict=True))
    found = left_out(answers(plan), CHOSEN, rests, heads, "robust")
    assert [(row["layer"], row["head"]) for row in found] == [(0, 1), (2, 3)]
    assert [row["value"] for row in found] == pytest.approx([7 / STORIES, 0])
    assert found[0]["low"] > 0 and found[1]["low"] == found[1]["high"] == 0
    assert needed_heads(found, 3) == (
        "left out one at a time (the best 2 of 3 heads), Both falls without L0H1"
    )
