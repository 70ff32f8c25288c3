"""The authors' readers: each reads as the code of its own benchmark does, carelessness included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.data.items import Option
from sally_anne.harness.items import Item
from sally_anne.harness.official import OFFICIAL
from sally_anne.harness.reporting import asked_readers
from sally_anne.harness.tasks import TASKS, find_task

AB = (Option("a", "the box"), Option("b", "the jar"))
ABC = tuple(Option(label, f"thing {label}") for label in "ABC")
ROOMS = (Option("red", "red"), Option("purple", "purple"))
FIVE = tuple(Option(c, c) for c in ("red", "green", "blue", "white", "yellow"))


def item(official: str, options: tuple[Option, ...], *answer: str, names: bool = False) -> Item:
    text = "Question?"
    return Item("i", "s", "test", "", "", text, options, answer, names=names, official=official)


@pytest.mark.parametrize(
    ("task", "options", "answer", "reply", "label", "right"),
    [
        ("mmtom_qa", AB, "a", "a", "a", True),
        ("mmtom_qa", AB, "a", "\n A, since it is there", "a", True),
        ("mmtom_qa", AB, "a", "Both", "b", False),
        ("mmtom_qa", AB, "a", "(a)", None, False),
        ("mmtom_qa", AB, "a", "", None, False),
        ("muma_tom", ABC, "C", "C", "C", True),
        ("muma_tom", ABC, "C", " C) it", "C", True),
        ("muma_tom", ABC, "C", "c", None, False),
        ("muma_tom", ABC, "C", "Answer: C", "A", False),
        ("bigtom", AB, "a", "Answer: a) the box", "a", True),
        ("bigtom", AB, "a", "B) or A)", "a", True),
        ("bigtom", AB, "a", "B) the jar", "b", False),
        ("bigtom", AB, "a", "the box", None, False),
        ("gridtom", ROOMS, "red", '{"answer": "Red"}', "red", True),
        ("gridtom", ROOMS, "red", '{"answer": "purple"}', "purple", False),
        ("gridtom", ROOMS, "red", 'Sure: {"answer": "red"}', None, False),
        ("gridtom", ROOMS, "red", '{"answer": ["red"]}', None, False),
        ("gridtom", ROOMS, "red", "red", None, False),
        ("gridtom", ROOMS, "red", "[" * 100_000, None, False),
        ("gridtom", ROOMS, "red", ' ```json\n{"answer": "Red"}\n```\n', "red", True),
        ("gridtom", ROOMS, "red", '```{"answer": "purple"}```', "purple", False),
        ("gridtom", ROOMS, "red", '```JSON {"answer": "red"}```', None, False),
        ("", ROOMS, "red", 'Sure: {"answer": "red"}', "red", True),
    ],
)
def test_one_of_several(task, options, answer, reply, label, right) -> None:
    assert OFFICIAL[task].read(reply, item(task, options, answer)) == (label, right)


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("Yellow and white.", True),
        ("two agents: white, yellow", True),
        ("yellow", False),
        ("white, yellow, red", False),
        ("none", False),
    ],
)
def test_two_agents(reply: str, right: bool) -> None:
    asked = item("gridtom", FIVE, "yellow", "white", names=True)
    assert OFFICIAL["gridtom"].read(reply, asked)[1] is right


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("Red", True),
        (" red\n", True),
        ("```red```", True),
        ("red.", False),
        ("the red room", False),
        ("green", False),
    ],
)
def test_one_room_is_the_whole_reply(reply: str, right: bool) -> None:
    asked = item("gridtom", FIVE[:3], "red", names=True)
    assert OFFICIAL["gridtom"].read(reply, asked)[1] is right


# The same, written after the released code line by line.
@given(st.text(alphabet='ab)AB {}":answerdx\n', max_size=20), st.sampled_from("ab"))
def test_as_the_released_code_reads(reply: str, answer: str) -> None:
    key, other = ("a)", "b)") if answer == "a" else ("b)", "a)")
    graded = True if key in reply.lower() else False if other in reply.lower() else None
    label, right = OFFICIAL["bigtom"].read(reply, item("bigtom", AB, answer))
    assert right is bool(graded) and (label is None) == (graded is None)
    stripped = reply.strip("\n").strip(" ").strip().lower()
    first = stripped[0] if stripped else ""
    label, right = OFFICIAL["mmtom_qa"].read(reply, item("mmtom_qa", AB, answer))
    assert right == (first == answer) and (label is None) == (first not in ("a", "b"))
    try:
        said = json.loads(reply)["answer"].lower()
    except Exception:
        said = None
    _, right = OFFICIAL["gridtom"].read(reply, item("gridtom", ROOMS, "red"))
    assert right == (said == "red")


def test_each_benchmark_names_its_reader() -> None:
    for task in TASKS[1:]:
        assert find_task(task).official in OFFICIAL
    assert {find_task(task).official for task in ("mmtom_qa", "muma_tom", "bigtom")} == {
        "mmtom_qa",
        "muma_tom",
        "bigtom",
    }
    assert all(Path(o.source).suffix or o.source for o in OFFICIAL.values())


def test_they_are_shown_where_their_form_is_asked_for() -> None:
    from dataclasses import replace

    results = {"robust": 1, "official": 2}
    plain = item("mmtom_qa", AB, "a")
    asked = replace(plain, text="Where? Please respond with either a or b.")
    assert asked_readers(results, [plain]) == {"robust": 1}
    assert asked_readers(results, [asked]) == results
    assert asked_readers(results, [replace(plain, text="Answer in JSON.")]) == {"robust": 1}
    assert asked_readers(results, [replace(asked, official="", text="In JSON.")]) == results
