"""What a description says of its containers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.data.mmtom_qa.scenes import THINGS, Contents

SCENE = """The apartment consists of a bedroom, kitchen, living room, and bathroom.
In the bedroom, there is a desk and a cabinet. The cabinet houses two books, while a plate
rests on the desk.
The kitchen is equipped with eight cabinets, a fridge, a stove, a microwave, and a dishwasher.
The first cabinet holds two bottles of wine, the second a bag of chips. The third and 5th cabinets
are empty, and the sixth through eighth cabinets, from left to right, each hold a dish bowl.
The fridge stores a plate and two water glasses, and a salmon is in the microwave.
A cupcake can be found in both the microwave and the stove.
Lastly, the bathroom has a cabinet, which is currently empty."""
# One line for each room, as published.
SCENE = re.sub(r"(?<!\.)\n", " ", SCENE)


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
    text = SCENE.replace("cabinets\nare", "cabinets are").replace(
        "second a bag", "second one a bag"
    )
    assert Contents(text).holds(container, thing) is expected


@pytest.mark.parametrize(
    ("sentence", "thing", "expected"),
    [
        ("The stove holds a plate, and there is a salmon in the fridge.", "plate", False),
        ("The stove holds a plate, and there is a salmon in the fridge.", "salmon", True),
        ("The stove holds a plate while the fridge holds a salmon.", "plate", False),
        ("The stove and the fridge each hold a plate.", "plate", True),
        ("The stove, microwave, and fridge are empty.", "plate", False),
        ("A plate, an apple, and a book are inside the fridge.", "plate", True),
        ("Inside the fridge, you'll find three apples; the stove has a plate.", "plate", False),
        ("The refrigerator stores several plates.", "plate", True),
        ("There are plates somewhere. The fridge is full of apples.", "plate", None),
    ],
)
def test_forms_of_sentences(sentence, thing, expected) -> None:
    assert Contents(f"In the kitchen it is warm. {sentence}").holds("fridge", thing) is expected


def test_two_cabinets_count_if_they_agree() -> None:
    def cabinets(bedroom: str, living: str) -> Contents:
        return Contents(
            f"In the bedroom, the cabinet holds {bedroom}.\nIn the living room, the cabinet holds "
            f"{living}."
        )

    assert cabinets("a book", "two books").holds("cabinet", "book") is True
    assert cabinets("a book", "a plate").holds("cabinet", "book") is None
    assert cabinets("an apple", "a plate").holds("cabinet", "book") is False


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text() | st.lists(st.sampled_from(SCENE.split())).map(" ".join))
def test_any_text_gives_an_answer(text) -> None:
    contents = Contents(text)
    assert all(contents.holds("fridge", thing) in (True, False, None) for thing in THINGS)
