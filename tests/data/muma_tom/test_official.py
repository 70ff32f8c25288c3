"""Records in the published layout load whole: made ones, and those published that are here."""

from __future__ import annotations

from collections import Counter

import pytest

from sally_anne.data.items import Question
from sally_anne.data.muma_tom import load
from tests.shared_data import SOURCES, official_data

# Questions of each type that ask for the most likely option; as many ask for the least likely.
TYPES = {
    "made": {"belief_of_goal": 4, "belief": 2, "social_goal": 2},
    "published": {"belief_of_goal": 30, "belief": 25, "social_goal": 25},
}


@pytest.fixture(scope="module", params=SOURCES)
def source(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def items(source: str) -> list[Question]:
    return load(official_data(source, "muma_tom"))


def test_all_questions_load(items: list[Question], source: str) -> None:
    count = 2 * sum(TYPES[source].values())
    assert len(items) == count and len({i.item_id for i in items}) == count
    assert Counter(i.group for i in items).most_common(1)[0][1] == 4
    types = Counter((i.tags["type"][0], i.polarity) for i in items)
    assert types == {
        (kind, polarity): n for kind, n in TYPES[source].items() for polarity in ("most", "least")
    }


def test_what_is_told(items: list[Question]) -> None:
    for item in items:
        told = item.context
        assert not told.actions.startswith("b'") and "\\n" not in told.actions
        if item.tags["type"] == ("belief_of_goal",):
            assert told.actions and not told.dialogue
        else:
            assert not told.actions
            asked, replied = told.dialogue.split("\n")
            assert asked.endswith("?") and replied.endswith(".")
            # Who replies is whose mind is asked about.
            assert f"{replied.split(':')[0]} " in item.question


def test_the_made_answers_are_those_of_the_file() -> None:
    items = load(official_data("made", "muma_tom"))
    assert [f"{i.item_id} {i.answer}" for i in items] == [
        *("7/1 B", "7/2 B", "7/3 B", "7/4 B"),
        *("31/1 A", "31/2 A", "31/3 C", "31/4 B"),
        *("4107/1 B", "4107/2 A", "4107/3 B", "4107/4 C"),
        *("4215/1 B", "4215/2 C", "4215/3 B", "4215/4 C"),
    ]
    assert items[4].context.actions == (
        "Ruth entered the study, took the globe from the desk and put it inside the chest."
    )
    assert items[8].context.dialogue == (
        "Milan: Have you seen a lantern?\nEdda: There is a lantern inside the crate in the porch."
    )
