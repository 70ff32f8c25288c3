"""MimeQA (Li et al., 2025): open questions about videos of mime, which is acted without words.

The columns of its CSV are those that the released code reads: ``file`` (the video's file name),
``question``, ``question type``, ``timestamp`` (two times in seconds, in brackets; empty where the
question is about the whole video) and ``reference_answer``, or ``answer_1`` and ``answer_2`` of two
annotators. Titles are in ``file_mapping.json``, by file name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sally_anne.core.errors import BenchmarkError, RecordError
from sally_anne.data.items import Benchmark, Context, Media, Question, Sampling
from sally_anne.data.read import Field, cell_text, csv_rows, needed, read_bytes, read_json

NAME = "mimeqa"
LICENCE = "CC-BY-NC-SA-4.0"
TABLES = ("annotation_final.csv", "annotations.csv", "annotation.csv", "metadata.csv", "mimeqa.csv")
TITLES = "file_mapping.json"
VIDEOS = "videos"
SUFFIXES = (".mp4", ".webm", ".mkv", ".mov", ".avi", ".m4v")

_NEEDED = ("file", "question", "question type")
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

# The file calls theory of mind perspective taking.
_SPELLINGS = {re.sub("[^a-z]", "", name.lower()): name for name in CATEGORIES} | {
    "grounding": "Grounding the imagined",
    "intentionandbehavior": "Intention",
    "intentionandbehaviorunderstanding": "Intention",
    "affect": "Affect recognition",
    "temporalreasoning": "Temporal",
    "perspectivetaking": "Theory of mind",
    "perspectivetakingtheoryofmind": "Theory of mind",
    "socialjudgement": "Social judgment",
}
# Seconds, longer than any video; guards against those that are really milliseconds.
LONGEST = 24 * 3600.0


def load(folder: Path) -> list[Question]:
    """All questions of a folder, in the order of its CSV.

    Raises:
        BenchmarkError: there is no CSV, or it is not clear which one.
        RecordError: a file is malformed; names file, line and column.
    """
    path = _table(folder)
    titles_path = path.parent / TITLES
    titles = Field(read_json(titles_path) if titles_path.is_file() else {}, str(titles_path))
    by_video = {_stem(name): title.stripped() for name, title in titles.entries().items()}
    # Of a video in several formats the first of SUFFIXES.
    files = [f for f in sorted((folder / VIDEOS).glob("*")) if f.suffix.lower() in SUFFIXES]
    files.sort(key=lambda file: SUFFIXES.index(file.suffix.lower()), reverse=True)
    rows = rows_of(read_bytes(path), str(path))
    return items_of(rows, str(path), by_video, {file.stem: file for file in files})


def rows_of(data: bytes, where: str) -> list[Mapping[str, Field]]:
    """All rows of a file with a header; ``where`` names it in errors.

    Column names are lower-cased, and ``_``, ``-`` and spaces in them are the same.
    """
    records = [
        cells for cells in csv_rows(data, where) if any(cell.value.strip() for cell in cells)
    ]
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
) -> list[Question]:
    """Items of the rows of a file, with titles and paths of videos by name without suffix."""
    if not rows:
        raise RecordError(f"{where}: holds no questions")
    if lacking := [name for name in _NEEDED if name not in rows[0]]:
        raise RecordError(
            f"{where}, line 1: there is no column {lacking[0]!r}; the header has "
            f"{', '.join(rows[0])[:200]}"
        )
    items: list[Question] = []
    counts: Counter[str] = Counter()
    for row in rows:
        file = needed(row["file"]).removeprefix(f"{VIDEOS}/")
        video = _stem(file).strip()
        if not video or video.startswith(".") or len(video) > 200 or _UNFIT.search(video):
            row["file"].fail(f"must be a video's file name, is {file[:60]!r}")
        title = (titles or {}).get(video, "")
        category, question, official, (focus, end) = _question(row)
        answers = [_optional(row, name) for name in ("reference answer", "answer 1", "answer 2")]
        items.append(
            Question(
                item_id=f"{video}/{counts[video]}",
                benchmark=NAME,
                split="test",
                group=video,
                question=question,
                reference=" Or: ".join(dict.fromkeys(a for a in answers if a)) or None,
                media=(Media(path=(videos or {}).get(video), focus=focus, focus_end=end),),
                # The prompt's words, with which results were measured.
                context=Context(scene=f"The film is called: {title}" if title else ""),
                tags={"category": (category,), "level": (LEVELS[category],)},
                licence=LICENCE,
                title=title,
                asked=official,
            )
        )
        counts[video] += 1
    return items


def _question(row: Mapping[str, Field]) -> tuple[str, str, str, tuple[float, float | None]]:
    """Category, wording here and in the authors' code, and the part of the video in question."""
    text = needed(row["question type"])
    category = category_of(text)
    if category is None:
        row["question type"].fail(f"must be one of {', '.join(CATEGORIES)}, is {text[:60]!r}")
    question = official = needed(row["question"])
    times = _optional(row, "timestamp")
    # Global questions are about the whole video, whatever the other column holds.
    if LEVELS[category] == "global" or not times:
        return category, question, official, (0.0, None)
    if (span := read_range(times)) is None:
        row["timestamp"].fail(
            f"must be a start and an end in seconds such as (12.5, 30.0), is {times[:60]!r}"
        )
    first, last = clock(span[0]), clock(span[1])
    when = f"At {first}" if first == last else f"From {first} to {last}"
    question = f"{when} of the film: {question}"
    official = f"From timestamp {in_minutes(span[0])} to {in_minutes(span[1])}, {official}"
    # A moment alone has no length that could be shown: then the whole video is.
    return category, question, official, span if span[0] < span[1] else (0.0, None)


def _optional(row: Mapping[str, Field], name: str) -> str:
    """A cell that may be missing or empty; pandas writes nan for an empty one."""
    text = cell_text(row[name]) if name in row else ""
    return "" if text.lower() == "nan" else text


def _stem(name: str) -> str:
    """A file's name without the ending of a video."""
    suffix = next((s for s in SUFFIXES if name.lower().endswith(s)), "")
    return name[: len(name) - len(suffix)]


def _table(folder: Path) -> Path:
    """The CSV with the questions, in the folder or its ``data``."""
    others: list[Path] = []
    for place in (folder, folder / "data"):
        for name in TABLES:
            if (place / name).is_file():
                return place / name
        others += sorted(place.glob("*.csv"))
    if len(others) == 1:
        return others[0]
    names = ", ".join(path.name for path in others[:5]) or "none"
    raise BenchmarkError(f"{folder}: has CSV files: {names}; the questions must be in {TABLES[0]}")


def category_of(text: str) -> str | None:
    """The category that a file means, whatever its case and punctuation; None for none of them."""
    return _SPELLINGS.get(re.sub("[^a-z]", "", text.lower()))


def read_range(text: str) -> tuple[float, float] | None:
    """The two times of ``(12.5, 30.0)`` or ``[12.5, 30.0]``, in seconds.

    None if there are not two within a day, or the second is before the first.
    """
    if text[:1] + text[-1:] not in ("()", "[]"):
        return None
    try:
        start, end = map(float, text[1:-1].split(","))
    except ValueError:
        return None
    return (start, end) if 0 <= start <= end <= LONGEST else None


def clock(seconds: float) -> str:
    """``m:ss``, from an hour on ``h:mm:ss``; tenths are written where there are any."""
    whole, tenth = divmod(round(10 * seconds), 10)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    written = f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
    return f"{written}.{tenth}" if tenth else written


def in_minutes(seconds: float) -> str:
    """``01 min:2.50 sec``, as the authors write times (model_evaluation/llava_video_eval.py)."""
    return f"{int(seconds // 60):02} min:{seconds % 60:.2f} sec"


# VL and L in the paper's table 1 are `video` and `none`: nothing is said in a mime's video, so the
# question is all the text there is. Films have titles, however, and table 4 shows what they add:
# that is `multimodal`. Without titles it is the same as `video`.
MIMEQA = Benchmark(
    name=NAME,
    load=load,
    views={
        "multimodal": ("scene",),
        "video": (),
        "audio": (),
        "audiovisual": (),
        "text": ("scene",),
        "none": (),
    },
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
        "audio": "The question is about a mime's film, of which you hear the sound.",
        "text": "The question is about a mime's film, in which objects are hinted at by gestures.",
    },
    # Appendix B.4, where frames are sampled.
    frame_times=True,
    open_ended=True,
)
