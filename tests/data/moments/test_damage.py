"""Damaged records of MoMentS: what comes out is right, or the field at fault is named."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import RecordError
from sally_anne.data.items import BenchmarkItem
from sally_anne.data.moments import ABILITIES, CUES, LABELS, read_keys, read_questions
from tests.data.moments.test_load import GOOD_JSON, OTHER_JSON, key


def odd_value(rng: random.Random) -> Any:
    return rng.choice(
        [
            None,
            True,
            -1,
            0,
            3,
            10**400,
            1e308,
            float("nan"),
            float("inf"),
            "",
            " \n",
            "x" * 3000,
            "\ud800",
            "\u202e\0é你",
            "A",
            "Intentions",
            "https://[",
            "https://vimeo.com",
            [],
            {},
            [[]],
            [None],
            [{"A": 1}],
            {"A": {}},
            dict.fromkeys(LABELS, "same"),
            ["Percepts", "Percepts"],
            ["Body Language", 1],
            [1.5] * 50,
        ]
    )


def damage(rng: random.Random, record: dict[str, Any]) -> str:
    """Change one field; says which."""
    name = rng.choice(list(record))
    inner = record[name]
    how = rng.randrange(6)
    if how == 0:
        del record[name]
    elif how == 1:
        record[name] = [inner]
    elif how == 2 and isinstance(inner, dict):
        inner[rng.choice(["A", "D", "E", "", "é"])] = odd_value(rng)
    elif how == 2 and isinstance(inner, list):
        inner.insert(rng.randrange(len(inner) + 1), odd_value(rng))
    elif how == 3 and isinstance(inner, float):
        record[name] = rng.choice(
            [-inner, inner * 1000, rng.randrange(100), rng.uniform(0, 100), str(inner)]
        )
    elif how == 4 and isinstance(inner, str):
        place = rng.randrange(len(inner) + 1)
        record[name] = inner[:place] + chr(rng.randrange(0x110000)) + inner[place + 1 :]
    else:
        record[name] = odd_value(rng)
    return name


def is_right(item: BenchmarkItem, record: dict[str, Any]) -> None:
    """The item says what the record says."""
    assert item.item_id == record["question_id"].rstrip() != ""
    assert item.question == record["question"].rstrip() != ""
    assert item.group == record["movie_title"].rstrip() != ""
    assert [o.label for o in item.options] == list(record["options"]) == sorted(LABELS)
    assert [o.text for o in item.options] == [t.rstrip() for t in record["options"].values()]
    assert all(option.text for option in item.options)
    assert set(item.tags["ability"]) <= set(ABILITIES) and item.tags["ability"]
    assert set(item.tags.get("cue", ())) <= set(CUES)
    (media,) = item.media
    times = (media.start, media.focus, media.end)
    assert times == tuple(record[name] for name in ("t_0", "t_i", "t_j"))
    assert media.focus is not None and media.end is not None and media.length is not None
    assert 0 <= media.start <= media.focus < media.end < float("inf") and media.length > 0
    assert media.url == record["video_url"].rstrip()
    repr(item).encode()


@pytest.mark.fuzz
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**62))
def test_fuzzed_records_are_right_or_named(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        records = [json.loads(GOOD_JSON), json.loads(OTHER_JSON)]
        number = rng.randrange(2)
        changed = {damage(rng, records[number]) for _ in range(rng.choice([1, 1, 1, 2]))}
        if rng.random() < 0.05:
            records[number]["question_id"] = records[1 - number]["question_id"]
            changed, number = {"question_id"}, 1
        try:
            items = read_questions(records, "q.json", "test", {})
        except RecordError as error:
            message = str(error)
            # Times are compared with each other.
            if changed & {"t_0", "t_i", "t_j"}:
                changed |= {"t_i", "t_j"}
            assert message.startswith(f"q.json, record {number + 1}")
            assert any(f"field {name}" in message for name in changed)
            continue
        for item, record in zip(items, records, strict=True):
            is_right(item, record)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**62))
def test_fuzzed_keys_are_right_or_named(seed: int) -> None:
    rng = random.Random(seed)
    keys: Any = [key("a1", "A"), key("b2", "D")]
    number = rng.randrange(2)
    if rng.random() < 0.1:
        keys[number] = odd_value(rng)
    else:
        keys[number][rng.choice(["question_id", "correct_answer_key"])] = odd_value(rng)
    try:
        found = read_keys(keys, "k.json")
    except RecordError as error:
        assert str(error).startswith(f"k.json, record {number + 1}")
    else:
        assert set(found.values()) <= set(LABELS) and len(found) == 2
