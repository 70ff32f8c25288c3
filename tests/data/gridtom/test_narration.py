"""Captions: what each perspective must tell and must not."""

from __future__ import annotations

import re

import pytest

from sally_anne.data.gridtom.narration import Cast, caption, environment, initial_environment

CAST = Cast("white", "yellow", "red", "green", "purple")
VERSIONS = [("TB", None), ("FB", None), ("TB", "TB"), ("FB", "TB"), ("TB", "FB"), ("FB", "FB")]


def parts(text: str) -> tuple[str, str, str]:
    found = re.fullmatch(r"1\. (.+) 2\. (.+) 3\. (.+) The video ends here\.", text)
    assert found, text
    return found[1], found[2], found[3]


@pytest.mark.parametrize("perspective", ["omniscient", "protagonist", "participant"])
@pytest.mark.parametrize(("first", "second"), VERSIONS)
def test_three_parts_in_whole_sentences(first, second, perspective) -> None:
    told = parts(caption(CAST, first, second, perspective))
    for part in told:
        for sentence in re.split(r"(?<=\.) ", part):
            assert re.fullmatch(r"[A-Z][^.]*\.", sentence)
    assert told[0].endswith("sees the white agent go into the red room.")


@pytest.mark.parametrize(("first", "second"), VERSIONS)
def test_from_above_the_transfer_is_always_told(first, second) -> None:
    _, own, transfer = parts(caption(CAST, first, second))
    closed = (first == "FB") != (second == "FB")
    assert ("closes the green door" in own) == closed
    assert ("leaves the green door open" in own) == (not closed)
    assert "leaves the red room" in transfer
    assert transfer.endswith("walks into the purple room and closes the purple door.")


def test_first_order_says_nothing_of_what_the_participant_sees() -> None:
    for first in ("TB", "FB"):
        assert "the white agent sees" not in caption(CAST, first)


@pytest.mark.parametrize(
    ("first", "second", "state", "change"),
    [
        ("TB", "TB", "open", None),
        ("FB", "TB", "closed", None),
        ("TB", "FB", "closed", "opens the green door, and the white agent does not notice it, "
         "so the yellow agent sees the white agent leave."),
        ("FB", "FB", "open", "closes the green door, and the white agent does not notice it, "
         "so the yellow agent does not see the white agent leave."),
    ],
)  # fmt: skip
def test_second_order_tells_the_sighting_and_the_unnoticed_change(
    first, second, state, change
) -> None:
    transfer = parts(caption(CAST, first, second))[2]
    assert f"the white agent sees that the green door is {state}." in transfer
    if change is None:
        assert "notice" not in transfer
    else:
        assert change in transfer


@pytest.mark.parametrize("second", [None, "TB", "FB"])
def test_a_deceived_protagonist_never_hears_of_the_last_room(second) -> None:
    text = caption(CAST, "FB", second, "protagonist")
    assert "purple" not in text
    assert "does not know what happens outside the green room" in text
    assert "leaves the red room" not in text


@pytest.mark.parametrize("second", [None, "TB", "FB"])
def test_a_knowing_protagonist_hears_of_the_last_room(second) -> None:
    transfer = parts(caption(CAST, "TB", second, "protagonist"))[2]
    assert "walks into the purple room" in transfer
    assert ("Just then the yellow agent opens the green door" in transfer) == (second == "FB")


def test_without_a_change_the_protagonist_cannot_tell_the_orders_apart() -> None:
    for first in ("TB", "FB"):
        of_first = caption(CAST, first, None, "protagonist")
        assert caption(CAST, first, "TB", "protagonist") == of_first


@pytest.mark.parametrize(("first", "second"), VERSIONS)
def test_the_participant_knows_its_own_walk_but_not_what_it_missed(first, second) -> None:
    told = parts(caption(CAST, first, second, "participant"))
    closed = (first == "FB") != (second == "FB")
    assert "does not know what happens outside the red room" in told[1]
    assert "green" not in told[1]
    assert f"sees that the green door is {'closed' if closed else 'open'}." in told[2]
    assert "Just then" not in told[2] and "just then" not in told[2]
    assert "yellow agent" not in told[2]
    assert "walks into the purple room" in told[2]


def test_environments() -> None:
    world = environment(("red", "green", "purple"))
    assert "10 rows and 7 columns" in world
    assert "the red room, the green room and the purple room" in world
    bare = initial_environment()
    assert "10 rows and 7 columns" in bare
    # The initial questions ask for these.
    for told in ("red", "green", "purple", "white", "yellow", "two", "three", " 2", " 3"):
        assert not re.search(rf"\b{told.strip()}\b", bare.replace("white squares", ""))
