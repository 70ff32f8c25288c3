"""MuMA-ToM: a folder becomes items that show what the benchmark gives, not the narrative."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Media, Option
from sally_anne.data.muma_tom import (
    MUMA_TOM,
    People,
    cleaned,
    load,
    people,
    take_apart,
)
from sally_anne.data.read import Field
from tests.data.muma_tom.records import silent, talking, write
from tests.shared_data import SOURCES, official_data

TALK = "Cy: Have you seen a hat?\nDee: It lies on the bed."


def test_items_of_both_kinds(tmp_path: Path) -> None:
    items = load(write(tmp_path, {"42": silent(), "4005": talking()}))
    assert [i.item_id for i in items] == ["42/1", "42/2", "4005/1", "4005/2"]
    assert [i.answer for i in items] == ["B", "C", "A", "A"]
    assert [i.polarity for i in items] == ["most", "least", "most", "least"]
    assert [i.group for i in items] == ["42", "42", "4005", "4005"]
    assert items[1].tags == {"type": ("belief_of_goal",), "polarity": ("least",)}
    assert [i.tags["type"] for i in items[2:]] == [("belief",), ("social_goal",)]
    assert items[0].question.endswith("is MOST likely?")
    assert [o.label for o in items[0].options] == ["A", "B", "C"]
    assert items[0].options[2].text.startswith("Bob doesn't know")
    assert items[0].context.actions == silent()["filtered_description"]
    assert items[0].context.dialogue == ""


NARRATIVE = talking()["description"]


@pytest.mark.parametrize(
    ("description", "text", "dialogue"),
    [
        # Names are those of the questions.
        (NARRATIVE, NARRATIVE.replace("Dee", "Eve"), TALK),
        (NARRATIVE, "Cy: Hat?\n\n Dee : Look on the bed!\n", "Cy: Hat?\nDee: Look on the bed!"),
        # Told twice.
        (f"{NARRATIVE} {NARRATIVE}", NARRATIVE, TALK),
    ],
)
def test_talk(tmp_path: Path, description: str, text: str, dialogue: str) -> None:
    record = talking() | {"description": description}
    item = load(write(tmp_path, {"4005": record}, {"4005": text}))[0]
    assert (item.context.dialogue, item.context.actions) == (dialogue, "")


def test_actions_may_come_from_texts_json(tmp_path: Path) -> None:
    record = silent()
    part = record.pop("filtered_description")
    item = load(write(tmp_path, {"42": record}, {"42": part}))[0]
    assert item.context.actions == part


def test_the_narrative_is_in_no_view(tmp_path: Path) -> None:
    for item in load(write(tmp_path, {"42": silent(), "4005": talking()})):
        assert "Ada fetched" not in str(item.context) and "took one out" not in str(item.context)
    assert MUMA_TOM.views["video"] == MUMA_TOM.views["none"] == ()
    assert MUMA_TOM.views["multimodal"] == MUMA_TOM.views["text"] == ("actions", "dialogue")


@pytest.mark.parametrize("film", ["videos/42.mp4", "Videos/video_42.MP4", "videos/video_42.webm"])
def test_films_are_found_by_episode(tmp_path: Path, film: str) -> None:
    folder = write(tmp_path, {"42": silent(), "4005": talking()}, films=f"{film} videos/4005.txt")
    items = load(folder)
    assert items[0].media == items[1].media == (Media(path=folder / film),)
    assert items[2].media == (Media(),)
    assert MUMA_TOM.sampling.every == 20


def field(value: object) -> Field:
    return Field(value, "questions.json, episode 7", "answers")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("  plain\n", "plain"),
        ("b'Ann\\'s hat\\n\\nis \"here\"'", 'Ann\'s hat\n\nis "here"'),
        ('b"Ann\'s hat\\t."', "Ann's hat\t."),
        # Some were cut together by hand: quotes and line breaks stand in them as they are.
        ("b'Ann's\nhat'", "Ann's\nhat"),
        ("b'caf\\xc3\\xa9 \\\\n'", "café \\n"),
        ("b'open", "b'open"),
        ("blue 'b'", "blue 'b'"),
    ],
)
def test_strings_are_cleaned(given: str, text: str) -> None:
    assert cleaned(field(given)) == text


def test_a_question_is_taken_apart() -> None:
    question, options, polarity = take_apart(
        field("Which is  LEAST\nlikely?\n A) one  two\nthree\nB)four\nC) A) five\n")
    )
    assert question == "Which is LEAST likely?"
    assert options == (Option("A", "one two three"), Option("B", "four"), Option("C", "A) five"))
    assert polarity == "least"


@pytest.mark.parametrize(
    "text",
    [
        "if Ann has been trying to hinder Bo from achieving his goal, which",
        "When giving information, Ann has been trying to prevent Bo from finding the hat",
        "When giving information, Ann was indifferent towards Bo's goals",
        "Ann believed that Bo placed the hat at his desired location: she moved it to help Bo.",
        "Ann believed that Bo wanted to place the hat inside the box: she moved it to help Bo.",
        "Ann doesn't know Bo's goal and moves the hat without thinking about what he wants.",
    ],
)
def test_people_are_named_by_the_wording(text: str) -> None:
    assert people([text, "which of the following statements is MOST likely?"]) == People(
        "Ann", "Bo"
    )


# Questions of each type that ask for the most likely option; as many ask for the least likely.
TYPES = {
    "made": {"belief_of_goal": 4, "belief": 2, "social_goal": 2},
    "published": {"belief_of_goal": 30, "belief": 25, "social_goal": 25},
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_official_records(source: str) -> None:
    items = load(official_data(source, "muma_tom"))
    types = Counter((i.tags["type"][0], i.polarity) for i in items)
    assert types == {
        (kind, polarity): n for kind, n in TYPES[source].items() for polarity in ("most", "least")
    }
    assert len({i.item_id for i in items}) == len(items)
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


def test_an_error_names_episode_and_field(tmp_path: Path) -> None:
    record = silent() | {"filtered_description": silent()["description"]}
    said = "episode 42: field filtered_description is the whole narrative"
    with pytest.raises(RecordError, match=said):
        load(write(tmp_path, {"42": record}))
