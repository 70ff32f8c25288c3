"""Samples of one's own: read, refused by file, line and field, and split by group."""

import json
from pathlib import Path

import pytest
from PIL import Image

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Media
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
        ({"labels": {"true": 0.5}}, "give true or false"),
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
