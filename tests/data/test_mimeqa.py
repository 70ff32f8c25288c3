"""From MimeQA's CSV to items; a malformed record is named with file, line and column."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Media, Question
from sally_anne.data.mimeqa import MIMEQA, clock, items_of, load, read_range, rows_of

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


def parse(text: str) -> list[Question]:
    return items_of(rows_of(text.encode(), "m.csv"))


def one(**changed: str) -> Question:
    """The first row with other cells or further columns."""
    cells = dict(zip(OFFICIAL, ROWS[0], strict=True)) | changed
    return parse(text_of([tuple(cells.values())], tuple(cells)))[0]


def test_the_official_layout(tmp_path: Path) -> None:
    (tmp_path / "annotation_final.csv").write_text(text_of())
    (tmp_path / "videos").mkdir()
    for film in ("0002.webm", "0002.mp4", "0009.mp4", "0007.txt"):
        (tmp_path / "videos" / film).touch()
    titles = json.dumps({"0002.mp4": "Rain", "0007.webm": "You"})
    (tmp_path / "file_mapping.json").write_text(titles)
    items = load(tmp_path)
    assert [item.item_id for item in items] == ["0002/0", "0002/1", "0007/0", "0002/2"]
    assert [item.group for item in items] == ["0002", "0002", "0007", "0002"]
    assert items[0].question == "From 0:12.5 to 0:30 of the film: What does he hold?"
    film = tmp_path / "videos" / "0002.mp4"
    assert items[0].media == (Media(path=film, focus=12.5, focus_end=30.0),)
    assert items[0].reference == "An umbrella." and items[0].answer is None
    assert items[0].context.scene == "The film is called: Rain"
    assert items[0].tags == {"category": ("Grounding the imagined",), "level": ("grounding",)}
    assert items[1].question.startswith("From 1:01 to 1:02:05.2 of the film: ")
    assert items[2].question == "What is his goal?" and items[2].media == (Media(focus=0.0),)
    assert items[2].tags == {"category": ("Theory of mind",), "level": ("global",)}
    # Global questions are about the whole film.
    assert items[3].media[0].focus_end is None and items[3].question == "How do they get along?"
    assert [item.hidden for item in items] == [False, False, False, True]
    assert MIMEQA.open_ended and MIMEQA.frame_times and MIMEQA.load is load
    assert MIMEQA.views[MIMEQA.default_view] == () and MIMEQA.default_view == "video"
    assert (MIMEQA.sampling.rate, MIMEQA.sampling.most) == (1, 64)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Grounding", "Grounding the imagined"),
        ("Intention and Behavior", "Intention"),
        ("WORKING_MEMORY", "Working memory"),
        ("Perspective Taking (Theory of Mind)", "Theory of mind"),
    ],
)
def test_spellings_of_categories(text: str, name: str) -> None:
    assert one(**{"question type": text}).tags["category"] == (name,)


@pytest.mark.parametrize(
    ("cells", "begins"),
    [
        ({"timestamp": "nan"}, "What does he hold?"),
        ({"timestamp": "(7.0, 7.0)"}, "At 0:07 of the film: "),
        ({"question type": "Working Memory", "timestamp": "soon"}, "What does he hold?"),
    ],
)
def test_without_a_range_the_whole_film_is_asked_about(cells: dict[str, str], begins: str) -> None:
    item = one(**cells)
    assert (item.media[0].focus, item.media[0].focus_end) == (0.0, None)
    assert item.question.startswith(begins)


def test_two_annotators_columns_of_other_case_and_hidden_references() -> None:
    head = "Unnamed: 0,File,Question,Question-Type,answer_1,answer_2\n"
    (item,) = parse(f'{head}0,videos/abc.MP4,Who?,Temporal,"A man, old",A ghost\n')
    assert item.item_id == "abc/0" and item.reference == "A man, old Or: A ghost"
    assert one(reference_answer="nan").hidden
    assert parse("file,question,question type\na,b,temporal\n")[0].hidden


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\xef\xbb\xbfa,b\n1,2", [{"a": "1", "b": "2"}]),
        (b"a,b\n1\n", [{"a": "1"}]),
        (b"a,b\n1,2,,\n", [{"a": "1", "b": "2"}]),
        (b"a,b\n\n , \n1,2\n\n", [{"a": "1", "b": "2"}]),
        (b"a\n", []),
    ],
)
def test_traps_that_are_no_errors(data: bytes, found: list[dict[str, str]]) -> None:
    assert [row.value for row in rows_of(data, "t.csv")] == found


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"\xef\xbb\xbf\n\n", "m.csv"),
        (b'a,b\n1,"2\n3,4\n', "m.csv, line 2"),
        (b"a,b\n1,2,3\n", "m.csv, line 2"),
        (b"a,b\n\xff,2\n", "m.csv, line 2"),
        (b'file,question,question type\n"a\nb",c,temporal\nd,e,x\n', "m.csv, line 4: .*question t"),
        (b"file,question type\na,temporal\n", "m.csv, line 2: field question is missing"),
        (b"file,question,question type,timestamp\na,b,temporal,soon\n", "m.csv, line 2: .*timest"),
    ],
)
def test_errors_name_line_and_column(data: bytes, place: str) -> None:
    with pytest.raises(RecordError, match=place):
        items_of(rows_of(data, "m.csv"))


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@pytest.mark.fuzz
@settings(max_examples=400, deadline=None)
@given(st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1, max_size=5))
def test_what_the_csv_module_writes_is_read(records: list[list[str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["a", "b", "c"], *records])
    kept = [record for record in records if any(cell.strip() for cell in record)]
    rows = rows_of(file.getvalue().encode(), "t.csv")
    assert [list(row.value.values()) for row in rows] == kept


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("(12.5, 30.0)", (12.5, 30.0)),
        ("[12.5,30]", (12.5, 30.0)),
        *((text, None) for text in ("", "12", "(12.5, )", "(1, 2, 3)", "(30, 12)", "a to b")),
        *((text, None) for text in ("(nan, 3)", "(1, inf)", "(-1, 2)", "(1, 1e9)", "0:12-0:30")),
    ],
)
def test_reads_a_range(text: str, span: tuple[float, float] | None) -> None:
    assert read_range(text) == span


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "0:00"), (59.96, "1:00"), (4.29, "0:04.3"), (3599.96, "1:00:00"), (3723.5, "1:02:03.5")],
)
def test_writes_a_time(seconds: float, written: str) -> None:
    assert clock(seconds) == written
