"""MimeQA's questions from its release: a CSV, titles, and videos.

The official file has the columns ``file`` (the video's file name), ``question``, ``question type``,
``timestamp`` (two times in seconds, in brackets; empty where the question is about the whole video)
and a reference answer. Other spellings of these columns are read as well, and start and end in
columns of their own. Titles are in ``file_mapping.json``, by file name.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from sally_anne.benchmarks.fields import Field
from sally_anne.benchmarks.items import BenchmarkItem, Context, Media
from sally_anne.benchmarks.mimeqa.cells import (
    CATEGORIES,
    LEVELS,
    Row,
    category_of,
    cell_text,
    clock,
    range_in,
    read_range,
    read_table,
    read_time,
)
from sally_anne.core.errors import BenchmarkError, RecordError

NAME = "mimeqa"
LICENCE = "CC-BY-NC-SA-4.0"
TABLES = ("annotation_final.csv", "annotations.csv", "annotation.csv", "metadata.csv", "mimeqa.csv")
TITLES = "file_mapping.json"
VIDEOS = "videos"
SUFFIXES = (".mp4", ".webm", ".mkv", ".mov", ".avi", ".m4v")

_FILE = ("file", "file name", "filename", "video", "video name", "video file", "video id")
_COLUMNS: dict[str, tuple[str, ...]] = {
    "file": (*_FILE, "youtube id"),
    "question": ("question",),
    "category": ("question type", "question category", "category"),
    # Two annotators' answers in an earlier form of the file.
    "reference": ("reference answer", "reference", "answer", "answer 1"),
    "second": ("answer 2",),
    "timestamp": ("timestamp", "timestamps", "time range"),
    "start": ("start", "start time", "start timestamp"),
    "end": ("end", "end time", "end timestamp"),
    "title": ("title", "video title"),
    "url": ("url", "link", "video url", "youtube url"),
    "number": ("question id",),
}
_NEEDED = ("file", "question", "category")
_YOUTUBE = re.compile(
    r"(?:https?://)?(?:www\.|m\.)?(?:youtube\.com/(?:watch\?(?:[^#\s]*&)?v=|embed/|shorts/)"
    r"|youtu\.be/)([A-Za-z0-9_-]{11})(?![A-Za-z0-9_-])"
)
_YOUTUBE_ID = re.compile(r"[A-Za-z0-9_-]{11}\Z")
_UNFIT = re.compile(r"[/\\\x00-\x1f\x7f]")


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions of a folder, in the order of its CSV.

    Raises:
        BenchmarkError: there is no CSV, or it is not clear which one.
        RecordError: a file is malformed; names file, line and column.
    """
    path = _table(folder)
    return items_of(read_table(path), str(path), _titles(path.parent), _videos(folder))


def items_of(
    rows: list[Row],
    where: str,
    titles: Mapping[str, str] | None = None,
    videos: Mapping[str, Path] | None = None,
) -> list[BenchmarkItem]:
    """Items of a table's rows.

    Args:
        rows: as :func:`sally_anne.benchmarks.mimeqa.cells.read_table` gives them.
        where: the file, for errors.
        titles: of videos, by name without suffix.
        videos: on this machine, by name without suffix.

    Raises:
        RecordError: a row is malformed, or a column is missing.
    """
    if not rows:
        raise RecordError(f"{where}: holds no questions")
    there = {
        meaning: next((name for name in names if name in rows[0]), None)
        for meaning, names in _COLUMNS.items()
    }
    for meaning in _NEEDED:
        if there[meaning] is None:
            raise RecordError(
                f"{where}, line 1: there is no column {_COLUMNS[meaning][0]!r}; the header has "
                f"{', '.join(rows[0])[:200]}"
            )
    items: dict[str, BenchmarkItem] = {}
    lines: dict[str, str] = {}
    asked: Counter[str] = Counter()
    for row in rows:
        cells = {meaning: row[name] for meaning, name in there.items() if name is not None}
        video, url = _video(cells["file"])
        number = cell_text(cells["number"]) if "number" in cells else ""
        item_id = f"{video}/{number or asked[video]}"
        asked[video] += 1
        if item_id in items:
            cells.get("number", cells["file"]).fail(
                f"gives item {item_id!r} a second time, after {lines[item_id]}"
            )
        lines[item_id] = cells["file"].where
        title = _optional(cells, "title") or (titles or {}).get(video, "")
        given = _YOUTUBE.search(_optional(cells, "url"))
        url = url or (_address(given[1]) if given else _optional(cells, "url"))
        category, question, (focus, end) = _question(cells)
        items[item_id] = BenchmarkItem(
            item_id=item_id,
            benchmark=NAME,
            split="test",
            group=video,
            question=question,
            reference=_reference(cells),
            media=(Media(path=(videos or {}).get(video), url=url, focus=focus, focus_end=end),),
            # The prompt's words, with which results were measured.
            context=Context(scene=f"The film is called: {title}" if title else ""),
            tags={"category": (category,), "level": (LEVELS[category],)},
            licence=LICENCE,
        )
    return list(items.values())


def _question(cells: Mapping[str, Field]) -> tuple[str, str, tuple[float, float | None]]:
    """Category, wording, and the part of the video that it is about."""
    text = _needed(cells["category"])
    category = category_of(text)
    if category is None:
        cells["category"].fail(f"must be one of {', '.join(CATEGORIES)}, is {text[:60]!r}")
    question = _needed(cells["question"])
    named = range_in(question)
    # Global questions are about the whole video, whatever stands in the other columns.
    span = None if LEVELS[category] == "global" else (_span(cells) or named)
    if span is not None and named is None:
        first, last = clock(span[0]), clock(span[1])
        when = f"At {first}" if first == last else f"From {first} to {last}"
        question = f"{when} of the film: {question}"
    # A moment alone has no length that could be shown: then the question's part is the whole video.
    focus = span if span is not None and span[0] < span[1] else (0.0, None)
    return category, question, focus


def _needed(cell: Field) -> str:
    text = cell_text(cell)
    if not text:
        cell.fail("is empty")
    return text


def _optional(cells: Mapping[str, Field], meaning: str) -> str:
    """A cell that may be missing or empty; pandas writes nan for an empty one."""
    text = cell_text(cells[meaning]) if meaning in cells else ""
    return "" if text.lower() == "nan" else text


def _reference(cells: Mapping[str, Field]) -> str | None:
    """The answer, or both annotators' answers; None where it is hidden."""
    answers = [_optional(cells, "reference"), _optional(cells, "second")]
    return " Or: ".join(dict.fromkeys(answer for answer in answers if answer)) or None


def _span(cells: Mapping[str, Field]) -> tuple[float, float] | None:
    """The part of the video that the columns name, in seconds."""
    if text := _optional(cells, "timestamp"):
        span = read_range(text)
        if span is None:
            cells["timestamp"].fail(
                f"must be a start and an end such as (12.5, 30.0) or 0:12-0:30, is {text[:60]!r}"
            )
        return span
    ends = []
    for meaning in ("start", "end"):
        if text := _optional(cells, meaning):
            time = read_time(text)
            if time is None:
                cells[meaning].fail(f"must be a time such as 1:23 or 83.5, is {text[:60]!r}")
            ends.append(time)
    if not ends:
        return None
    if len(ends) == 1:
        given, lacking = ("start", "end") if _optional(cells, "start") else ("end", "start")
        cells[given].fail(f"has no {lacking} beside it; a range needs both")
    if ends[1] < ends[0]:
        cells["end"].fail(f"is before the start, {ends[0]:g} s")
    return ends[0], ends[1]


def _video(cell: Field) -> tuple[str, str]:
    """A video's name without suffix, and its address if the name is one of YouTube."""
    text = _needed(cell).removeprefix(f"{VIDEOS}/")
    if match := _YOUTUBE.match(text):
        return match[1], _address(match[1])
    name = _stem(text).strip()
    if not name or name.startswith(".") or len(name) > 200 or _UNFIT.search(name):
        cell.fail(f"must be a video's file name, YouTube id or address, is {text[:60]!r}")
    return name, _address(name) if _stem(text) == text and _YOUTUBE_ID.match(name) else ""


def _stem(name: str) -> str:
    """A file's name without the ending of a video."""
    suffix = next((s for s in SUFFIXES if name.lower().endswith(s)), "")
    return name[: len(name) - len(suffix)]


def _address(youtube_id: str) -> str:
    return f"https://www.youtube.com/watch?v={youtube_id}"


def _table(folder: Path) -> Path:
    """The CSV with the questions, in the folder or its ``data``."""
    if not folder.is_dir():
        raise BenchmarkError(f"{folder}: is no folder; it should hold {TABLES[0]} and {VIDEOS}/")
    found: list[Path] = []
    for place in (folder, folder / "data"):
        for name in TABLES:
            if (place / name).is_file():
                return place / name
        found += sorted(place.glob("*.csv"))
    if len(found) == 1:
        return found[0]
    there = (
        f"several CSV files ({', '.join(p.name for p in found[:5])})" if found else "no CSV file"
    )
    raise BenchmarkError(f"{folder}: has {there}; the questions should be in {TABLES[0]}")


def _titles(folder: Path) -> dict[str, str]:
    """Titles by video, where the release has them."""
    path = folder / TITLES
    if not path.is_file():
        return {}
    try:
        whole = json.loads(path.read_bytes().decode("utf-8-sig"))
    # ValueError covers bad JSON and bad UTF-8.
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: is not JSON ({error})") from error
    titles = Field(whole, str(path)).entries()
    return {_stem(name): title.text().strip() for name, title in titles.items()}


def _videos(folder: Path) -> dict[str, Path]:
    """Videos on this machine; of one in several formats the first of ``SUFFIXES``."""
    place = folder / VIDEOS
    files = sorted(place.iterdir()) if place.is_dir() else []
    there = [path for path in files if path.suffix.lower() in SUFFIXES]
    there.sort(key=lambda path: SUFFIXES.index(path.suffix.lower()), reverse=True)
    return {path.stem: path for path in there}
