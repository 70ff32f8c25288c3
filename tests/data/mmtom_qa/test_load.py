"""Reading ``questions.json``: made records, those published, and a named error for the rest."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Context, Option, Question
from sally_anne.data.mmtom_qa import (
    MMTOM_QA,
    BeliefPair,
    balanced,
    belief_pair,
    load,
    read_record,
)
from sally_anne.data.mmtom_qa.scenes import Contents
from sally_anne.data.read import Field
from sally_anne.data.samples import Sample
from tests.shared_data import SOURCES, official_data

SCENE = "The kitchen has a fridge. \nThe fridge contains a salmon."
ACTIONS = "Ann is in the bedroom. She walks to the fridge."
ASKED = "If Ann has been trying to get a salmon, which one of the following statements is more"
ASKED += " likely to be true?"
A, B = "Ann thinks that the salmon is inside the fridge.", "Ann thinks that it is not there."
TEXT = (
    f"What's inside the apartment: {SCENE} \nActions taken by Ann: {ACTIONS} \n"
    f"Question: {ASKED} (a) {A} (b) {B} Please respond with either a or b."
)
GOOD: dict[str, Any] = {
    "question": TEXT,
    "answer": "a",
    "question_type": 1.1,
    "test": ["init_graph", "actions"],
    "episode": 23,
    "start_time": 4,
    "end_time": 7,
}


def write(folder: Path, *records: dict[str, Any] | str | bytes) -> Path:
    lines = [r if isinstance(r, bytes | str) else json.dumps(r) for r in records]
    data = [line if isinstance(line, bytes) else line.encode() for line in lines]
    (folder / "questions.json").write_bytes(b"\n".join(data))
    return folder


def read(record: Any) -> Question:
    return read_record(Field(record, "questions.json, line 1"))


def test_a_good_line_gives_all_parts(tmp_path) -> None:
    (item,) = load(write(tmp_path, GOOD))
    assert item.item_id == "episode-23/1.1/4-7"
    assert (item.group, item.split, item.benchmark) == ("episode-23", "test", "mmtom_qa")
    assert item.question == ASKED
    assert item.options == (Option("a", A), Option("b", B))
    assert item.answer == "a"
    assert (item.context.scene, item.context.actions) == (SCENE, ACTIONS)
    assert item.tags == {
        "type": ("1.1",),
        "family": ("belief",),
        "modality": ("init_graph", "actions"),
        "condition": ("TB",),
    }
    assert [(m.path, m.frames) for m in item.media] == [(None, None)]
    assert item.polarity == "most"


def test_a_byte_order_mark_blank_lines_and_windows_line_ends_change_nothing(tmp_path) -> None:
    line = json.dumps(GOOD).encode()
    (found,) = load(write(tmp_path, b"\xef\xbb\xbf" + line + b"\r", b"", b"  \r"))
    assert found == read(GOOD)


@pytest.mark.parametrize(
    "fields",
    [
        {"episode": " 23 "},
        {"question_type": " 1.1 "},
        {"answer": "A "},
        {"question": TEXT + "  \n "},
    ],
)
def test_known_spellings_mean_the_same(fields) -> None:
    assert read(GOOD | fields) == read(GOOD)


def test_a_record_without_the_request_is_the_same_item_and_asked_as_it_stands() -> None:
    bare = TEXT.removesuffix(" Please respond with either a or b.")
    assert read(GOOD | {"question": bare}) == replace(read(GOOD), asked=bare)


def test_scene_and_actions_may_be_left_out() -> None:
    asked = "Question: Which? (a) One. (b) Two. Please respond with either a or b."
    item = read(GOOD | {"question": asked, "test": []})
    assert (item.context.scene, item.context.actions, item.question) == ("", "", "Which?")
    item = read(GOOD | {"question": f"Actions taken by Ann: She walks. {asked}"})
    assert (item.context.scene, item.context.actions) == ("", "She walks.")


def test_a_question_that_is_there_twice_and_an_empty_file(tmp_path) -> None:
    with pytest.raises(RecordError, match="line 2"):
        load(write(tmp_path, GOOD, GOOD))
    with pytest.raises(RecordError, match=r"questions\.json"):
        load(write(tmp_path, ""))


@pytest.fixture(scope="module", params=SOURCES)
def items(request: pytest.FixtureRequest) -> list[Question]:
    return MMTOM_QA.load(official_data(request.param, "mmtom_qa"))


@pytest.mark.parametrize("source", SOURCES)
def test_every_line_is_an_item_of_its_type(source: str) -> None:
    folder = official_data(source, "mmtom_qa")
    lines = (folder / "questions.json").read_text().splitlines()
    records = [json.loads(line) for line in lines if line.strip()]
    items = load(folder)
    assert len({item.item_id for item in items}) == len(items)
    # Who is about to open a container believes that it holds what it does; who passes, not.
    says = {"1.1": " is inside ", "1.2": " is inside ", "1.3": " is not inside "}
    for item, record in zip(items, records, strict=True):
        assert item.tags["type"] == (str(record["question_type"]),)
        assert item.answer == record["answer"] and item.group == f"episode-{record['episode']}"
        right = next(o.text for o in item.options if o.label == item.answer)
        assert says.get(item.tags["type"][0], " has been trying to get ") in right


def test_descriptions_agree_with_the_published_types(items) -> None:
    """Types 1.1 and 1.2 say whether the thing is there, so they check how prose is read."""
    checked = 0
    for item in items:
        if item.tags["type"][0] in ("1.1", "1.2"):
            statement = re.fullmatch(
                r".* that the (.*) is (?:not )?inside the (.*)\.", item.options[0].text
            )
            assert statement is not None
            so = Contents(item.context.scene).holds(statement[2], statement[1])
            assert so in (None, item.tags["type"] == ("1.1",)), item.item_id
            checked += so is not None
    assert checked >= 0.95 * sum(item.tags["type"][0] in ("1.1", "1.2") for item in items)


def test_pairs_of_all_belief_types(items) -> None:
    pairs = [pair for pair in map(belief_pair, items) if pair]
    types = {item.item_id: item.tags["type"][0] for item in items}
    asked = sum(kind.startswith("1") for kind in types.values())
    assert 0.95 * asked <= len(pairs) <= asked
    tags = {(types[held.context], *held.tags.values()) for held, _ in pairs}
    # As published, 1.3 is about false beliefs without exception.
    inside = {("1.1", "TB", "inside"), ("1.2", "FB", "inside")}
    assert tags == {*inside, ("1.3", "FB", "not-inside")}
    samples = [sample for pair in balanced(pairs) for sample in pair]
    assert len(samples) >= asked
    says_not = [" is not inside " in sample.content.split("Belief:")[1] for sample in samples]
    table = Counter(zip((s.labels["y_p"] for s in samples), says_not, strict=True))
    assert len(table) == 4 and len(set(table.values())) == 1


GOAL = "Ann has been trying to get a salmon"
INSIDE = "Ann thinks that the salmon is inside the fridge."
NOT_INSIDE = "Ann thinks that the salmon is not inside the fridge."
FULL, EMPTY = "In the kitchen, the fridge holds a salmon.", "The fridge is empty."


def item(kind: str = "1.1", answer: str = "a", scene: str = FULL) -> Question:
    tags = {"type": (kind,), "family": ("belief",)}
    if kind in ("1.1", "1.2"):
        tags["condition"] = ("TB" if kind == "1.1" else "FB",)
    asked = f"If {GOAL}, which one of the following statements is more likely to be true?"
    where = (f"episode-1/{kind}/0-1", "mmtom_qa", "test", "episode-1", asked)
    options = (Option("a", INSIDE), Option("b", NOT_INSIDE))
    told = Context(scene=scene, actions="She walks to the fridge.")
    return Question(*where, options, answer, context=told, tags=tags)


@pytest.mark.parametrize(
    ("kind", "answer", "scene", "condition"),
    [
        ("1.1", "a", FULL, "TB"),
        ("1.2", "a", EMPTY, "FB"),
        ("1.3", "b", FULL, "FB"),
        ("1.3", "b", EMPTY, "TB"),
    ],
)
def test_a_pair_is_labelled_by_belief_and_by_what_is_so(kind, answer, scene, condition) -> None:
    pair = belief_pair(item(kind, answer, scene))
    assert pair is not None
    held, other = pair
    assert held.tags["condition"] == other.tags["condition"] == condition
    assert (held.labels["y_p"], other.labels["y_p"]) == (True, False)
    inside, outside = (held, other) if answer == "a" else (other, held)
    assert inside.content.endswith(INSIDE) and outside.content.endswith(NOT_INSIDE)
    # What is so is the scene's, whatever is believed.
    assert (inside.labels["y_o"], outside.labels["y_o"]) == (scene == FULL, scene == EMPTY)
    assert inside.item_id == f"episode-1/{kind}/0-1/inside"
    assert outside.item_id == f"episode-1/{kind}/0-1/not-inside"


def test_both_sides_differ_in_the_statement_alone() -> None:
    pair = belief_pair(item())
    assert pair is not None
    told = f"{FULL}\nShe walks to the fridge.\n{GOAL}. Belief: "
    assert [sample.content for sample in pair] == [told + INSIDE, told + NOT_INSIDE]


PAIR = item()


@pytest.mark.parametrize(
    "other",
    [
        replace(PAIR, question="Which one of the following statements is more likely to be true?"),
        replace(PAIR, question=PAIR.question.replace("more", "less")),
        replace(PAIR, context=Context(scene="There is a fridge.")),
        replace(PAIR, context=Context()),
        # The published type and the description contradict each other.
        item("1.1", scene=EMPTY),
        item("1.2", scene=FULL),
        replace(PAIR, answer=None),
        replace(PAIR, options=()),
        replace(PAIR, options=(Option("a", INSIDE), Option("b", INSIDE))),
        replace(PAIR, options=(PAIR.options[0], Option("b", NOT_INSIDE.replace("salmon", "cod")))),
    ],
)
def test_what_cannot_be_labelled_is_left_out(other) -> None:
    assert belief_pair(PAIR) is not None
    assert belief_pair(other) is None


def pairs(count: int, condition: str, says: str) -> list[BeliefPair]:
    tags = {"condition": condition, "says": says}
    names = [f"{condition}-{says}-{i}" for i in range(count)]
    return [(Sample(n, "true", tags=tags, context=n), Sample(f"{n}-", "false")) for n in names]


@pytest.mark.parametrize(
    ("counts", "kept"),
    [
        # TB inside, FB inside, TB not inside, FB not inside.
        ((100, 100, 0, 100), (50, 50, 0, 100)),
        ((3, 50, 0, 20), (3, 17, 0, 20)),
        ((5, 5, 5, 5), (5, 5, 5, 5)),
        ((5, 5, 8, 1), (4, 5, 8, 1)),
        ((9, 9, 0, 0), (0, 0, 0, 0)),
    ],
)
def test_balanced_keeps_as_many_of_either_statement(counts, kept) -> None:
    cells = (("TB", "inside"), ("FB", "inside"), ("TB", "not-inside"), ("FB", "not-inside"))
    every = [p for n, cell in zip(counts, cells, strict=True) for p in pairs(n, *cell)]
    found = balanced(every)
    assert found == [pair for pair in every if pair in found]
    sizes = [sum(tuple(p[0].tags.values()) == cell for p in found) for cell in cells]
    assert sizes == list(kept)
    # Which are kept depends on names alone, not on their order.
    assert {p[0].item_id for p in balanced(every[::-1])} == {p[0].item_id for p in found}
