"""Ten thousand damaged records of each text set: a right item, or an error that says where."""

from __future__ import annotations

import copy
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data import fantom, hi_tom, opentom, tombench, tomi
from sally_anne.data.items import BenchmarkItem
from sally_anne.data.read import Field
from tests.data.text_sets import made

WHERE = "made.json, record 3"
RECORDS = 10_000
JUNK = (
    *(None, True, False, 0, 3, -1, 10**400, float("nan"), 1.5, [], {}, [[]], {"a": 1}, [None]),
    *("", " \n", "x", "\ud800", "é你\0", "A", "B. ", "yes", "no:long", "Yes", "the ", "x" * 999),
    *("first-order", "accessible", "location-so", "attitude", "VP", "A. x, B. y", "Belief: x"),
)
# What the lines of a text may hold, or hold no more.
PIECES = ("", " ", "\t", "\t1", ",", "1 ", "2 ", "red_box", "memory", "_tom", "\0", "é", "\u2028")


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every value inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for name, one in inside:
        yield (*path, name)
        if isinstance(one, dict | list):
            yield from paths(one, (*path, name))


def damage(rng: random.Random, record: Any) -> Any:
    """The record with up to three values taken away, replaced, cut, mixed or edited."""
    record = copy.deepcopy(record)
    for _ in range(rng.randrange(1, 4)):
        places = list(paths(record))
        *into, name = rng.choice(places)
        inside = record
        for step in into:
            inside = inside[step]
        value, how = inside[name], rng.randrange(5)
        if how == 0:
            del inside[name]
        elif how == 1 and isinstance(value, str) and value:
            at = rng.randrange(len(value))
            inside[name] = value[:at] + rng.choice(["", " ", "é", "A. "]) + value[at + 1 :]
        elif how == 2:
            other = record
            for step in rng.choice(places):
                other = other[step]
            inside[name] = copy.deepcopy(other)
        elif how == 3 and isinstance(inside, list):
            inside.insert(name, copy.deepcopy(rng.choice(JUNK)))
        else:
            inside[name] = copy.deepcopy(rng.choice(JUNK))
    return record


def damaged_text(rng: random.Random, text: str) -> str:
    """The text with up to two lines dropped, doubled, exchanged or edited."""
    lines = text.split("\n")
    for _ in range(rng.randrange(3)):
        one, other = (rng.randrange(len(lines)) for _ in range(2))
        how, at = rng.randrange(4), rng.randrange(len(lines[one]) + 1)
        if how == 0 and len(lines) > 1:
            del lines[one]
        elif how == 1:
            lines.insert(other, lines[one])
        elif how == 2:
            lines[one], lines[other] = lines[other], lines[one]
        else:
            lines[one] = lines[one][:at] + rng.choice(PIECES) + lines[one][at + rng.randrange(3) :]
    return "\n".join(lines)


def right_text(item: BenchmarkItem) -> str:
    """The right option's text, of options that can be told apart."""
    assert [o.label for o in item.options] == list("ABCDEFGHIJ"[: len(item.options)])
    assert item.question and item.tags and all(o.text for o in item.options)
    f"{item}".encode()
    (found,) = [option.text for option in item.options if option.label == item.answer]
    assert [option.text for option in item.options].count(found) == 1
    return found


class Reader(NamedTuple):
    record: Any
    damage: Callable[[random.Random, Any], Any]
    read: Callable[[Any], list[BenchmarkItem]]
    check: Callable[[Any, list[BenchmarkItem]], None]


def check_tomi(texts: tuple[str, str], items: list[BenchmarkItem]) -> None:
    asked = [line.strip().split("\t") for line in texts[0].split("\n") if "\t" in line.strip()]
    assert len(asked) == len(items)
    traces = [line.strip() for line in texts[1].split("\n") if line.strip()]
    for item, (question, right, *_), trace in zip(items, asked, traces, strict=True):
        assert question.partition(" ")[2].strip() == item.question
        assert right_text(item) == right.strip() and right.strip() in item.context.scene
        assert item.tags["type"][0].split("_")[0] == trace.split(",")[-2].split("_")[0]


def check_hi_tom(record: dict[str, Any], items: list[BenchmarkItem]) -> None:
    (item,) = items
    assert right_text(item) == record["answer"].strip()
    assert f"{item.answer}. {right_text(item)}" in record["choices"]
    assert item.tags["order"] == (str(record["question_order"]),)
    assert item.split == record["prompting_type"]


def check_fantom(record: dict[str, Any], items: list[BenchmarkItem]) -> None:
    kinds = {
        "belief": "beliefQAs",
        "answerability": "answerabilityQAs_binary",
        "info-access": "infoAccessibilityQAs_binary",
    }
    assert len({item.item_id for item in items}) == len(items)
    for item in items:
        kind, _, number = item.item_id.rpartition("/")[2].rpartition("-")
        asked = record[kinds[kind]][int(number)]
        wanted = asked["correct_answer"].strip()
        if kind != "belief":
            assert (item.split, wanted) != ("short", "no:long")
            wanted = "Yes" if wanted == "yes" else "No"
        assert right_text(item) == wanted and item.question.endswith(asked["question"].strip())
        assert item.context.dialogue == record[f"{item.split}_context"].strip()


def check_opentom(record: dict[str, Any], items: list[BenchmarkItem]) -> None:
    (item,) = items
    plain = [re.sub("^(a|an|the) ", "", text) for text in (right_text(item), "")]
    given = re.sub("^(a|an|the) ", "", record["question"]["answer"].strip(), flags=re.IGNORECASE)
    assert plain[0].casefold() == given.casefold() or given in right_text(item)
    assert item.question.startswith(record["question"]["question"].strip().rstrip("?"))
    if "condition" in item.tags:
        assert record["observed"] is False and item.tags["type"][0].startswith("location")


def check_tombench(record: dict[str, Any], items: list[BenchmarkItem]) -> None:
    for item, name in zip(items, ("OPTION-", "选项"), strict=True):
        assert item.answer == record["答案\nANSWER"].strip()[0]
        assert right_text(item) in record[f"{name}{item.answer}"]


READERS = {
    "tomi": Reader(
        made.tomi_texts(),
        lambda rng, texts: tuple(damaged_text(rng, text) for text in texts),
        lambda texts: tomi.read_stories(*texts, Path("made.json, record 3/test.txt")),
        check_tomi,
    ),
    "hi_tom": Reader(
        made.HI_TOM,
        damage,
        lambda record: [hi_tom.read_question(Field(record, WHERE))],
        check_hi_tom,
    ),
    "fantom": Reader(
        made.fantom_set(),
        damage,
        lambda record: fantom.read_set(Field(record, WHERE), random.Random(7)),
        check_fantom,
    ),
    "opentom": Reader(
        made.opentom_records(),
        lambda rng, records: damage(rng, rng.choice(records)),
        lambda record: [opentom.read_question(Field(record, WHERE), "test")],
        check_opentom,
    ),
    "tombench": Reader(
        made.TOMBENCH,
        damage,
        lambda record: tombench.read_question(Field(record, WHERE), "task", "story-0001"),
        check_tombench,
    ),
}


@pytest.mark.fuzz
@pytest.mark.parametrize("name", READERS)
def test_damaged_records(name) -> None:
    reader, outcomes = READERS[name], Counter[str]()
    for seed in range(RECORDS):
        record = reader.damage(random.Random(f"{name}/{seed}"), reader.record)
        try:
            items = reader.read(record)
        except RecordError as error:
            outcomes["named"] += 1
            str(error).encode()
            assert str(error).startswith("made.json, record 3"), seed
        else:
            outcomes["read"] += 1
            reader.check(record, items)
    assert min(outcomes["read"], outcomes["named"]) > 500, outcomes
