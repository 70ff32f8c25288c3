"""The points of a sweep: the grid, the choice among them, and the controls of the chosen one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import SteeringError
from sally_anne.data.gridtom.narration import InitialQuestion
from sally_anne.harness.gridtom import Wording
from sally_anne.harness.gridtom import items as items_of
from sally_anne.steering.config import CONTROLS
from sally_anne.steering.points import BASELINE, SweepPoint, default_grid, grid_of, random_controls
from sally_anne.steering.questions import Beliefs, chance
from sally_anne.steering.sweep import describe_rank
from tests.made_stories import made_story

CHOSEN = SweepPoint("logistic", 3, -2.0)
STORIES = 12
BOTH_RANKINGS = ("probe_accuracy", "patching")


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=4),
    st.lists(st.integers(-20, 20).map(lambda n: n / 2), min_size=1, max_size=5),
    st.lists(st.sampled_from(["logistic", "pca", *CONTROLS]), min_size=1, max_size=4),
    st.sampled_from([BOTH_RANKINGS[:1], BOTH_RANKINGS[1:], BOTH_RANKINGS]),
)
def test_each_point_once(ks, alphas, directions, rankings) -> None:
    grid = grid_of(ks, alphas, directions, seed=1, rank_by=rankings)
    assert grid[0] == BASELINE
    strong = {alpha for alpha in alphas if alpha}
    assert len(grid) == 1 + len(set(ks)) * len(strong) * len(set(directions)) * len(rankings)
    assert len(set(grid)) == len({point.name for point in grid}) == len(grid)
    assert all(point.k and point.alpha for point in grid[1:])
    assert all(point.seed == (point.direction in CONTROLS) for point in grid[1:])


@pytest.mark.parametrize(
    ("layers", "heads", "ks", "fine", "wide"),
    [
        (28, 28, (14, 28, 56), 1.0, 50.0),  # Qwen2-VL-7B, as in the paper
        (32, 32, (16, 32, 64), 1.0, 50.0),  # LLaVA-NeXT-Video-7B, as in the paper
        (28, 12, (7, 14, 28), 1.0, 50.0),  # Qwen2-VL-2B, where 56 are a sixth
        (8, 8, (2, 4, 8), 0.5, 10.0),  # the shipped models
        (1, 1, (1,), 0.5, 10.0),
    ],
)
def test_the_default_grid_follows_from_layers_and_heads(layers, heads, ks, fine, wide) -> None:
    found, alphas = default_grid(layers, heads)
    assert found == ks
    assert min(alphas) == -wide and max(alphas) == wide
    assert min(abs(alpha) for alpha in alphas if alpha) == fine
    # No more points for a large model than for a small one: 109 with both controls.
    assert len(grid_of(ks, alphas, ("logistic", *CONTROLS))) == 1 + 36 * len(ks)


def answers(right: dict[SweepPoint, np.ndarray], split: str = "test") -> pd.DataFrame:
    """A table of answers: ``right [stories, 2]`` says which of TB and FB is right in a point."""
    return pd.DataFrame(
        {
            "item_id": f"{story:02d}/{condition}",
            "story": f"{story:02d}",
            "map": f"map-{story % 6}",
            "split": split,
            "condition": condition,
            "first": condition,
            "point": point.name,
            "robust_correct": bool(each[story, number]),
            "robust_invalid": False,
        }
        for point, each in right.items()
        for story in range(len(each))
        for number, condition in enumerate(("TB", "FB"))
    )


def first(count: int, stories: int = STORIES) -> np.ndarray:
    """Both right in the first so many stories; elsewhere TB alone."""
    right = np.ones((stories, 2), bool)
    right[count:, 1] = False
    return right


def test_points_are_ranked_on_validation_stories_alone() -> None:
    best, equal, weaker = (SweepPoint("logistic", 2, alpha) for alpha in (5.0, -10.0, 2.0))
    plan = {BASELINE: first(0), weaker: first(3), equal: first(9), best: first(9)}
    table = answers(plan, "validation")
    assert Beliefs().rank(table, [BASELINE, weaker, equal, best]) == [best, equal, weaker]
    with pytest.raises(SteeringError):
        Beliefs().rank(table.assign(split="test"), [best])


def control_answers(right: dict[SweepPoint, int]) -> Callable[[SweepPoint, str], pd.DataFrame]:
    """Of ten control questions so many are right, at the baseline and at a point."""

    def table(point: SweepPoint, task: str) -> pd.DataFrame:
        assert task == "initial"
        both = {each: np.arange(10)[:, None] < [right[each]] * 2 for each in (BASELINE, point)}
        whole = answers(both, "validation").drop(columns="map")
        return whole[whole["condition"] == "TB"].assign(condition="", first="")

    return table


@pytest.mark.parametrize(
    ("wrong", "most", "expected", "tried"),
    [
        ((0, 0, 0), 0.0, 0, 1),  # the best leaves all answers as they are
        ((3, 1, 0), 0.1, 1, 2),  # the second is the first that loses one of ten at most
        ((3, 1, 0), 0.0, 2, 3),
        ((4, 3, 5), 0.2, 1, 3),  # none passes: the smallest drop
    ],
)
def test_chosen_among_those_that_leave_the_initial_belief_alone(
    wrong: tuple[int, ...], most: float, expected: int, tried: int
) -> None:
    ranked = [SweepPoint("logistic", 2, alpha) for alpha in (5.0, 2.0, 1.0)]
    table = control_answers(
        {BASELINE: 10, **{p: 10 - lost for p, lost in zip(ranked, wrong, strict=True)}}
    )
    calls: list[SweepPoint] = []

    def counted(point: SweepPoint, task: str) -> pd.DataFrame:
        calls.append(point)
        return table(point, task)

    assert Beliefs().choose(ranked, counted, {"initial": most}) == ranked[expected]
    assert calls == ranked[:tried]
    with pytest.raises(SteeringError):
        Beliefs().choose(ranked, lambda *each: table(*each).assign(split="test"), {"initial": most})


def test_what_is_only_guessed_puts_no_condition_on_the_choice() -> None:
    """Baselines right on 2 and on 9 of 10, where guessing gets a third; the best falls to none."""
    best, mild = SweepPoint("logistic", 2, 5.0), SweepPoint("logistic", 2, 1.0)
    for right, chosen in ((2, best), (9, mild)):
        table = control_answers({BASELINE: right, best: 0, mild: right})
        limits = {"initial": 0.01}
        measure = Beliefs(chances={"initial": 1 / 3})
        assert measure.choose([best, mild], table, limits) == chosen
        assert Beliefs().choose([best, mild], table, limits) == mild
        guessed = measure.guessed(table(best, "initial"), "initial")
        assert (guessed and guessed["value"]) == (0.2 if right == 2 else None)


def test_guessing_is_right_as_often_as_options_allow() -> None:
    """One room of three twice, and two colours of five, of which there are ten pairs."""
    story = made_story(3)
    one, pair = InitialQuestion("?", ("a",), ("a", "b", "c"), (0, 18)), story.initial[0]
    three = replace(story, initial=(pair, one, one))
    assert chance(list(items_of([three], {3: "test"}, "initial", Wording("text")))) == (
        pytest.approx((1 / 10 + 1 / 3 + 1 / 3) / 3)
    )


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 12), st.integers(0, 12), st.lists(st.integers(0, 12), min_size=6, max_size=6))
def test_the_rank_is_what_a_loop_finds(before: int, after: int, counts: list[int]) -> None:
    randoms = random_controls(CHOSEN, 3, 2**32 - 2)
    assert [point.seed for point in randoms] == 2 * [2**32 - 2, 2**32 - 1, 0]
    plan = {BASELINE: first(before), CHOSEN: first(after)}
    plan |= {point: first(count) for point, count in zip(randoms, counts, strict=True)}
    found = Beliefs().control_rank(answers(plan), CHOSEN, randoms)
    rank = 1
    for count in counts:
        if count >= after:
            rank += 1
    worse = max(sum(count >= after for count in own) for own in (counts[:3], counts[3:]))
    assert (found["rank"], found["of"], found["p"]) == (rank, 7, (1 + worse) / 4)
    assert found["gain"] == pytest.approx((after - before) / STORIES)
    gains = [(count - before) / STORIES for count in counts]
    assert list(found["controls"].values()) == pytest.approx(gains)
    for kind, own in (("random", gains[:3]), ("random_heads", gains[3:])):
        expected = {"value": sum(own) / 3, "low": min(own), "high": max(own), "n": 3}
        assert found["kinds"][kind] == pytest.approx(expected)
    # Three controls of a kind are too few.
    assert not found["beats_controls"]
    assert f"rank {rank} of 7, not specific" in describe_rank(found)


def test_a_vector_above_enough_controls_is_specific() -> None:
    randoms = random_controls(CHOSEN, 20, 0)
    plan = {BASELINE: first(0), CHOSEN: first(6), **{point: first(2) for point in randoms}}
    found = Beliefs().control_rank(answers(plan), CHOSEN, randoms)
    assert found["beats_controls"] and found["p"] == 1 / 21
    # One of one kind does as well: among 20 of that kind it is one of two.
    plan[randoms[0]] = first(6)
    found = Beliefs().control_rank(answers(plan), CHOSEN, randoms)
    assert not found["beats_controls"] and found["p"] == 2 / 21
    # Beyond the first six stories the vector is perfect, but no control was asked there.
    late = first(1)
    late[6:] = True
    plan = {BASELINE: first(0), CHOSEN: late, **{point: first(2, 6) for point in randoms[:2]}}
    found = Beliefs().control_rank(answers(plan), CHOSEN, randoms[:2])
    assert (found["rank"], found["stories"], found["beats_controls"]) == (3, 6, False)
    assert found["gain"] == pytest.approx(1 / 6)
