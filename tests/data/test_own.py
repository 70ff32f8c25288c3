"""The user's own questions from JSON lines, and the example in the docs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Option, Sampling, load, own_task
from sally_anne.data.media import read_clip, shape_of

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "film_task.jsonl"
CHOICE: dict[str, Any] = {"question": "Where?", "options": ["red", "blue"], "answer": 1}


def written(folder: Path, *records: Any) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_the_example_is_a_task_with_videos() -> None:
    items = load(EXAMPLE)
    task = own_task(EXAMPLE)
    assert len(items) == 10
    assert task.load(EXAMPLE) == items
    assert (task.default_view, task.name, task.breakdowns) == (
        "multimodal",
        "film_task",
        ("condition",),
    )
    assert len({item.group for item in items}) == 5
    assert {item.answer for item in items} == {"A", "B", "C"}
    for item in items:
        clip = read_clip(item.media[0], "full", task.sampling)
        assert clip.frames.shape == shape_of(item.media[0], "full", task.sampling)[:1] + (
            420,
            294,
            3,
        )
    assert sum(path.stat().st_size for path in EXAMPLE.parent.rglob("*.*")) < 300_000


@pytest.mark.parametrize("answer", [1, "B", "blue", " blue "])
def test_an_answer_by_number_letter_or_text(tmp_path: Path, answer: object) -> None:
    (item,) = load(written(tmp_path, CHOICE | {"answer": answer}))
    assert item.answer == "B"
    assert item.options == (Option("A", "red"), Option("B", "blue"))
    assert (item.item_id, item.group, item.split, item.benchmark) == ("1", "1", "test", "mine")


def test_open_questions_and_words(tmp_path: Path) -> None:
    record = {"question": "Why?", "answer": "She left.", "context": "A story.", "id": 7}
    path = written(tmp_path, record | {"tags": {"order": ["1", "2"]}}, record | {"id": "b"})
    first, second = load(path)
    task = own_task(path)
    assert (first.reference, first.answer, first.context.scene) == ("She left.", None, "A story.")
    assert (first.item_id, second.item_id, first.tags) == ("7", "b", {"order": ("1", "2")})
    assert task.open_ended
    assert dict(task.views) == {"text": ("scene",), "none": ()}


def test_no_answer_hides_the_key(tmp_path: Path) -> None:
    assert load(written(tmp_path, CHOICE | {"answer": None}))[0].hidden


def test_images_in_their_order(tmp_path: Path) -> None:
    for name, grey in (("b.png", 10), ("a.png", 200)):
        Image.fromarray(np.full((8, 6, 3), grey, np.uint8)).save(tmp_path / name)
    path = written(tmp_path, CHOICE | {"images": ["b.png", "a.png"]}, CHOICE | {"images": "a.png"})
    two, one = (item.media[0] for item in load(path))
    clip = read_clip(two, "full", own_task(path).sampling)
    assert clip.frames[:, 0, 0, 0].tolist() == [10, 200]
    assert shape_of(two, "full", Sampling(count=8)) == (2, 8, 6)
    assert read_clip(one, "full", Sampling(count=8)).frames[0, 0, 0, 0] == 200


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": " "}, "field question must be a text"),
        ({"question": "\ud800"}, "field question holds half of a surrogate"),
        ({"anwser": 1}, "field anwser is not known; the fields are question"),
        ({"options": ["red"]}, "field options must be 2 to 26 different texts"),
        ({"options": None}, "field options is missing, unlike in line 1"),
        ({"answer": 2}, "field answer must be the number"),
        ({"answer": True}, "field answer must be the number"),
        ({"options": ["B", "A"], "answer": "A"}, "field answer must be"),
        ({"video": "no.mp4"}, "field video or images is there, unlike in line 1"),
        ({"tags": {"kind": 3}}, r"field tags\.kind must be a text"),
        ({"id": "1"}, "field id repeats '1'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = written(tmp_path, CHOICE, CHOICE | change)
    with pytest.raises(RecordError, match=f"line 2: {message}"):
        load(path)
