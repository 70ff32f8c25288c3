"""GridToM's questions as items: every word, option, answer and pair of stories made by hand."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sally_anne.data.gridtom.narration import InitialQuestion
from sally_anne.data.gridtom.plot import COLOURS
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.items import Option, Question
from sally_anne.harness.gridtom import Wording, items
from tests.made_stories import KEY_FRAMES, cast_of, made_stories, made_story, right_room

ENDS = {
    "plain": "{context} Question: {question} Answer:",
    "json": "{context}\n\nQuestion: {question}\nReply with a JSON object and nothing else; its "
    'field "answer" holds {wanted}.',
}


def item(name: str, told: str, question: str, style: str, wanted: str, **facts: Any) -> Question:
    return Question(
        item_id=f"story-0003/{name}",
        benchmark="gridtom",
        group="story-0003",
        question=question,
        map="map-03",
        split="test",
        official="gridtom",
        text=ENDS[style].format(context=told, question=question, wanted=wanted),
        **facts,
    )


def belief(name: str, rooms: str, answer: str, setting: str, style: str) -> Question:
    """An item of story 3, whose agent walks to the purple room first and to the white one last."""
    first, _, second = name.partition("/")
    said = f"{first} and {second}" if second else first
    told = "World 3."
    if setting != "video":
        told += f" Story 3, {said}, seen by the omniscient."
    one, other = rooms.split()
    return item(
        name,
        told,
        f"Who is where in {said}? Choose one: {one} or {other}.",
        style,
        "the room",
        condition=second or first,
        first=first,
        options=(Option(one, one), Option(other, other)),
        answer=answer,
    )


def initial(number: int, question: str, choices: str, answer: str, setting: str, style: str):
    told = "Some world."
    if setting == "text":
        told += " Story 3, FB, seen by the omniscient."
    return item(
        f"initial/{number}",
        told,
        question,
        style,
        "the colour, or a list of colours",
        options=tuple(Option(colour, colour) for colour in choices.split()),
        answers=tuple(answer.split()),
    )


# Of story 3: the version, the rooms as they are offered, and the right one.
BELIEFS = {
    "1": [("TB", "purple white", "white"), ("FB", "white purple", "purple")],
    "2": [
        ("TB/TB", "white purple", "white"),
        ("FB/TB", "white purple", "purple"),
        ("TB/FB", "white purple", "purple"),
        ("FB/FB", "white purple", "white"),
    ],
}
# Reality is the last room, whichever version tells it.
REALITY = [("reality/TB", "white"), ("reality/FB", "white")]
INITIAL = [
    (0, "Which agents? (3)", "blue red purple orange white", "blue red"),
    (1, "First room? (3)", "purple orange white", "purple"),
]


@pytest.mark.parametrize(
    ("setting", "style"), [("multimodal", "plain"), ("video", "json"), ("text", "json")]
)
@pytest.mark.parametrize("ask", ["1", "2", "initial"])
def test_every_part_of_every_item(ask, setting, style) -> None:
    stories = [made_story(3), made_story(4)]  # the second has no split
    found = list(items(stories, {3: "test"}, ask, Wording(setting, style)))
    if ask == "initial":
        assert found == [initial(*row, setting, style) for row in INITIAL]
    else:
        assert found == [belief(*row, setting, style) for row in BELIEFS[ask]]
    for place, asked in enumerate(found):
        if setting == "text":
            assert asked.clip is None
            continue
        assert asked.clip is not None
        clip = asked.clip()
        # Initial beliefs are asked of the false-belief version, up to where their section ends.
        version = 1 if ask == "initial" else place % 2
        ticks = KEY_FRAMES[:3] if (ask, place) == ("initial", 1) else KEY_FRAMES
        assert clip[:, 0, 0, 0].tolist() == [120 + 20 * version + tick for tick in ticks]
        assert asked.shape is not None and asked.shape(True) == clip.shape[:3]


def test_initial_beliefs_are_not_told_where_frames_are_shown() -> None:
    """As in the paper's table 3: no word but the question's list of colours names the answer."""
    story = open_stories(None, 2025).story(5)
    for setting in ("multimodal", "video"):
        for asked in items([story], {5: "test"}, "initial", Wording(setting)):
            told, _, question = asked.text.partition(" Question: ")
            assert told == story.initial_environment
            assert not set(re.findall(r"[a-z]+", told.lower())) & set(COLOURS)
            assert {o.label for o in asked.options} <= set(re.findall(r"[a-z]+", question))
    clips = [
        asked.clip()
        for asked in items([story], {5: "test"}, "initial", Wording("video"))
        if asked.clip
    ]
    whole = story.case(1, "FB").frames()
    assert [len(clip) for clip in clips] == [7, 3, 5]
    assert all((clip == whole[: len(clip)]).all() for clip in clips)


def test_words_alone_tell_what_the_frames_of_the_section_would_show() -> None:
    """Then only one of the rooms that the participant walks into is named as walked into."""
    story = open_stories(None, 2025).story(5)
    _, first, own = items([story], {5: "test"}, "initial", Wording("text"))
    told = first.text.partition(" Question: ")[0].removeprefix(story.initial_environment)
    assert re.findall(r"walks into the (\w+) room", told) == [story.cast.first_room]
    assert " 1. " in told and " 2. " not in told
    told = own.text.partition(" Question: ")[0]
    assert " 2. " in told and " 3. " not in told
    assert story.cast.last_room not in told


def test_what_the_participant_walks_into_is_asked_so_that_one_room_is_right() -> None:
    """In the official wording its last room is an answer as true as its first."""
    cast, rooms = cast_of(3), cast_of(3)[2:]
    listed = f"Choose from the following colors and just answer the color. ({', '.join(rooms)})"
    official = tuple(
        InitialQuestion(f"What color room did the {agent} agent walk into? {listed}", *right)
        for agent, right in (
            (cast.participant, ((cast.first_room,), rooms, (0, 4))),
            (cast.protagonist, ((cast.own_room,), rooms, (0, 10))),
        )
    )
    story = replace(made_story(3), initial=official)
    walks, stays = items([story], {3: "test"}, "initial", Wording("multimodal"))
    assert f"the {cast.participant} agent walks into first?" in walks.text
    assert all(room in walks.text for room in rooms) and "did the" not in walks.text
    assert walks.tags == {"question": ("reworded",)}
    # Of the room that the protagonist walked into there is but one.
    assert f"Question: {official[1].question} Answer:" in stays.text and not stays.tags
    ours = items([made_story(3)], {3: "test"}, "initial", Wording("multimodal"))
    assert not any(asked.tags for asked in ours)


def test_reality_is_the_last_room_in_both_versions() -> None:
    found = items([made_story(3)], {3: "test"}, "reality", Wording("text"))
    for (name, answer), asked in zip(REALITY, found, strict=True):
        one, other = (option.label for option in asked.options)
        assert asked.item_id == f"story-0003/{name}" and asked.answer == answer
        assert {one, other} == {"purple", "white"}
        assert asked.text == (
            f"World 3. Story 3, {name.partition('/')[2]}, seen by the omniscient. Question: At the "
            f"end of the video, in which room is the {cast_of(3).participant} agent? "
            f"Choose one: {one} or {other}. Answer:"
        )


@pytest.mark.parametrize("ask", ["1", "2"])
def test_neither_room_stands_first_more_often_than_the_other(ask) -> None:
    """For true and false beliefs alike, the right room is named first in half of the stories."""
    stories = made_stories(range(400))
    found = list(items(stories, dict.fromkeys(range(400), "test"), ask, Wording("text")))
    places: Counter[str] = Counter()
    for asked in found:
        index = int(asked.group.removeprefix("story-"))
        second = asked.condition if ask == "2" else None
        right = right_room(index, asked.first, second)
        assert asked.answer == right and right in {o.label for o in asked.options}
        one, _, other = asked.text.partition("Choose one: ")[2].partition(".")[0].split()
        assert [o.label for o in asked.options] == [one, other]
        places[asked.item_id.partition("/")[2]] += one == right
    assert set(places) == {name for name, *_ in BELIEFS[ask]}
    # Five standard deviations of a fair coin, thrown 400 times.
    assert all(150 <= count <= 250 for count in places.values()), places
