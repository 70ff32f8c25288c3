"""The published records load whole."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.items import BenchmarkItem
from benchmarks.muma_tom.load import load
from tests.shared_data import shared_data


@pytest.fixture(scope="module")
def items() -> list[BenchmarkItem]:
    return load(shared_data("muma_tom"))


def test_all_questions_load(items: list[BenchmarkItem]) -> None:
    assert len(items) == 160 and len({i.item_id for i in items}) == 160
    assert Counter(i.group for i in items).most_common(1)[0][1] == 4
    types = Counter((i.tags["type"][0], i.polarity) for i in items)
    assert types == {
        (kind, polarity): n
        for kind, n in (("belief_of_goal", 30), ("belief", 25), ("social_goal", 25))
        for polarity in ("most", "least")
    }


def test_what_is_told(items: list[BenchmarkItem]) -> None:
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
