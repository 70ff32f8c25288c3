"""Reading ``questions.json``: records come out right or the error says what is wrong."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Option, Question
from sally_anne.data.mmtom_qa import MMTOM_QA, TYPES, load, read_record
from sally_anne.data.read import Field

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
    "answer_list": ["a", "b"],
}


def write(folder: Path, *records: dict[str, Any] | str | bytes) -> Path:
    lines = [r if isinstance(r, bytes | str) else json.dumps(r) for r in records]
    data = [line if isinstance(line, bytes) else line.encode() for line in lines]
    (folder / "questions.json").write_bytes(b"\n".join(data))
    return folder


def changed(**fields: Any) -> dict[str, Any]:
    """The good record with some fields changed, or removed by ``...``."""
    return {name: value for name, value in (GOOD | fields).items() if value is not ...}


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
    assert [(m.kind, m.path, m.frames) for m in item.media] == [("frames", None, None)]
    assert item.polarity == "most"


def test_a_byte_order_mark_blank_lines_and_windows_line_ends_change_nothing(tmp_path) -> None:
    line = json.dumps(GOOD).encode()
    other = json.dumps(changed(episode=24)).encode()
    found = load(write(tmp_path, b"\xef\xbb\xbf" + line + b"\r", b"", b"  \r", other + b"\r", b""))
    assert [item.group for item in found] == ["episode-23", "episode-24"]
    assert found[0] == load(write(tmp_path, GOOD))[0]


def test_the_repository_s_own_folder_is_found_too(tmp_path) -> None:
    (tmp_path / "Benchmark").mkdir()
    write(tmp_path / "Benchmark", GOOD)
    assert len(MMTOM_QA.load(tmp_path)) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"episode": "23"},
        {"episode": " 23 "},
        {"question_type": "1.1"},
        {"question_type": " 1.1 "},
        {"answer": "a "},
        {"answer": "A"},
        {"answer_list": ...},
        {"answer_list": None},
        {"answer_list": ["a ", "b "]},
        {"question": TEXT + "  \n "},
    ],
)
def test_known_spellings_mean_the_same(fields) -> None:
    assert read(changed(**fields)) == read(GOOD)


def test_a_record_without_the_request_is_the_same_item_and_asked_as_it_stands() -> None:
    bare = TEXT.removesuffix(" Please respond with either a or b.")
    assert read(changed(question=bare)) == replace(read(GOOD), asked=bare)


@pytest.mark.parametrize(
    ("kind", "family", "condition"),
    [
        (1.1, "belief", ("TB",)),
        (1.2, "belief", ("FB",)),
        (1.3, "belief", None),
        (2.1, "goal", None),
        (2.2, "goal", None),
        (2.3, "goal", None),
        (2.4, "goal", None),
    ],
)
def test_the_type_gives_family_and_condition(kind, family, condition) -> None:
    tags = read(changed(question_type=kind)).tags
    assert tags["type"] == (str(kind),)
    assert tags["family"] == (family,)
    assert tags.get("condition") == condition


def test_scene_and_actions_may_be_left_out_where_the_record_says_so() -> None:
    asked = "Question: Which? (a) One. (b) Two. Please respond with either a or b."
    item = read(changed(question=asked, test=[]))
    assert (item.context.scene, item.context.actions, item.question) == ("", "", "Which?")
    item = read(changed(question=f"Actions taken by Ann: She walks. {asked}", test=["actions"]))
    assert (item.context.scene, item.context.actions) == ("", "She walks.")


def test_what_is_less_likely_has_the_other_polarity() -> None:
    text = TEXT.replace("more likely", "less likely")
    assert read(changed(question=text)).polarity == "least"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"question": ...}, "field question is missing"),
        ({"question": 5}, "field question must be a text, is 5"),
        ({"question": "Well?"}, "field question must have 'Question:' once"),
        ({"question": TEXT + " Question:"}, "field question must have 'Question:' once"),
        ({"question": TEXT.replace("(a)", "")}, r"field question must have '\(a\)' once"),
        ({"question": TEXT.replace("(b)", "(a)")}, r"question must have '\(a\)' once .* 2 times"),
        ({"question": TEXT + "(b)"}, r"field question must have '\(b\)' once .* 2 times"),
        ({"question": TEXT.replace(A, "")}, r"field question has nothing after '\(a\)'"),
        ({"question": TEXT.replace(B, "")}, r"field question has nothing after '\(b\)'"),
        ({"question": TEXT.replace(B, A)}, r"the same text for \(a\) and \(b\)"),
        ({"question": TEXT.replace(ASKED, "")}, "has nothing after 'Question:'"),
        ({"question": TEXT.replace(SCENE, "")}, "has nothing after \"What's inside"),
        ({"question": TEXT.replace(ACTIONS, "")}, "has nothing after 'Actions taken by Ann:'"),
        ({"question": TEXT.replace("Ann: ", "Ann ")}, "field question has no colon after"),
        ({"question": "So. " + TEXT}, "field question must begin with"),
        ({"question": TEXT[TEXT.index("Actions") :]}, "question tells no scene, which field test"),
        ({"question": TEXT[TEXT.index("Question") :], "test": ["actions"]}, "tells no actions"),
        ({"question": "\ud800" + TEXT}, "field question holds half of a character at 0"),
        ({"answer": ...}, "field answer is missing"),
        ({"answer": "c"}, "field answer must be a or b"),
        ({"answer": "ab"}, "field answer must be a or b"),
        ({"answer": None}, "field answer must be a text, is None"),
        ({"answer_list": "ab"}, "field answer_list must be a list"),
        ({"answer_list": ["b", "a"]}, "field answer_list must be the labels a and b"),
        ({"answer_list": ["a"]}, "field answer_list must have 2 elements, has 1"),
        ({"answer_list": ["a", 2]}, r"field answer_list\[1\] must be a text, is 2"),
        ({"question_type": 1.4}, "field question_type must be one of 1.1, 1.2"),
        ({"question_type": True}, "field question_type must be one of"),
        ({"question_type": [1.1]}, "field question_type must be one of"),
        ({"question_type": ...}, "field question_type is missing"),
        ({"test": "actions"}, "field test must be a list"),
        ({"test": ["video"]}, r"field test\[0\] must be one of graph, init_graph"),
        ({"test": ["actions", "actions"]}, "field test names a text twice"),
        ({"episode": -1}, "field episode must be a whole number from 0 on"),
        ({"episode": 1.5}, "field episode must be a whole number from 0 on"),
        ({"episode": "x"}, "field episode must be a number up to 999999"),
        ({"episode": "٢٣"}, "field episode must be a number up to 999999"),
        ({"episode": "1" * 5000}, "field episode must be a number up to 999999"),
        ({"episode": 10**6}, "field episode must be at most 999999"),
        ({"start_time": 8}, "field end_time is 7, before start_time 8"),
        ({"end_time": ...}, "field end_time is missing"),
        ({"end_time": True}, "field end_time must be a whole number"),
        ({"end_time": 10**6}, "field end_time must be at most 999999"),
    ],
)
def test_a_wrong_field_is_named(tmp_path, fields, problem) -> None:
    folder = write(tmp_path, GOOD, changed(**fields))
    with pytest.raises(RecordError):
        load(folder)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "is not valid JSON"),
        (b'{"question": "\xff"}', "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"episode": ' + b"1" * 5000 + b"}", "is not valid JSON"),
        (b"[]", "must be an object with the fields of one question"),
        (b"null", "must be an object with the fields of one question"),
        (json.dumps(GOOD), "repeats the question of line 1"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, problem) -> None:
    with pytest.raises(RecordError):
        load(write(tmp_path, GOOD, "", line))


def test_missing_and_empty_files_are_named(tmp_path) -> None:
    with pytest.raises(RecordError):
        load(tmp_path)
    with pytest.raises(RecordError):
        load(write(tmp_path, b"\xef\xbb\xbf", "  "))


# Values that no field takes, that some do, and texts that are cut and put together anew.
VALUES: tuple[Any, ...] = (
    *(..., None, True, 0, -1, 3, 7, 10**30, 0.5, 2.4, float("nan"), float("inf")),
    *("", " ", "a", "B ", "23", "1.2", "\ud800", "x" * 999, "(a)", "Question:"),
    *([], {}, ["a", "b"], ["graph"], ["graph", "actions"], [["a"]], [None, 1], {"a": "b"}),
)
HEADINGS = ("Question:", "(a)", "(b)", "Actions taken by ", "What's inside the apartment:")
PIECES = ("", "", " ", ":", "\n", "\ud800", "\x00", "é", *HEADINGS)


def mutated(seed: int) -> dict[str, Any]:
    """The good record with one to three fields or pieces of its text changed."""
    chance = random.Random(seed)
    record = dict(GOOD)
    for _ in range(chance.randint(1, 3)):
        text = record["question"]
        if chance.random() < 0.5 or not isinstance(text, str):
            record[chance.choice(sorted(GOOD))] = chance.choice(VALUES)
        else:
            place = chance.randint(0, len(text))
            end = place + chance.choice((0, 1, 5, 60, 999))
            record["question"] = text[:place] + chance.choice(PIECES) + text[end:]
    return {name: value for name, value in record.items() if value is not ...}


@pytest.mark.fuzz
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    # A smaller seed is no simpler record.
    phases=[Phase.generate],
)
@given(seeds=st.lists(st.integers(0, 2**32), min_size=50, max_size=50, unique=True))
def test_a_mutated_record_is_right_or_a_named_error(seeds) -> None:
    for seed in seeds:
        record = mutated(seed)
        try:
            item = read(record)
        except RecordError as error:
            message = str(error)
            assert message.startswith("questions.json, line 1: field ")
            assert message.split("field ")[1].split()[0].split("[")[0] in GOOD
            continue
        assert_right(item, record)


def assert_right(item: Question, record: dict[str, Any]) -> None:
    """The item says what the record says, all of it."""
    assert [option.label for option in item.options] == ["a", "b"]
    assert item.answer == record["answer"].strip().lower()
    assert item.tags["type"][0] in TYPES
    assert item.tags["type"][0] == str(record["question_type"]).strip()
    assert item.group == f"episode-{int(record['episode'])}"
    assert item.tags["modality"] == tuple(record["test"])
    parts = [item.context.scene, item.context.actions, item.question]
    parts += [option.text for option in item.options]
    place = 0
    for part in parts:
        assert part == part.strip()
        place = record["question"].index(part, place) + len(part)
    assert all(parts[2:])
    item.question.encode()


@pytest.mark.fuzz
@settings(
    max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(place=st.integers(0, 2 * len(json.dumps(GOOD))), length=st.integers(0, 9), new=st.binary())
def test_a_damaged_file_is_right_or_a_named_error(tmp_path_factory, place, length, new) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    content = b"\n".join(json.dumps(r).encode() for r in (GOOD, changed(episode=3)))
    write(folder, content[:place] + new + content[place + length :])
    try:
        found = load(folder)
    except RecordError as error:
        assert str(error).startswith(str(folder / "questions.json"))
    else:
        assert all(item.answer in ("a", "b") for item in found)
