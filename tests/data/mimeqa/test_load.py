"""From MimeQA's CSV to items; a malformed record is named with file, line and column."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sally_anne.data.items import Media, Question
from sally_anne.data.mimeqa import (
    MIMEQA,
    category_of,
    items_of,
    load,
    rows_of,
)

OFFICIAL = ("file", "question", "question type", "timestamp", "reference_answer")
ROWS = (
    ("0002.mp4", "What does he hold?", "Grounding", "(12.5, 30.0)", "An umbrella."),
    ("0002.mp4", "Why does she turn away?", "Intention", "(61.0, 3725.25)", "She is shy."),
    ("0007.webm", "What is his goal?", "Perspective Taking", "", "To be seen."),
    ("0002.mp4", "How do they get along?", "Social Judgment", "(1.0, 2.0)", ""),
)


def text_of(rows=ROWS, columns=OFFICIAL) -> str:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([columns, *rows])
    return file.getvalue()


def parse(text: str | bytes, **more) -> list[Question]:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return items_of(rows_of(data, "m.csv"), "m.csv", **more)


def row(**changed: str) -> dict[str, str]:
    return dict(zip(OFFICIAL, ROWS[0], strict=True)) | changed


def one(**changed: str) -> Question:
    """The first row with other cells or further columns."""
    cells = row(**changed)
    return parse(text_of([tuple(cells.values())], tuple(cells)))[0]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def make(text: str = text_of(), name: str = "annotation_final.csv") -> Path:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        return tmp_path

    return make


def test_the_official_layout(folder) -> None:
    root = folder()
    (root / "videos").mkdir()
    for film in ("0002.webm", "0002.mp4", "0009.mp4", "0007.txt"):
        (root / "videos" / film).touch()
    (root / "file_mapping.json").write_text(json.dumps({"0002.mp4": "Rain", "0007.webm": "You"}))
    items = load(root)
    assert [item.item_id for item in items] == ["0002/0", "0002/1", "0007/0", "0002/2"]
    assert [item.group for item in items] == ["0002", "0002", "0007", "0002"]
    assert {item.split for item in items} == {"test"}
    assert items[0].question == "From 0:12.5 to 0:30 of the film: What does he hold?"
    assert items[0].media == (Media(path=root / "videos" / "0002.mp4", focus=12.5, focus_end=30.0),)
    assert items[0].reference == "An umbrella." and items[0].answer is None
    assert items[0].context.scene == "The film is called: Rain"
    assert items[0].tags == {"category": ("Grounding the imagined",), "level": ("grounding",)}
    assert items[1].question.startswith("From 1:01 to 1:02:05.2 of the film: ")
    assert items[2].question == "What is his goal?"
    assert items[2].media == (Media(focus=0.0),)
    assert items[2].tags == {"category": ("Theory of mind",), "level": ("global",)}
    # Global questions are about the whole film.
    assert items[3].media[0].focus_end is None and items[3].question == "How do they get along?"
    assert [item.hidden for item in items] == [False, False, False, True]
    assert not items[0].options and items[0].licence == "CC-BY-NC-SA-4.0"


def test_the_benchmark() -> None:
    assert MIMEQA.open_ended and MIMEQA.frame_times and MIMEQA.load is load
    assert MIMEQA.views[MIMEQA.default_view] == () and MIMEQA.default_view == "video"
    assert (MIMEQA.sampling.rate, MIMEQA.sampling.most) == (1, 64)
    assert set(MIMEQA.breakdowns) == set(one().tags)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Grounding", "Grounding the imagined"),
        ("grounding the imagined", "Grounding the imagined"),
        ("Temporal", "Temporal"),
        ("Affect Recognition", "Affect recognition"),
        ("Intention and Behavior", "Intention"),
        ("Intention", "Intention"),
        ("WORKING_MEMORY", "Working memory"),
        ("Social Judgement", "Social judgment"),
        ("Perspective Taking (Theory of Mind)", "Theory of mind"),
        ("Theory-of-Mind", "Theory of mind"),
        ("scene", None),
        ("", None),
        ("memory", None),
    ],
)
def test_spellings_of_categories(text: str, name: str | None) -> None:
    assert category_of(text) == name


@pytest.mark.parametrize(
    ("cells", "span", "begins"),
    [
        ({"timestamp": "nan"}, None, "What does he hold?"),
        ({"timestamp": ""}, None, "What does he hold?"),
        ({"timestamp": "(7.0, 7.0)"}, None, "At 0:07 of the film: "),
        ({"timestamp": "", "question": "Who falls at 1:23?"}, None, "Who falls at 1:23?"),
        ({"question type": "Working Memory", "timestamp": "soon"}, None, "What does he hold?"),
    ],
)
def test_ranges(cells: dict[str, str], span: tuple[float, float] | None, begins: str) -> None:
    item = one(**cells)
    media = item.media[0]
    assert (media.focus, media.focus_end) == (span or (0.0, None))
    assert item.question.startswith(begins) and item.question.count("of the film") <= 1


@pytest.mark.parametrize(
    ("file", "group"),
    [("0002.mp4", "0002"), ("videos/0002.MP4", "0002"), ("dQw4w9WgXcQ", "dQw4w9WgXcQ")],
)
def test_films(file: str, group: str) -> None:
    path = Path("somewhere.mp4")
    cells = row(file=file)
    item = parse(text_of([tuple(cells.values())]), videos={group: path})[0]
    assert (item.group, item.media[0].path) == (group, path)


def test_two_annotators_and_columns_of_other_case() -> None:
    item = parse(
        "Unnamed: 0,File,Question,Question-Type,answer_1,answer_2\n0,abc,Who?,Temporal,"
        '"A man, old",A ghost\n'
    )[0]
    assert item.item_id == "abc/0" and item.reference == "A man, old Or: A ghost"


@pytest.mark.parametrize(("cell", "reference"), [("", None), ("nan", None), ("None.", "None.")])
def test_hidden_references(cell: str, reference: str | None) -> None:
    assert one(reference_answer=cell).reference == reference
    assert parse("file,question,question type\na,b,temporal\n")[0].hidden
