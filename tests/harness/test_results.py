"""Numbers of a run, checked by answer sheets made by hand."""

from __future__ import annotations

from dataclasses import asdict, replace

import pandas as pd
import pytest

from sally_anne.benchmarks.items import Option
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
    assert counts(table, ["x"]) == {"asked": 3, "hidden": 2, "missing": 1}
    assert break_down(scored([item(0, None)], ["A"]), ()) == {}


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
