"""MimeQA (Li et al., 2025): open questions about videos of mime, which is acted without words.

The columns of its CSV are those that the released code reads; ``answer_1`` and ``answer_2`` of two
annotators may stand for ``reference_answer``. Titles are by file name.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sally_anne.data import items
from sally_anne.data.items import Benchmark, Context, Media, Question, tags_of
from sally_anne.data.read import Field, csv_rows, find_files, read_bytes, read_json, some

NAME = "mimeqa"
TABLE, TITLES, FOLDER = "annotation_final.csv", "file_mapping.json", "videos"
LAYOUT = (
    f"{TABLE} with the columns file, question, question type, timestamp and reference_answer, the "
    f"videos in {FOLDER}/, and {TITLES} if there are titles"
)
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
_SPELLINGS = {
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
    """All questions of a folder, in the order of its CSV; RecordError names file, line, column."""
    path = find_files(folder, (TABLE,), LAYOUT)[0]
    titles = read_json(folder / TITLES).entries() if (folder / TITLES).is_file() else {}
    named = {_stem(name): title.stripped() for name, title in titles.items()}
    return items_of(rows_of(read_bytes(path), str(path)), named, items.videos_in(folder / FOLDER))


def rows_of(data: bytes, where: str) -> list[Field]:
    """All rows, texts by column, whose names may differ in case, ``_``, ``-`` and spaces."""
    rows = [row for row in csv_rows(data, where) if any(map(str.strip, row.value))]
    header = some(rows, where, "header")[0].value
    names = [re.sub(r"[\s_-]+", " ", name).strip().lower() for name in header]
    for row in rows[1:]:
        if any(map(str.strip, row.value[len(names) :])):
            row.fail(f"has more columns than the header's {len(names)}; is a comma not quoted?")
    # A short row ends in empty cells; pandas writes nan for one.
    return [
        replace(row, value={n: t for n, t in zip(names, row.value, strict=False) if t != "nan"})
        for row in rows[1:]
    ]


def items_of(
    rows: Sequence[Field], titles: Mapping[str, str] = {}, videos: Mapping[str, Path] = {}
) -> list[Question]:
    """Items of the rows of a file, with titles and paths of videos by name without suffix."""
    questions: list[Question] = []
    counts: Counter[str] = Counter()
    for row in rows:
        cells = defaultdict(str, {name: cell.strip() for name, cell in row.value.items()})
        video = _stem(row.get("file").stripped().removeprefix(f"{FOLDER}/"))
        title = titles.get(video, "")
        category = row.get("question type").spelt(CATEGORIES, _SPELLINGS)
        question = official = row.get("question").stripped()
        focus, end = 0.0, None
        # Global questions are about the whole video, whatever the other column holds.
        if LEVELS[category] != "global" and cells["timestamp"]:
            if (span := read_range(cells["timestamp"])) is None:
                given = f"is {cells['timestamp'][:60]!r}"
                row.get("timestamp").fail(f"{given}, not two times in seconds as (12.5, 30.0)")
            first, last = map(clock, span)
            when = f"At {first}" if first == last else f"From {first} to {last}"
            official = f"From timestamp {in_minutes(span[0])} to {in_minutes(span[1])}, {question}"
            question = f"{when} of the film: {question}"
            # A moment alone has no length that could be shown: then the whole video is.
            focus, end = span if span[0] < span[1] else (0.0, None)
        answers = [cells[name] for name in ("reference answer", "answer 1", "answer 2")]
        questions.append(
            Question(
                item_id=f"{video}/{counts[video]}",
                benchmark=NAME,
                split="test",
                group=video,
                question=question,
                reference=" Or: ".join(dict.fromkeys(filter(None, answers))) or None,
                media=(Media(path=videos.get(video), focus=focus, focus_end=end),),
                # The prompt's words, with which results were measured.
                context=Context(scene=f"The film is called: {title}" if title else ""),
                tags=tags_of(category=category, level=LEVELS[category]),
                title=title,
                asked=official,
            )
        )
        counts[video] += 1
    return questions


def _stem(name: str) -> str:
    """A file's name without the ending of a video."""
    stem, ending = os.path.splitext(name)
    return stem if ending.lower() in items.VIDEOS else name


def read_range(text: str) -> tuple[float, float] | None:
    """The two times of ``(12.5, 30.0)`` or ``[12.5, 30.0]``, in seconds, if within a day."""
    try:
        start, end = map(float, text.strip("()[]").split(","))
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
    views=items.film_views("scene"),
    default_view="video",
    # As GPT-4o is shown the videos: a frame a second, at most 64.
    sampling=items.Sampling(rate=1, most=64),
    breakdowns=("category", "level"),
    layout=LAYOUT,
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
