"""Scores and figures: TB, FB, Both and accuracy, on sheets made by hand and by chance."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import isnan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sally_anne.data.items import Option, Question
from sally_anne.harness.score import (
    counts,
    differences,
    estimates,
    over,
    results_of,
    score,
    write_submission,
)
from tests.made_replies import figures_of

# One story's outcomes: right (1), wrong (0) or invalid (None), of TB and FB.
Outcomes = list[tuple[int | None, int | None]]


def sheet(outcomes: Outcomes) -> pd.DataFrame:
    """First-order sheet of one TB and one FB item a story."""
    return pd.DataFrame(
        [
            {
                "item_id": f"{story}-{condition}",
                "story": f"story-{story}",
                "condition": condition,
                "correct": bool(outcome),
                "invalid": outcome is None,
            }
            for story, pair in enumerate(outcomes)
            for condition, outcome in zip(("TB", "FB"), pair, strict=True)
        ]
    )


def second_order(outcomes: dict[tuple[str, str, str], int]) -> pd.DataFrame:
    """Sheet from story, first and second condition."""
    return pd.DataFrame(
        [
            {
                "item_id": "-".join(key),
                "story": key[0],
                "first": key[1],
                "condition": key[2],
                "correct": bool(outcome),
                "invalid": False,
            }
            for key, outcome in outcomes.items()
        ]
    )


def drawn(stories: int, p: float, seed: int) -> pd.DataFrame:
    right = np.random.default_rng(seed).random((stories, 2)) < p
    return sheet([(int(tb), int(fb)) for tb, fb in right])


def values(items: pd.DataFrame) -> tuple[float, float, float, float]:
    found = estimates(items, True, bootstrap=10)
    return tuple(found[name].value for name in ("TB", "FB", "Both", "invalid"))


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([(1, 1)] * 4, (1, 1, 1, 0)),
        ([(0, 0)] * 4, (0, 0, 0, 0)),
        ([(1, 0), (0, 1), (1, 0), (0, 1)], (0.5, 0.5, 0, 0)),
        ([(1, 1), (0, 0), (1, 1), (0, 0)], (0.5, 0.5, 0.5, 0)),
        ([(1, None), (None, None), (1, 1), (0, 1)], (0.5, 0.5, 0.25, 0.375)),
        ([(None, None)] * 2, (0, 0, 0, 1)),
    ],
)
def test_values_of_sheets_made_by_hand(outcomes: Outcomes, expected) -> None:
    assert values(sheet(outcomes)) == pytest.approx(expected)


def test_an_invalid_answer_is_wrong_even_if_marked_correct() -> None:
    items = sheet([(1, 1), (1, 1)])
    items.loc[0, "invalid"] = True
    assert values(items) == (0.5, 1, 0.5, 0.25)
    assert estimates(items, False)["overall"].value == 0.75


@given(
    st.dictionaries(
        st.tuples(
            st.sampled_from("stuv"), st.sampled_from(["TB", "FB"]), st.sampled_from(["TB", "FB"])
        ),
        st.integers(0, 1),
        min_size=1,
    )
)
@settings(max_examples=40, deadline=None)
def test_both_is_what_a_loop_finds(outcomes) -> None:
    keys = set(outcomes)
    assume(any(first != second for _, first, second in keys))  # else it is of first order
    pairs = [
        outcomes[story, first, "TB"] and outcomes[story, first, "FB"]
        for story in "stuv"
        for first in ("TB", "FB")
        if {(story, first, "TB"), (story, first, "FB")} <= keys
    ]
    found = estimates(second_order(outcomes), True, bootstrap=20)["Both"]
    assert found.n == len(pairs)
    assert isnan(found.value) if not pairs else found.value == pytest.approx(np.mean(pairs))


def loop(
    items: pd.DataFrame, statistic: Callable[[pd.DataFrame], float], bootstrap: int, seed: int
) -> tuple[float, float]:
    """The bootstrap as one would write it: stories drawn one by one, the statistic anew."""
    stories = sorted(items["story"].unique())
    by_story = {story: rows for story, rows in items.groupby("story")}
    found = []
    draws = np.random.default_rng(seed).integers(0, len(stories), (bootstrap, len(stories)))
    for draw in draws:
        found.append(statistic(pd.concat([by_story[stories[i]] for i in draw])))
    low, high = np.nanquantile(found, [0.05, 0.95])
    return float(low), float(high)


def both(rows: pd.DataFrame) -> float:
    """Rows come as TB, FB, TB, FB, ..."""
    return float(rows["correct"].to_numpy().reshape(-1, 2).all(axis=1).mean())


def test_the_bootstrap_is_that_of_a_loop() -> None:
    items = drawn(12, 0.6, seed=5)
    items.loc[[3, 8], ["correct", "invalid"]] = [False, True]
    found = estimates(items, True, bootstrap=60, seed=7, level=0.9)
    for name, statistic in {
        "TB": lambda rows: rows.loc[rows["condition"] == "TB", "correct"].mean(),
        "FB": lambda rows: rows.loc[rows["condition"] == "FB", "correct"].mean(),
        "Both": both,
        "invalid": lambda rows: rows["invalid"].mean(),
    }.items():
        estimate = found[name]
        assert (estimate.low, estimate.high) == pytest.approx(loop(items, statistic, 60, 7))


def test_differences_are_b_minus_a_item_by_item() -> None:
    a = sheet([(1, 0), (0, 0), (1, 1), (None, 1)])
    b = sheet([(1, 1), (1, 0), (1, None), (1, 1)])
    b = b.sample(frac=1, random_state=0)
    found = differences(a, b, True, bootstrap=60, seed=4, level=0.9)
    gains = {"TB": 0.5, "FB": 0.0, "Both": 0.25, "invalid": 0.0}
    assert {name: e.value for name, e in found.items()} == gains
    joined = a.assign(gain=b["correct"].astype(int) - a["correct"].astype(int))
    low, high = loop(joined, lambda rows: rows.loc[rows["condition"] == "FB", "gain"].mean(), 60, 4)
    assert (found["FB"].low, found["FB"].high) == pytest.approx((low, high))


def on_maps(stories: int, maps: int) -> pd.DataFrame:
    """Four items a story; a map's stories share their outcome, the maps' outcomes take turns."""
    items = sheet([(m % 2, 1) for m in range(maps) for _ in range(stories)])
    number = items["story"].str.removeprefix("story-").astype(int) // stories
    return items.assign(map=[f"map-{n:02d}" for n in number])


@pytest.mark.parametrize(("maps", "unit"), [(4, "story"), (5, "map"), (8, "map")])
def test_intervals_are_over_maps_where_there_are_five(maps: int, unit: str) -> None:
    items = on_maps(6, maps)
    assert over(items) == unit
    found = estimates(items, False)
    # The same as if every map were one story, or as if nobody knew of maps.
    as_one = items.assign(story=items["map"]) if unit == "map" else items
    assert found == estimates(as_one.drop(columns="map"), False)
    by_story = estimates(items, True, unit="story")
    assert by_story == estimates(items.drop(columns="map"), True)
    by_map = items.assign(story=items["map"]).drop(columns="map")
    assert estimates(items, False, unit="map") == estimates(by_map, False)
    both, stories = estimates(items, True)["Both"], by_story["Both"]
    assert (both.value, both.n) == (stories.value, stories.n)
    if unit == "map":
        assert both.high - both.low > 1.5 * (stories.high - stories.low)
        worse = items.assign(correct=False)
        assert differences(worse, items, True)["Both"] == both
        assert differences(worse, items, False)["overall"] == found["overall"]
    else:
        assert both == stories


OPTIONS = (Option("A", "red"), Option("B", "blue"))


def item(number: int, answer: str | None = "A", **tags: tuple[str, ...]) -> Question:
    facts = {"condition": tags.get("condition", ("",))[0], "tags": tags, "text": "?"}
    where = (f"i{number}", "made", "test", f"s{number // 2}")
    return Question(*where, "", OPTIONS, answer, **facts)


def scored(items: list[Question], replies: list[str]) -> pd.DataFrame:
    answers = [{"item_id": i.item_id, "reply": r} for i, r in zip(items, replies, strict=True)]
    return score(items, answers)


def test_hidden_keys_are_never_wrong() -> None:
    table = scored([item(0), item(1, None), item(2, None)], ["A", "A", "B"])
    assert figures_of(results_of(table))["all"] == (1.0, 1)
    assert counts(table, ["x"]) == {"asked": 3, "hidden": 2, "cut": 0, "missing": 1}
    assert results_of(scored([item(0, None)], ["A"])) == []


def test_an_item_counts_in_each_of_its_tags() -> None:
    items = [item(0, ability=("x", "y")), item(1, ability=("y",)), item(2)]
    found = figures_of(results_of(scored(items, ["A", "B", "B"]), ("ability", "cue")))
    assert (found["ability: x"], found["ability: y"], len(found)) == ((1.0, 1), (0.5, 2), 4)


def bigtom() -> tuple[list[Question], list[str]]:
    """Six stories: two variables in both conditions, and one that comes with TB alone."""
    items, replies = [], []
    for story in range(6):
        for variable, condition, right in (
            ("action", "TB", True),
            ("action", "FB", story < 3),
            ("belief", "TB", story < 3),
            ("belief", "FB", story < 1),
            ("percept", "TB", False),
        ):
            tags = {"condition": (condition,), "variable": (variable,), "initial": ("told",)}
            items.append(replace(item(len(items), **tags), group=f"s{story}"))
            replies.append("A" if right else "B")
    return items, replies


def test_beliefs_are_paired_within_cells_and_leave_out_what_has_one_condition() -> None:
    belief = figures_of(results_of(scored(*bigtom()), ("variable",)))
    # With the six of percept, of which all are wrong, it would be 0.5 of 18.
    assert belief["TB"] == (0.75, 12)
    assert belief["FB"] == (pytest.approx(4 / 12), 12)
    assert belief["Both"] == (pytest.approx(4 / 12), 12)
    assert belief["variable: percept"][1] == 6
    cells = figures_of(results_of(scored(*bigtom()), (), ("initial", "variable")))
    for cell, shares in {"action": [1.0, 0.5, 0.5], "belief": [0.5, 1 / 6, 1 / 6]}.items():
        found = [cells[f"told, {cell}: {name}"][0] for name in ("TB", "FB", "Both")]
        assert found == pytest.approx(shares)


def test_questions_of_one_story_are_drawn_together_in_belief_intervals() -> None:
    """Two variables that agree in each story say no more than one of them does."""
    items, replies = bigtom()
    kept = [n for n, i in enumerate(items) if i.tags["variable"] == ("action",)]
    pairs = [
        replace(items[n], item_id=f"{n}b", tags=items[n].tags | {"variable": ("x",)}) for n in kept
    ]
    one = scored([items[n] for n in kept], [replies[n] for n in kept])
    two = scored([*(items[n] for n in kept), *pairs], [replies[n] for n in kept] * 2)
    found = ([r for r in results_of(t) if r["measure"] == "FB"] for t in (one, two))
    alone, both = (rows[0] for rows in found)
    assert (both["n"], alone["n"]) == (12, 6)
    assert (both["low"], both["high"]) == (alone["low"], alone["high"])


def test_open_questions_wait_for_a_judge() -> None:
    open_item = Question("o", "made", "test", "s", "Why?", text="?", reference="So.")
    table = score([open_item], [{"item_id": "o", "reply": "Because."}])
    assert results_of(table) == []
    assert table.loc[0, "reference"] == "So." and not table.loc[0, "hidden"]
    judged = table.assign(judge_correct=True, judge_invalid=False)
    assert figures_of(results_of(judged), "judge")["all"] == (1.0, 1)


def test_joint_scores_want_all_questions_of_a_story_or_set_to_be_right() -> None:
    items, replies = [], []
    for story, rights in enumerate([(1, 1, 1), (1, 0, 1), (0, 1, 1), (1, 1, 0)]):
        for order, right in enumerate(rights):
            joint = tuple(f"up to {top}" for top in range(max(order, 1), 3))
            one = item(len(items), joint=joint, set=("x" if story < 3 else "y",))
            # Stories 2 and 3 are two sets of one group.
            items.append(replace(one, group=f"s{min(story, 2)}"))
            replies.append("A" if right else "B")
    found = figures_of(results_of(scored(items, replies)))
    assert found["all right: up to 1"] == (0.5, 4) and found["all right: up to 2"] == (0.25, 4)


def test_a_submission_has_na_for_missing_films_and_null_for_no_choice(tmp_path: Path) -> None:
    table = pd.DataFrame({"item_id": ["a", "b"], "robust_label": ["B", None]})
    write_submission(table, tmp_path / "x.json", missing=["d"])
    assert json.loads((tmp_path / "x.json").read_text()) == [
        {"question_id": "a", "answer_key": "B"},
        {"question_id": "b", "answer_key": None},
        {"question_id": "d", "answer_key": "NA"},
    ]
