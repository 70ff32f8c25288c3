"""Options become goals and beliefs, and beliefs follow what is seen."""

from __future__ import annotations

import pytest

from sally_anne.data.items import BenchmarkItem, Option
from sally_anne.data.mmtom_qa import load
from sally_anne.data.mmtom_qa.actions import Action, Course, read_actions
from sally_anne.data.mmtom_qa.contents import Contents
from sally_anne.harness.bip_alm.minds import (
    Hypothesis,
    followed,
    hypotheses,
    last_visit,
    steps,
)
from tests.shared_data import SOURCES, official_data

CONTENTS = Contents(
    "In the kitchen, there is a fridge, a stove and a sofa. The fridge holds a plate. The stove "
    "holds an apple. The sofa holds a book.\nIn the bedroom, there is a cabinet and a desk. The "
    "cabinet holds a salmon. The desk holds a cupcake."
)
EVERY = ("fridge", "stove", "kitchen sofa", "bedroom cabinet", "bedroom desk")
WALK = read_actions(
    "Ida is in the bedroom. She goes to the kitchen, opens the stove and closes it, and is about "
    "to open the fridge.",
    CONTENTS,
)


def item(question: str, *options: str) -> BenchmarkItem:
    return BenchmarkItem(
        "1", "mmtom_qa", "test", "e", question, tuple(map(Option, "ab", options)), "a"
    )


def suspected(goal: str, never: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    return [step.suspected for step in followed(goal, WALK, CONTENTS, never)]


def test_beliefs_about_what_is_nowhere_to_be_seen() -> None:
    """The bedroom's desk is seen at once, the sofa upon entering, the stove once it is open."""
    first = ("fridge", "stove", "kitchen sofa", "bedroom cabinet")
    entered = ("fridge", "stove", "bedroom cabinet")
    opened = ("fridge", "bedroom cabinet")
    assert suspected("plate") == [first, entered, entered, opened, opened]
    rid = suspected("plate", ("fridge",))
    assert rid[0] == first[1:] and rid[-1] == ("bedroom cabinet",)


@pytest.mark.parametrize(
    ("goal", "found", "since"),
    [("cupcake", "bedroom desk", 0), ("book", "kitchen sofa", 1), ("apple", "stove", 3)],
)
def test_what_is_seen_is_where_it_is(goal: str, found: str, since: int) -> None:
    known = [places == (found,) for places in suspected(goal)]
    assert known == [number >= since for number in range(len(known))]


def test_a_belief_is_judged_by_the_last_visit() -> None:
    inside, other = Hypothesis("plate", "inside", ("fridge",)), ("bedroom cabinet",)
    (step,) = steps(inside, WALK, CONTENTS)
    assert step.action == Action("be about to open", "fridge") and step.suspected == ("fridge",)
    assert (step.room, step.at, step.is_open) == ("kitchen", "stove", False)
    (step,) = steps(Hypothesis("plate", "not inside", ("fridge",)), WALK, CONTENTS)
    assert step.suspected == other
    assert len(steps(Hypothesis("plate", "goal"), WALK, CONTENTS)) == len(WALK.actions)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("She opens the stove and closes it.", 0),
        ("She opens the stove, goes to the bedroom and walks to the desk.", 2),
        ("She opens the stove, goes to the bathroom, the bedroom and the desk.", 3),
        ("", 0),
    ],
)
def test_where_the_last_visit_begins(text: str, first: int) -> None:
    actions = read_actions(f"She is in the kitchen. {text}", CONTENTS).actions
    assert last_visit(actions) == first


def test_options_become_hypotheses() -> None:
    belief = item(
        "If Ida has been trying to get a dishbowl, which?",
        "Ida thinks that the dish bowl is not inside the cabinet.",
        "Ida thinks that the dishbowl is inside the 2nd kitchen cabinet.",
    )
    assert hypotheses(belief, CONTENTS) == {
        "a": Hypothesis("dish bowl", "not inside", ("bedroom cabinet",)),
        "b": Hypothesis("dish bowl", "inside", ("kitchen cabinet 2",)),
    }
    goal = item(
        "If Ida think there isn't an apple inside the stove, which?",
        "Ida has been trying to get an apple.",
        "Ida has been trying to get some bag of chips.",
    )
    assert hypotheses(goal, CONTENTS) == {
        "a": Hypothesis("apple", "goal", ("stove",)),
        "b": Hypothesis("bag of chips", "goal"),
    }
    for wording in ("Ida is sad.", "Ida has been trying to get a unicorn."):
        assert hypotheses(item("Which?", wording, wording), CONTENTS) is None


@pytest.mark.parametrize("source", SOURCES)
def test_the_wording_of_all_official_options_is_known(source: str) -> None:
    for asked in load(official_data(source, "mmtom_qa")):
        contents = Contents(asked.context.scene)
        found = hypotheses(asked, contents)
        assert found is not None and list(found) == ["a", "b"], asked.item_id
        assert len(set(found.values())) == 2
        course = read_actions(asked.context.actions, contents)
        counts = {len(steps(mind, course, contents)) for mind in found.values()}
        assert len(counts) == 1 and min(counts) > 0


def test_nobody_does_nothing() -> None:
    assert steps(Hypothesis("plate", "inside", ("fridge",)), Course("", ()), CONTENTS) == ()
    assert set(EVERY) == set(CONTENTS.rooms)
