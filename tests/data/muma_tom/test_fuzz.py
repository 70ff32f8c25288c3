"""Whatever a record holds: a right item, or an error that says where."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import RecordError
from sally_anne.data.items import BenchmarkItem
from sally_anne.data.muma_tom import read_episode
from sally_anne.data.read import Field
from tests.data.muma_tom.records import silent, talking

RECORDS = (silent(), talking())
COLUMNS = ("questions", "answers", "labels")
PLACES = (
    *((name,) for name in (*COLUMNS, "description", "filtered_description")),
    *((name, number) for name in COLUMNS for number in ("1", "2", "3")),
)
# What may be wrong with all questions of an episode at once.
WHOLE = ("is missing", "must be an object", "is empty")
TEXTS = (None, "", "Cy: A hat?\nDee: There.", RECORDS[0]["description"], "Bob took a pear.")
# What records are made of, in any order, beside what no record should hold.
PIECES = (
    *("A) ", "B) ", "C) ", "D)", "\n", "\nA) x", "\nB) y", "\nC) z", "MOST", "LEAST", "b'", "'"),
    *('"', "\\x", "\\xff", "\\n", "“", "”", "belief", "social goal", "Dee doesn't know Cy's goal"),
    *("Which is MOST likely?\nA) x\nB) y\nC) z", "C) z\n", "\ud800", "é", " ", "x", "\0", "\u2028"),
)
JUNK = (None, True, 0, -1.5, float("nan"), [], {}, {"1": "x"}, [[]], "", 10**400, "b''")
HOW = ("none", "set", "drop", "add", "cut", "none")
BYTES_A_CHANGE = 8
BYTES_A_RECORD = 2 + 2 * BYTES_A_CHANGE
# An example holds several records: hypothesis' own work on an example costs more than reading it.
EXAMPLES, SIZE = 1_000, 10 * BYTES_A_RECORD


def changes(choices: bytes) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Place, kind and value of each change; drawing them one by one would take minutes."""
    for start in range(0, len(choices), BYTES_A_CHANGE):
        place, how, length, *pieces = choices[start : start + BYTES_A_CHANGE]
        text = "".join(PIECES[p % len(PIECES)] for p in pieces[: length % 6])
        junk = text if length % 3 else JUNK[pieces[0] % len(JUNK)]
        yield PLACES[place % len(PLACES)], HOW[how % len(HOW)], junk


def changed(record: dict[str, Any], place: tuple[str, ...], how: str, junk: Any) -> None:
    """One change: a value replaced, taken away, or a text with more or less at its end."""
    inside: Any = record
    for name in place[:-1]:
        inside = inside.get(name)
    if not isinstance(inside, dict):
        return
    if how == "none":
        return
    name = place[-1]
    value = inside.get(name)
    if how == "drop":
        inside.pop(name, None)
    elif how == "set" or not isinstance(value, str):
        inside[name] = junk
    else:
        inside[name] = value + str(junk) if how == "add" else value[: -len(str(junk)) or None]


def check(item: BenchmarkItem, record: dict[str, Any], number: str) -> None:
    """An item that was read is what its record says."""
    assert item.item_id == f"7/{number}" and item.group == "7"
    assert [o.label for o in item.options] == ["A", "B", "C"]
    assert all(o.text for o in item.options) and len({o.text for o in item.options}) == 3
    assert item.question and f"{item.polarity.upper()}" in item.question
    right = next(o.text for o in item.options if o.label == item.answer)
    given = " ".join(record["answers"][number].replace("b'", "").split()).casefold()
    assert f"{item.answer})" in record["answers"][number]
    assert right.rstrip(" .").casefold() in given or "\\" in given
    assert item.tags["type"][0] in ("belief", "social_goal", "belief_of_goal")
    assert bool(item.context.actions) != bool(item.context.dialogue)
    assert "Ada fetched" not in item.context.actions
    f"{item}".encode()


@pytest.mark.fuzz
def test_ten_thousand_records() -> None:
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=SIZE, max_size=SIZE))
    def reads_or_names(drawn: bytes) -> None:
        for start in range(0, SIZE, BYTES_A_RECORD):
            one(drawn[start : start + BYTES_A_RECORD])

    def one(choices: bytes) -> None:
        record = copy.deepcopy(RECORDS[choices[0] % len(RECORDS)])
        for change in changes(choices[2:]):
            changed(record, *change)
        text = TEXTS[choices[1] % len(TEXTS)]
        entry = None if text is None else Field(text, "texts.json, episode 7")
        try:
            items = read_episode("7", Field(record, "questions.json, episode 7"), entry)
        except RecordError as error:
            outcomes["named"] += 1
            check_message(str(error))
        else:
            outcomes["read"] += 1
            for item, number in zip(items, record["questions"], strict=True):
                check(item, record, number)

    reads_or_names()
    assert sum(outcomes.values()) >= 10_000
    assert min(outcomes["read"], outcomes["named"]) > 1_000, outcomes


def check_message(message: str) -> None:
    """A message names file, episode, field, and the question if one is at fault."""
    message.encode()
    assert "json, episode 7" in message
    # Entries of texts.json have no fields.
    assert "field " in message or message.startswith("texts.json")
    if any(f"field {name} " in message for name in ("answers", "labels")):
        whole = any(f"field {name} {p}" in message for name in COLUMNS for p in WHOLE)
        assert ", question " in message or whole, message
