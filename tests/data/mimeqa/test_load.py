"""From MimeQA's CSV to items; a malformed record is named with file, line and column."""

from __future__ import annotations

import csv
import io
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import BenchmarkError, RecordError
from sally_anne.data.items import BenchmarkItem, Media
from sally_anne.data.mimeqa import (
    CATEGORIES,
    LEVELS,
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


def parse(text: str | bytes, **more) -> list[BenchmarkItem]:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return items_of(rows_of(data, "m.csv"), "m.csv", **more)


def row(**changed: str) -> dict[str, str]:
    return dict(zip(OFFICIAL, ROWS[0], strict=True)) | changed


def one(**changed: str) -> BenchmarkItem:
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


def test_every_category_reads_itself() -> None:
    assert [category_of(name) for name in CATEGORIES] == list(CATEGORIES)
    assert sorted(LEVELS.values()) == ["global"] * 3 + ["grounding"] + ["scene"] * 3


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


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"question": " "}, "line 2: field question is empty"),
        ({"question": "a\0b"}, "line 2: field question holds NUL"),
        ({"question": "caf\udce9"}, "line 2: field question holds NUL or bytes"),
        ({"file": ""}, "line 2: field file is empty"),
        ({"file": "../x.mp4"}, "line 2: field file must be a video's"),
        ({"file": ".mp4"}, "line 2: field file must be a video's"),
        ({"file": "x" * 5000}, "line 2: field file must be a video's"),
        ({"question type": "Smell"}, "line 2: field question type must be one of Grounding"),
        ({"timestamp": "soon"}, "line 2: field timestamp must be a start and an end"),
        ({"timestamp": "(30.0, 12.5)"}, "line 2: field timestamp must be"),
        ({"timestamp": "(nan, inf)"}, "line 2: field timestamp must be"),
        ({"timestamp": "0:12-0:30"}, "line 2: field timestamp must be"),
    ],
)
def test_malformed_records_are_named(cells: dict[str, str], message: str) -> None:
    with pytest.raises(RecordError):
        one(**cells)


def test_the_line_is_that_of_the_cell() -> None:
    broken = [("0002.mp4", "a\nb\n", "Grounding", "soon", "x")]
    with pytest.raises(RecordError):
        parse(text_of([*ROWS, *broken]))


@pytest.mark.parametrize("lacking", ["file", "question", "question type"])
def test_a_missing_column_is_named(lacking: str) -> None:
    kept = [i for i, name in enumerate(OFFICIAL) if name != lacking]
    text = text_of([[r[i] for i in kept] for r in ROWS], [OFFICIAL[i] for i in kept])
    with pytest.raises(RecordError):
        parse(text)


def test_folders(folder, tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError):
        load(tmp_path / "none")
    with pytest.raises(BenchmarkError):
        load(tmp_path)
    assert len(load(folder(name="mine.csv"))) == 4
    folder(name="other.csv")
    with pytest.raises(BenchmarkError):
        load(tmp_path)
    folder(text_of(ROWS[:1]), name="data/annotation_final.csv")
    assert len(load(tmp_path)) == 1
    folder(text_of(()), name="annotation_final.csv")
    with pytest.raises(RecordError):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", " is damaged or another kind of file"),
        (b"\xff", " is damaged or another kind of file"),
        (b"[" * 100_000, " is damaged or another kind of file"),
        (b"[]", ": must be an object"),
        (b'{"0002.mp4": 3}', ": field 0002.mp4 must be a text"),
    ],
)
def test_malformed_titles_are_named(folder, content: bytes, message: str) -> None:
    root = folder()
    (root / "file_mapping.json").write_bytes(content)
    with pytest.raises(RecordError):
        load(root)


PIECES = (
    *('"', '""', ",", "\n", "\r\n", "\r", "\0", "\udcff", "\ufeff", ";", "(", ")", ":", "-", "–"),
    *("nan", "None", "1:75", "0:30", "(1, 2)", "(2, 1)", "1e400", "-1", "../", ".mp4", "é", " "),
    *(
        "Grounding",
        "Temporal",
        "Perspective Taking",
        "x" * 3000,
        "From 0:10 to 0:20",
        "٣",
        "\u2028",
    ),
)
NAMES = (*OFFICIAL, "answer_2", "noise")


def fuzzed(random: random.Random) -> bytes:
    """A file of one record: some cells changed, columns dropped or moved, bytes damaged."""
    cells = dict(zip(OFFICIAL, random.choice(ROWS), strict=True))
    for _ in range(random.randrange(4)):
        name = random.choice(NAMES)
        old = cells.get(name, "")
        place = random.randint(0, len(old))
        piece = random.choice(PIECES)
        cells[name] = random.choice((old[:place] + piece + old[place:], piece, ""))
    names = [name for name in cells if random.random() > 0.03]
    if random.random() < 0.1:
        random.shuffle(names)
    quoted = [
        cells[n] if random.random() < 0.1 else '"' + cells[n].replace('"', '""') + '"'
        for n in names
    ]
    text = ",".join(names) + "\n" + ",".join(quoted) + random.choice(("", "\n", ",", ",x\n"))
    data = bytearray(text.encode("utf-8", "surrogateescape"))
    if random.random() < 0.2 and data:
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data)


def check(item: BenchmarkItem) -> None:
    media = item.media[0]
    assert item.item_id.startswith(f"{item.group}/") and item.question.strip()
    assert item.tags["category"][0] in CATEGORIES
    assert item.tags["level"] == (LEVELS[item.tags["category"][0]],)
    assert item.reference is None or item.reference.strip()
    assert media.focus is not None
    if media.focus_end is None:
        assert media.focus == 0
    else:
        assert 0 <= media.focus < media.focus_end <= 24 * 3600
    for text in (item.question, item.group, item.reference or "", item.context.scene):
        assert "\0" not in text
        text.encode()  # fails on lone surrogates


def outcome(data: bytes) -> bool:
    """Whether the file is read; what is read is checked, and so is what an error names."""
    try:
        items = parse(data)
    except RecordError as error:
        message = str(error)
        assert message.startswith("m.csv"), data
        placed = ", line " in message and ("field " in message or "column " in message)
        assert placed or "holds no questions" in message or "is empty" in message, data
        return False
    for item in items:
        check(item)
    return True


@pytest.mark.fuzz
def test_ten_thousand_fuzzed_records_are_items_or_errors_with_their_place() -> None:
    read: list[bool] = []

    @settings(max_examples=200, deadline=None, database=None, derandomize=True)
    @given(st.randoms(use_true_random=True))
    def fuzz(draw: random.Random) -> None:
        read.extend(outcome(fuzzed(draw)) for _ in range(50))

    began = time.process_time()
    fuzz()
    assert len(read) >= 10_000 and 0.2 < sum(read) / len(read) < 0.8
    assert time.process_time() - began < 15


@pytest.mark.fuzz
@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=20)), st.binary(max_size=6))
def test_any_cells_and_bytes(cells: dict[str, str], tail: bytes) -> None:
    changed = row(**cells)
    outcome(text_of([tuple(changed.values())], tuple(changed)).encode("utf-8", "replace") + tail)
