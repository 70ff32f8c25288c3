"""A folder becomes items that show what the benchmark gives, and nothing of the narrative."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sally_anne.data.items import Media
from sally_anne.data.muma_tom import MUMA_TOM, load
from tests.data.muma_tom.records import silent, talking, write

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
    assert {i.benchmark for i in items} == {MUMA_TOM.name}


def test_silent_episodes_give_one_persons_actions(tmp_path: Path) -> None:
    record = silent()
    item = load(write(tmp_path, {"42": record}))[0]
    assert item.context.actions == record["filtered_description"]
    assert item.context.dialogue == ""


def test_talk_is_quoted_from_the_narrative_with_the_questions_names(tmp_path: Path) -> None:
    record = talking()
    renamed = record["description"].replace("Dee", "Eve")
    item = load(write(tmp_path, {"4005": record}, {"4005": renamed}))[0]
    assert item.context.dialogue == TALK
    assert item.context.actions == ""


def test_talk_is_taken_as_texts_json_has_it(tmp_path: Path) -> None:
    text = "Cy: Is there a hat?\n\n Dee : Look on the bed!\n"
    item = load(write(tmp_path, {"4005": talking()}, {"4005": text}))[0]
    assert item.context.dialogue == "Cy: Is there a hat?\nDee: Look on the bed!"


def test_talk_of_a_narrative_that_tells_it_twice_comes_from_texts_json(tmp_path: Path) -> None:
    record = talking()
    narrative = record["description"]
    record["description"] = f"{narrative} {narrative}"
    item = load(write(tmp_path, {"4005": record}, {"4005": narrative}))[0]
    assert item.context.dialogue == TALK


def test_actions_may_come_from_texts_json(tmp_path: Path) -> None:
    record = silent()
    part = record.pop("filtered_description")
    item = load(write(tmp_path, {"42": record}, {"42": part}))[0]
    assert item.context.actions == part


def test_the_narrative_is_in_no_view(tmp_path: Path) -> None:
    for item in load(write(tmp_path, {"42": silent(), "4005": talking()})):
        shown = {name: getattr(item.context, name) for v in MUMA_TOM.views.values() for name in v}
        assert any(shown.values())
        for told in shown.values():
            assert "Ada fetched" not in told and "took one out of the box" not in told
    assert MUMA_TOM.views["video"] == MUMA_TOM.views["none"] == ()
    assert MUMA_TOM.views["multimodal"] == MUMA_TOM.views["text"] == ("actions", "dialogue")


@pytest.mark.parametrize("film", ["videos/42.mp4", "Videos/video_42.MP4", "videos/video_42.webm"])
def test_films_are_found_by_episode(tmp_path: Path, film: str) -> None:
    folder = write(tmp_path, {"42": silent(), "4005": talking()}, films=f"{film} videos/4005.txt")
    items = load(folder)
    assert items[0].media == items[1].media == (Media(path=folder / film),)
    assert items[2].media == (Media(),)
    assert MUMA_TOM.sampling.every == 20


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda record: record.pop(name)


def setting(name: str, number: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda record: record[name].update({number: value})
