"""Samples of one's own: read, refused by file, line and field, and split by group."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Media, Option, Sampling, load, own_task
from sally_anne.data.media import read_clip, shape_of
from sally_anne.data.samples import Sample, fingerprint, read_samples, with_splits

LINE = {"text": "The robot is in the red room.", "labels": {"true": True}}


def written(folder: Path, *lines: dict) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("\n\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_every_field_is_read(tmp_path):
    Image.new("RGB", (4, 3), "red").save(tmp_path / "a.png")
    Image.new("RGB", (4, 3), "blue").save(tmp_path / "b.png")
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello. "}]
    labels = {"mood": "glad", "count": 2, "true": False}
    path = written(
        tmp_path,
        {"messages": chat, "images": ["a.png", "b.png"], "labels": labels, "group": "one"}
        | {"split": "train", "tags": {"kind": "greeting"}, "item_id": "first"},
        {"text": "Bye.", "labels": labels, "split": "test"},
    )
    first, second = read_samples(path)
    assert (first.item_id, first.group, first.split) == ("first", "one", "train")
    assert first.labels == labels and first.tags == {"kind": "greeting"}
    assert first.content == "Hello." and [t["role"] for t in first.turns] == ["system", "user"]
    assert first.shows and first.shape() == (2, 3, 4)
    assert first.frames()[:, 0, 0].tolist() == [[255, 0, 0], [0, 0, 255]]
    assert second.group == second.item_id == "line-00003" and second.shape() is None
    before = fingerprint([first, second])
    Image.new("RGB", (4, 3), "green").save(tmp_path / "b.png")
    assert fingerprint([first, second]) != before


def test_a_part_of_a_film_is_in_the_hash(tmp_path):
    film = tmp_path / "film.mp4"
    film.write_bytes(b"one")
    found = [fingerprint([Sample("a", "Hi.", video=Media(path=film, end=end))]) for end in (1, 2)]
    film.write_bytes(b"two")
    found.append(fingerprint([Sample("a", "Hi.", video=Media(path=film, end=1))]))
    assert len(set(found)) == 3
    # Runs on the frames of MMToM-QA were hashed without them.
    frames = Media(path=tmp_path, files=(film,))
    assert fingerprint([Sample("a", "Hi.", video=frames)]) == fingerprint([Sample("a", "Hi.")])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": None}, "field text must be a text"),
        ({"messages": [{"role": "user", "content": "Hi."}]}, "give text or messages, and not both"),
        (
            {"text": None, "messages": [{"role": "robot", "content": "Hi."}]},
            "needs a content and a role",
        ),
        ({"video": "none.mp4"}, "field video names a file that is not there"),
        ({"labels": {}}, "field labels names no label"),
        ({"labels": {"true": 0.5}}, "no truth value"),
        ({"labels": {"true": 1}}, "its labels are"),
        ({"labels": {"true": "\ud800"}}, "holds half of a surrogate pair"),
        ({"labels": {"group": True}}, "'group' cannot name a label or tag"),
        ({"tags": {"true": "a"}}, "'true' names a label and a tag"),
        ({"split": "test"}, "field split is there, unlike in line 1"),
        ({"lables": {}}, "field lables is not known"),
    ],
)
def test_an_error_names_file_line_and_field(tmp_path, change, message):
    path = written(tmp_path, LINE, LINE | change)
    with pytest.raises(RecordError) as caught:
        read_samples(path)
    assert f"{path}, line 3: " in str(caught.value)
    assert message in str(caught.value)


def test_a_group_in_two_splits_is_refused(tmp_path):
    parts = [LINE | {"group": "one", "split": split} for split in ("train", "test")]
    with pytest.raises(RecordError):
        read_samples(written(tmp_path, *parts))
    parts[1]["split"] = "dev"
    with pytest.raises(RecordError):
        read_samples(written(tmp_path, *parts))


@pytest.mark.parametrize("groups", [3, 41])
def test_groups_are_drawn_whole_into_all_splits(groups):
    samples = [Sample(f"{g}-{i}", "Hi.", group=f"g{g}") for g in range(groups) for i in range(2)]
    drawn = with_splits(samples)
    splits = {s.group: s.split for s in drawn}
    assert all(splits[s.group] == s.split for s in drawn)
    assert set(splits.values()) == {"train", "validation", "test"}
    assert with_splits(samples[::-1])[::-1] == drawn
    assert groups < 10 or with_splits(samples, seed=1) != drawn
    assert with_splits(drawn, seed=1) == drawn


def test_a_line_ends_at_its_line_feed_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(
        '{"text": "a\u2028b", "labels": {"x": 1}}\n'.encode()
        + b'{"text": "\\ud800", "labels": {"x": 1}}\n'
    )
    with pytest.raises(RecordError):
        read_samples(path)
    path.write_bytes(path.read_bytes().splitlines()[0])
    line = path.read_text("utf-8")
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_bytes(line.encode(encoding))
        assert read_samples(path)[0].text == "a\u2028b"
    for encoding in ("utf-16-le", "utf-16-be"):
        path.write_bytes(line.encode(encoding))
        with pytest.raises(RecordError, match=r"mine\.jsonl: it is UTF-16 without"):
            read_samples(path)


def test_python_is_told_the_same(tmp_path: Path) -> None:
    sample = Sample("a", "Hi. \n", images=str(tmp_path / "a.png"))
    assert sample.text == "Hi." and sample.images == (tmp_path / "a.png",)
    chat = {"messages": ({"role": "user", "content": "Hi. "},)}
    assert Sample("a", **chat).content == "Hi."
    for wrong in (
        {"text": " "},
        {"text": "Hi.", "labels": {"true": None}},
        {"text": "\ud800"},
        {"messages": ["Hi."]},
        {"messages": ({"role": "robot", "content": "Hi."},)},
        {"text": "Hi.", **chat},
    ):
        with pytest.raises(RecordError, match="sample a: "):
            Sample("a", **wrong)


EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "film_task.jsonl"
CHOICE: dict[str, Any] = {"question": "Where?", "options": ["red", "blue"], "answer": 1}


def mine(folder: Path, *records: Any) -> Path:
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
    (item,) = load(mine(tmp_path, CHOICE | {"answer": answer}))
    assert item.answer == "B"
    assert item.options == (Option("A", "red"), Option("B", "blue"))
    assert (item.item_id, item.group, item.split, item.benchmark) == ("1", "1", "test", "mine")


def test_open_questions_and_words(tmp_path: Path) -> None:
    record = {"question": "Why?", "answer": "She left.", "context": "A story.", "id": 7}
    path = mine(tmp_path, record | {"tags": {"order": ["1", "2"]}}, record | {"id": "b"})
    first, second = load(path)
    task = own_task(path)
    assert (first.reference, first.answer, first.context.scene) == ("She left.", None, "A story.")
    assert (first.item_id, second.item_id, first.tags) == ("7", "b", {"order": ("1", "2")})
    assert task.open_ended
    assert dict(task.views) == {"text": ("scene",), "none": ()}


def test_no_answer_hides_the_key(tmp_path: Path) -> None:
    assert load(mine(tmp_path, CHOICE | {"answer": None}))[0].hidden


def test_images_in_their_order(tmp_path: Path) -> None:
    for name, grey in (("b.png", 10), ("a.png", 200)):
        Image.fromarray(np.full((8, 6, 3), grey, np.uint8)).save(tmp_path / name)
    path = mine(tmp_path, CHOICE | {"images": ["b.png", "a.png"]}, CHOICE | {"images": "a.png"})
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
    path = mine(tmp_path, CHOICE, CHOICE | change)
    with pytest.raises(RecordError, match=f"line 2: {message}"):
        load(path)
