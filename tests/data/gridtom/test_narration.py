"""Captions: what each perspective must tell and must not."""

from __future__ import annotations

import re

import pytest

from sally_anne.data.gridtom.narration import Cast, caption, environment

CAST = Cast("white", "yellow", "red", "green", "purple")
VERSIONS = [("TB", None), ("FB", None), ("TB", "TB"), ("FB", "TB"), ("TB", "FB"), ("FB", "FB")]


def parts(text: str) -> tuple[str, str, str]:
    found = re.fullmatch(r"1\. (.+) 2\. (.+) 3\. (.+) The video ends here\.", text)
    assert found, text
    return found[1], found[2], found[3]


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
    bare = environment()
    assert "10 rows and 7 columns" in bare
    # The initial questions ask for these.
    for told in ("red", "green", "purple", "white", "yellow", "two", "three", " 2", " 3"):
        assert not re.search(rf"\b{told.strip()}\b", bare.replace("white squares", ""))
