"""Prose about what is where, and about what somebody does, becomes contents and steps."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.data.mmtom_qa import load
from sally_anne.data.mmtom_qa.scenes import Contents, Course, read_actions
from tests.shared_data import SOURCES, official_data

SCENE = Contents(
    "The apartment has rooms.\nIn the kitchen, there is a fridge, a stove and a microwave. The "
    "first, second and third cabinets are empty.\nThe living room has a cabinet, which is empty.\n"
    "The bathroom has a cabinet."
)
SHORT = {"go to": ">", "pass": "~", "open": "+", "close": "-", "be about to open": "?"}


def short(course: Course) -> str:
    """``kitchen| >fridge +fridge``: the first room and all steps, cabinets as ``K1``."""
    names = [f"{SHORT[a.verb]}{a.target}" for a in course.actions]
    return f"{course.room}| {' '.join(names)}".replace("kitchen cabinet ", "K")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He is in the kitchen. He opens the fridge.", "kitchen| >fridge +fridge"),
        (
            "He is in the bathroom. He goes to the kitchen, opens and then closes the stove.",
            "bathroom| >kitchen >stove +stove -stove",
        ),
        (
            "She opens the fridge and closes it, does the same with the stove, and is about to "
            "open the microwave.",
            "| >fridge +fridge -fridge >stove +stove -stove ?microwave",
        ),
        (
            "She walks to the third, first and second kitchen cabinets, opening and closing each.",
            "| >K3 +K3 -K3 >K1 +K1 -K1 >K2 +K2 -K2",
        ),
        ("She moves to the stove. She opens the stove.", "| >stove +stove"),
        (
            "He walks to the first cabinet, opens it and closes it, as well as the fridge.",
            "| >K1 +K1 -K1 >fridge +fridge -fridge",
        ),
        (
            "He opens the stove and closes it, before heading to the fridge to do the same.",
            "| >stove +stove -stove >fridge +fridge -fridge",
        ),
        (
            "She is in the kitchen. She leaves the kitchen and goes to the living room, preparing "
            "to open a cabinet.",
            "kitchen| >living room ?living room cabinet",
        ),
        (
            "She is in the kitchen. She walks to the bathroom, opens and closes the bathroom "
            "cabinet, and goes back to the kitchen.",
            "kitchen| >bathroom >bathroom cabinet +bathroom cabinet -bathroom cabinet >kitchen",
        ),
        (
            "He is in the kitchen. He walks past the stove towards the wine glass.",
            "kitchen| ~stove >wine glass",
        ),
        ("He enters the kitchen and continues his journey to the fridge.", "kitchen| >fridge"),
        ("He sings, opens up, and closes.", "| "),
        ("", "| "),
    ],
)
def test_forms_of_sentences(text: str, expected: str) -> None:
    assert short(read_actions(text, SCENE)) == expected


@pytest.mark.parametrize("source", SOURCES)
def test_steps_of_official_prose_hang_together(source: str) -> None:
    for item in load(official_data(source, "mmtom_qa")):
        contents = Contents(item.context.scene)
        course = read_actions(item.context.actions, contents)
        assert course.room and course.actions, item.item_id
        here = ""
        for action, after in zip(course.actions, [*course.actions[1:], None], strict=True):
            if action.verb in ("open", "close"):
                assert action.target == here, item.item_id
            # What is opened is closed, what is gone to is opened: all but what comes last.
            if after and action.aim == "place":
                follow = {"open": ("close",), "go to": ("open", "close")}.get(action.verb)
                assert follow is None or after.verb in follow, item.item_id
            assert action.aim != "place" or action.target in contents.rooms, item.item_id
            here = action.target


WORDS = re.findall(
    r"\S+",
    "He She opens closes shuts it the a fridge stove microwave first second third fourth kitchen "
    "cabinet cabinets bathroom living room and then , . does the same with repeats this action is "
    "about to open preparing past leaves as well as wine glass salmon each",
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(text=st.text() | st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))
def test_any_text_gives_steps(text: str) -> None:
    course = read_actions(text, SCENE)
    for action, before in zip(course.actions, [None, *course.actions], strict=False):
        assert action.target
        if action.verb in ("open", "close"):
            assert before is not None and before.target == action.target


DESCRIPTION = """The apartment consists of a bedroom, kitchen, living room, and bathroom.
In the bedroom, there is a desk and a cabinet. The cabinet houses two books, while a plate
rests on the desk.
The kitchen is equipped with eight cabinets, a fridge, a stove, a microwave, and a dishwasher.
The first cabinet holds two bottles of wine, the second a bag of chips. The third and 5th cabinets
are empty, and the sixth through eighth cabinets, from left to right, each hold a dish bowl.
The fridge stores a plate and two water glasses, and a salmon is in the microwave.
A cupcake can be found in both the microwave and the stove.
Lastly, the bathroom has a cabinet, which is currently empty."""
# One line for each room, as published.
DESCRIPTION = re.sub(r"(?<!\.)\n", " ", DESCRIPTION)


@pytest.mark.parametrize(
    ("container", "thing", "expected"),
    [
        ("1st kitchen cabinet", "bottle of wine", True),
        ("1st kitchen cabinet", "bag of chips", False),
        ("2nd kitchen cabinet", "bag of chips", True),
        ("2nd kitchen cabinet", "bottle of wine", False),
        ("3rd kitchen cabinet", "plate", False),
        ("5th kitchen cabinet", "dishbowl", False),
        ("6th kitchen cabinet", "dishbowl", True),
        ("7th kitchen cabinet", "dish bowl", True),
        ("8th kitchen cabinet", "dishbowl", True),
        ("4th kitchen cabinet", "plate", None),
        ("fridge", "plate", True),
        ("Fridge", "water glass", True),
        ("fridge", "wine glass", False),
        ("fridge", "salmon", False),
        ("microwave", "salmon", True),
        ("microwave", "plate", False),
        ("microwave", "cupcake", True),
        ("stove", "cupcake", True),
        ("stove", "salmon", False),
        # Named among the furniture alone: nothing is told of what is in it.
        ("dishwasher", "plate", None),
        ("bathroom cabinet", "plate", False),
        ("cabinet", "book", True),
        ("cabinet", "plate", False),
        ("desk", "plate", True),
        ("wardrobe", "plate", None),
        ("fridge", "elephant", None),
        ("", "", None),
    ],
)
def test_things_are_where_the_description_puts_them(container, thing, expected) -> None:
    text = DESCRIPTION.replace("cabinets\nare", "cabinets are").replace(
        "second a bag", "second one a bag"
    )
    assert Contents(text).holds(container, thing) is expected


def test_two_cabinets_count_if_they_agree() -> None:
    def cabinets(bedroom: str, living: str) -> Contents:
        return Contents(
            f"In the bedroom, the cabinet holds {bedroom}.\nIn the living room, the cabinet holds "
            f"{living}."
        )

    assert cabinets("a book", "two books").holds("cabinet", "book") is True
    assert cabinets("a book", "a plate").holds("cabinet", "book") is None
    assert cabinets("an apple", "a plate").holds("cabinet", "book") is False
