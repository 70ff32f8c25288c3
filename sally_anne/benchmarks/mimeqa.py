"""MimeQA (Li et al., 2025): open questions about videos of mime, which is acted without words.

Its official CSV has the columns ``file`` (the video's file name), ``question``, ``question type``,
``timestamp`` (two times in seconds, in brackets; empty where the question is about the whole video)
and a reference answer. Other spellings of these columns are read as well, and start and end in
columns of their own. Titles are in ``file_mapping.json``, by file name.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sally_anne.benchmarks.fields import Field, read_bytes
from sally_anne.benchmarks.items import Benchmark, BenchmarkItem, Context, Media, Sampling
from sally_anne.benchmarks.tables import cell_text, csv_rows, needed
from sally_anne.core.errors import BenchmarkError, RecordError
from sally_anne.core.files import reading

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

# In the order of the paper's figure 9.
LEVELS: dict[str, str] = {
    "Grounding the imagined": "grounding",
    "Intention": "scene",
    "Affect recognition": "scene",
    "Temporal": "scene",
    "Theory of mind": "global",
    "Social judgment": "global",
    "Working memory": "global",
}
CATEGORIES: tuple[str, ...] = tuple(LEVELS)

# The official file calls theory of mind perspective taking.
_SPELLINGS = {
    "Grounding the imagined": "grounding groundingtheimagined gi",
    "Intention": "intention intentions i intentionandbehavior intentionandbehaviour "
    "intentionandbehaviorunderstanding intentionandbehaviourunderstanding",
    "Affect recognition": "affectrecognition affect ar",
    "Temporal": "temporal temporalreasoning t",
    "Theory of mind": "theoryofmind tom perspectivetaking perspectivetakingtheoryofmind "
    "theoryofmindperspectivetaking",
    "Social judgment": "socialjudgment socialjudgement sj",
    "Working memory": "workingmemory wm",
}
_BY_SPELLING = {word: name for name, words in _SPELLINGS.items() for word in words.split()}

# Longer than any video; guards against seconds that are really milliseconds.
LONGEST = 24 * 3600.0
# Characters of two times; the pattern between them takes the square of a text's length.
_WIDEST = 100

_CLOCK = r"(?:[0-9]{1,2}:[0-5]?[0-9]|[0-9]{1,3}):[0-5][0-9](?:\.[0-9]{1,6})?"
_SECONDS = r"[0-9]{1,9}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?"
_TIME = re.compile(rf"(?:({_CLOCK})|({_SECONDS})\s*(?:s|sec|secs|seconds)?)\Z", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*[,;–—]\s*|\s+to\s+|(?<![eE])\s*-\s*")
_IN_PROSE = re.compile(
    rf"(?<![0-9:.])(?:(?P<first>{_CLOCK})\s*(?:-|–|—|to|until|till|through)\s*(?P<last>{_CLOCK})"
    rf"|\bbetween\s+(?P<from>{_CLOCK})\s+and\s+(?P<until>{_CLOCK}))(?![0-9:])",
    re.IGNORECASE,
)


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions of a folder, in the order of its CSV.

    Raises:
        BenchmarkError: there is no CSV, or it is not clear which one.
        RecordError: a file is malformed; names file, line and column.
    """
    path = _table(folder)
    rows = rows_of(read_bytes(path), str(path))
    return items_of(rows, str(path), _titles(path.parent), _videos(folder))


def rows_of(data: bytes, where: str) -> list[Mapping[str, Field]]:
    """All rows of a file with a header; ``where`` names it in errors.

    Column names are lower-cased, and ``_``, ``-`` and spaces in them are the same.
    """
    told = csv_rows(data, where)
    records = [cells for cells in told if any(cell.value.strip() for cell in cells)]
    if not records:
        raise RecordError(f"{where}: is empty; a header is needed in line 1")
    names = [re.sub(r"[\s_-]+", " ", cell.value).strip().lower() for cell in records.pop(0)]
    rows: list[Mapping[str, Field]] = []
    for record in records:
        if any(cell.value.strip() for cell in record[len(names) :]):
            raise RecordError(
                f"{record[len(names)].where}: column {len(names) + 1} is one more than the "
                f"header's {len(names)}; is a comma not quoted?"
            )
        # A short row ends in empty cells.
        record += [replace(record[0], value="")] * (len(names) - len(record))
        row: dict[str, Field] = {}
        for name, cell in zip(names, record, strict=False):
            # Of columns with one name the first counts; pandas renames the others.
            row.setdefault(name, replace(cell, path=name))
        rows.append(row)
    return rows


def items_of(
    rows: list[Mapping[str, Field]],
    where: str,
    titles: Mapping[str, str] | None = None,
    videos: Mapping[str, Path] | None = None,
) -> list[BenchmarkItem]:
    """Items of the rows of a file, with titles and paths of videos by name without suffix."""
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
    text = needed(cells["category"])
    category = category_of(text)
    if category is None:
        cells["category"].fail(f"must be one of {', '.join(CATEGORIES)}, is {text[:60]!r}")
    question = needed(cells["question"])
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
    text = needed(cell).removeprefix(f"{VIDEOS}/")
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
    names = ", ".join(path.name for path in found[:5])
    there = f"several CSV files ({names})" if found else "no CSV file"
    raise BenchmarkError(f"{folder}: has {there}; the questions should be in {TABLES[0]}")


def _titles(folder: Path) -> dict[str, str]:
    """Titles by video, where the release has them."""
    path = folder / TITLES
    if not path.is_file():
        return {}
    with reading(path, RecordError):
        whole = json.loads(path.read_bytes().decode("utf-8-sig"))
    titles = Field(whole, str(path)).entries()
    return {_stem(name): title.text().strip() for name, title in titles.items()}


def _videos(folder: Path) -> dict[str, Path]:
    """Videos on this machine; of one in several formats the first of ``SUFFIXES``."""
    files = (folder / VIDEOS).glob("*")
    there = sorted(path for path in files if path.suffix.lower() in SUFFIXES)
    there.sort(key=lambda path: SUFFIXES.index(path.suffix.lower()), reverse=True)
    return {path.stem: path for path in there}


def category_of(text: str) -> str | None:
    """The category that a file means; None for none of them.

    Case, spaces, punctuation and the level before it ("Scene-Level: Temporal") do not matter.
    """
    letters = re.sub(r"[^a-z]", "", text.lower())
    level = "(?:(?:scene|global|grounding)level|scene|global)(?=.)"
    return _BY_SPELLING.get(re.sub(f"^{level}", "", letters))


def read_time(text: str) -> float | None:
    """Seconds from ``m:ss``, ``mm:ss``, ``h:mm:ss`` or plain seconds, each with decimals or not.

    None if it is none of these, or no time within a day.
    """
    match = _TIME.match(text.strip())
    if match is None:
        return None
    seconds = 0.0
    for part in (match[1] or match[2]).split(":"):
        seconds = 60 * seconds + float(part)
    return seconds if seconds <= LONGEST else None


def read_range(text: str) -> tuple[float, float] | None:
    """Two times, such as ``(12.5, 30.0)``, ``1:02-1:30`` or ``0:05 to 0:09``, in seconds.

    None if there are not two, or the second is before the first.
    """
    inner = text.strip()
    if len(inner) > _WIDEST:
        return None
    if inner[:1] in ("(", "["):
        if inner[-1:] != {"(": ")", "[": "]"}[inner[0]]:
            return None
        inner = inner[1:-1].strip()
    parts = [read_time(part) for part in _BETWEEN.split(inner)]
    if len(parts) != 2 or parts[0] is None or parts[1] is None or parts[1] < parts[0]:
        return None
    return parts[0], parts[1]


def range_in(prose: str) -> tuple[float, float] | None:
    """The first range of clock times that a sentence names; a single time is none."""
    for match in _IN_PROSE.finditer(prose):
        first, last = match["first"] or match["from"], match["last"] or match["until"]
        start, end = read_time(first), read_time(last)
        if start is not None and end is not None and start < end:
            return start, end
    return None


def clock(seconds: float) -> str:
    """``m:ss``, from an hour on ``h:mm:ss``; tenths are written where there are any."""
    whole, tenth = divmod(round(10 * seconds), 10)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    written = f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
    return f"{written}.{tenth}" if tenth else written


# VL and L in the paper's table 1 are `video` and `none`: nothing is said in a mime's video, so the
# question is all the text there is. Films have titles, however, and table 4 shows what they add:
# that is `multimodal`. Without titles it is the same as `video`.
MIMEQA = Benchmark(
    name=NAME,
    load=load,
    views={"multimodal": ("scene",), "video": (), "text": ("scene",), "none": ()},
    default_view="video",
    # As GPT-4o is shown the videos: a frame a second, at most 64.
    sampling=Sampling(rate=1, most=64),
    breakdowns=("category", "level"),
    layout=(
        f"{TABLES[0]} with the columns file, question, question type, timestamp and "
        f"reference_answer, the videos in {VIDEOS}/, and {TITLES} if there are titles"
    ),
    windows=("full", "focused"),
    notes={
        "": (
            "The film is a mime's: objects and acts are only hinted at by gestures. Speak of them "
            "as if they were really there. Say why in a few words, and do not go through the "
            "frames one by one."
        ),
        "text": "The question is about a mime's film, in which objects are hinted at by gestures.",
    },
    # Appendix B.4, where frames are sampled.
    frame_times=True,
    open_ended=True,
)
