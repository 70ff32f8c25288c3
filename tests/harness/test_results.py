"""Numbers of a run, checked by answer sheets made by hand."""

from __future__ import annotations

from dataclasses import asdict, replace

import pandas as pd
import pytest

from sally_anne.data.items import Option
from sally_anne.harness.items import Item
from sally_anne.harness.metrics import accuracy
from sally_anne.harness.results import break_down, counts, score, summarise

OPTIONS = (Option("A", "red"), Option("B", "blue"))


def item(number: int, answer: str | None = "A", **tags: tuple[str, ...]) -> Item:
    condition = tags.get("condition", ("",))[0]
    return Item(
        item_id=f"i{number}",
        story=f"s{number // 2}",
        split="test",
        condition=condition,
        first="",
        text="?",
        options=OPTIONS,
        answer=(answer,) if answer else (),
        tags=tags,
    )


def scored(items: list[Item], replies: list[str]) -> pd.DataFrame:
    answers = [{"item_id": i.item_id, "reply": r} for i, r in zip(items, replies, strict=True)]
    return score(items, answers)


@pytest.mark.parametrize(
    ("replies", "right", "invalid"),
    [
        (["A", "A", "A", "A"], 1.0, 0.0),
        (["B", "B", "B", "B"], 0.0, 0.0),
        (["A", "B", "A", "B"], 0.5, 0.0),
        (["A", "A", "no idea", ""], 0.5, 0.5),
    ],
)
def test_sheets_by_hand(replies: list[str], right: float, invalid: float) -> None:
    found = break_down(scored([item(n) for n in range(4)], replies), ())["robust"]
    assert found["overall"]["value"] == right
    assert found["invalid"]["value"] == invalid
    assert "belief" not in found


def test_hidden_keys_are_never_wrong() -> None:
    table = scored([item(0), item(1, None), item(2, None)], ["A", "A", "B"])
    assert break_down(table, ())["robust"]["overall"] == pytest.approx(
        {"value": 1.0, "low": 1.0, "high": 1.0, "n": 1}
    )
    assert counts(table, ["x"]) == {"asked": 3, "hidden": 2, "cut": 0, "missing": 1}
    assert break_down(scored([item(0, None)], ["A"]), ()) == {}


def test_what_older_journals_do_not_say_is_not_counted_as_cut() -> None:
    replies = [{"reply": "A"}, {"reply": "A", "ended": True}, {"reply": "A", "ended": False}]
    table = score([item(n) for n in range(3)], replies)
    assert table["cut"].tolist() == [False, False, True] and counts(table)["cut"] == 1


def test_an_item_counts_in_each_of_its_tags() -> None:
    items = [item(0, ability=("x", "y")), item(1, ability=("y",)), item(2)]
    groups = break_down(scored(items, ["A", "B", "B"]), ("ability", "cue"))["robust"]["groups"]
    assert {name: (cell["value"], cell["n"]) for name, cell in groups["ability"].items()} == {
        "x": (1.0, 1),
        "y": (0.5, 2),
    }
    assert groups["cue"] == {}


def test_beliefs_pair_up_within_all_other_tags() -> None:
    items = [
        item(0, condition=("TB",), kind=("a",)),
        item(1, condition=("FB",), kind=("a",)),
        item(2, condition=("TB",), kind=("b",)),
        item(3, condition=("FB",), kind=("b",)),
    ]
    belief = break_down(scored(items, ["A", "A", "B", "A"]), ())["robust"]["belief"]
    assert [belief[name]["value"] for name in ("TB", "FB", "Both")] == [0.5, 1.0, 0.5]


def test_conditions_that_make_no_pairs_have_no_belief_metrics() -> None:
    items = [item(0, condition=("TB",)), item(1, condition=("TB",))]
    assert "belief" not in break_down(scored(items, ["A", "A"]), ())["robust"]


def bigtom() -> tuple[list[Item], list[str]]:
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
            items.append(replace(item(len(items), **tags), story=f"s{story}"))
            replies.append("A" if right else "B")
    return items, replies


def test_what_is_asked_in_one_condition_alone_is_not_mixed_into_beliefs() -> None:
    found = break_down(scored(*bigtom()), ("variable",))["robust"]
    belief = {name: (cell["value"], cell["n"]) for name, cell in found["belief"].items()}
    # With the six of percept, of which all are wrong, it would be 0.5 of 18.
    assert belief["TB"] == (0.75, 12)
    assert belief["FB"] == (pytest.approx(4 / 12), 12)
    assert belief["Both"] == (pytest.approx(4 / 12), 12)
    assert found["groups"]["variable"]["percept"]["n"] == 6
    assert "cells" not in found


def test_each_cell_has_its_own_true_and_false_beliefs() -> None:
    cells = break_down(scored(*bigtom()), (), ("initial", "variable"))["robust"]["cells"]
    assert {
        name: [(cell[part]["value"], cell[part]["n"]) for part in ("TB", "FB", "Both")]
        for name, cell in cells.items()
    } == {
        "told, action": [(1.0, 6), (0.5, 6), (0.5, 6)],
        "told, belief": [(0.5, 6), (pytest.approx(1 / 6), 6), (pytest.approx(1 / 6), 6)],
    }


def test_questions_of_one_story_are_drawn_together_in_belief_intervals() -> None:
    """Two variables that agree in each story say no more than one of them does."""
    items, replies = bigtom()
    kept = [n for n, i in enumerate(items) if i.tags["variable"] == ("action",)]
    twins = [
        replace(items[n], item_id=f"{n}b", tags=items[n].tags | {"variable": ("x",)}) for n in kept
    ]
    one = scored([items[n] for n in kept], [replies[n] for n in kept])
    two = scored([*(items[n] for n in kept), *twins], [replies[n] for n in kept] * 2)
    alone, both = (break_down(table, ())["robust"]["belief"]["FB"] for table in (one, two))
    assert (both["n"], alone["n"]) == (12, 6)
    assert (both["low"], both["high"]) == (alone["low"], alone["high"])


def test_open_questions_wait_for_a_judge() -> None:
    open_item = Item("o", "s", "test", "", "", "?", (), (), question="Why?", reference="So.")
    table = score([open_item], [{"item_id": "o", "reply": "Because."}])
    assert break_down(table, ()) == {}
    assert table.loc[0, "reference"] == "So." and not table.loc[0, "hidden"]
    judged = table.assign(judge_correct=True, judge_invalid=False)
    assert break_down(judged, ())["judge"]["overall"]["value"] == 1.0


def test_intervals_over_stories_stand_beside_those_over_maps() -> None:
    items = [replace(item(n), map=f"map-{n % 6:02d}", story=f"s{n}") for n in range(24)]
    table = scored(items, ["A" if n % 6 < 3 else "B" for n in range(24)])
    found = summarise(table, "initial")["robust"]
    sheet = table.rename(columns={"robust_correct": "correct", "robust_invalid": "invalid"})
    assert found["over_stories"] == asdict(accuracy(sheet.drop(columns="map")))
    assert found["overall"] == asdict(accuracy(sheet.assign(story=sheet["map"])).overall)
    assert found["overall"]["low"] < found["over_stories"]["overall"]["low"]
    few = scored([replace(i, map="map-00") for i in items], ["A"] * 24)
    assert "over_stories" not in summarise(few, "initial")["robust"]


def test_joint_scores_want_all_questions_of_a_story_or_set_to_be_right() -> None:
    items, replies = [], []
    for story, rights in enumerate([(1, 1, 1), (1, 0, 1), (0, 1, 1), (1, 1, 0)]):
        for order, right in enumerate(rights):
            joint = tuple(f"up to {top}" for top in range(max(order, 1), 3))
            one = item(len(items), joint=joint, set=("x" if story < 3 else "y",))
            # Stories 2 and 3 are two sets of one group.
            items.append(replace(one, story=f"s{min(story, 2)}"))
            replies.append("A" if right else "B")
    found = break_down(scored(items, replies), ())["robust"]["joint"]
    assert {name: (cell["value"], cell["n"]) for name, cell in found.items()} == {
        "up to 1": (0.5, 4),
        "up to 2": (0.25, 4),
    }


def test_cells_say_what_makes_a_pair() -> None:
    """A tag that tells TB from FB, as whose belief it is, would part all pairs."""
    items = [
        item(0, condition=("TB",), who=("mover",), kind=("a",)),
        item(1, condition=("FB",), who=("other",), kind=("a",)),
        item(2, who=("mover",), kind=("b",)),
    ]
    items = [replace(one, story="s") for one in items]
    table = scored(items, ["A", "A", "B"])
    assert "belief" not in break_down(table, ())["robust"]
    found = break_down(table, ("who",), ("kind",))["robust"]
    assert (found["belief"]["Both"]["value"], found["belief"]["Both"]["n"]) == (1.0, 1)
    assert set(found["cells"]) == {"a"}
