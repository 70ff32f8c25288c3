"""MoMentS: questions on mental states in short videos (EMNLP 2025)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sally_anne.core.errors import BenchmarkError, RecordError
from sally_anne.data import items
from sally_anne.data.items import Benchmark, Context, Media, Option, Question, tags_of
from sally_anne.data.read import Field, read_json, some
from sally_anne.data.transcripts import SUFFIXES, read_transcript, within

_BRACKETS = re.compile(r"\[([^\[\]]+)\]$")


def finder(folder: Path, suffixes: Sequence[str]) -> Callable[[Sequence[str]], Path | None]:
    """Finds the files of a folder by the addresses of a video, the first of these first.

    A file belongs to a video if its name without ending is the video's id, or ends in the id in
    brackets (``Title [ID].mp4``). An id is a step of the video's address, or its ``v=``.
    """
    files: defaultdict[str, list[tuple[int, Path]]] = defaultdict(list)
    for path in sorted(p for p in folder.glob("*") if p.suffix.lower() in suffixes):
        match = _BRACKETS.search(path.stem)
        rank = suffixes.index(path.suffix.lower())
        files[match[1] if match else path.stem].append((rank, path))

    def find(urls: Sequence[str]) -> Path | None:
        steps = [step for url in urls for step in _steps(url)]
        ranked = sorted(next((files[step] for step in steps if step in files), []))
        if len(ranked) > 1 and ranked[0][0] == ranked[1][0]:
            raise BenchmarkError(
                f"{ranked[0][1]} and {ranked[1][1].name} are both of {urls[0]}; keep one"
            )
        return ranked[0][1] if ranked else None

    return find


def _steps(url: str) -> list[str]:
    """What may be a video's id in its address; ValueError if it is no address at all."""
    parts = urlsplit(url)
    return [*parse_qs(parts.query).get("v", []), *filter(None, parts.path.split("/"))]


NAME = "moments"
LABELS = ("A", "B", "C", "D")
# As the release spells them; table 1 of the paper defines them.
ABILITIES = (
    *("Knowledge", "Emotions", "Desires", "Beliefs", "Intentions", "Percepts"),
    "Non-literal communication",
)
# Section 3.3.
CUES = ("Face Expression and Gaze", "Body Language", "Speech-related")
# What else the release, its card and the paper write for them, in letters alone.
_SPELLINGS = {
    "nonliteralcommunicationnlc": "Non-literal communication",
    "nlc": "Non-literal communication",
    "facialexpressionsorgaze": "Face Expression and Gaze",
    "facialexpressionsandgaze": "Face Expression and Gaze",
    "facialexpressionandgaze": "Face Expression and Gaze",
}
# The transcript of a window without speech; an empty one is a transcript that is not there.
SILENCE = "(no speech)"
LAYOUT = (
    "moments_<split>_questions.json and moments_<split>_keys.json, here or in the split's own "
    "folder (data/validation/ as released); videos/ with videos and transcripts/ with .json, .srt "
    "or .vtt files, both named after the id in video_url"
)


def load(folder: Path) -> list[Question]:
    """All questions of all splits in a folder, with the videos and transcripts that are there."""
    places = ("", "*/", "data/*/")
    files = {p for place in places for p in folder.glob(f"{place}moments_*_questions.json")}
    if not files:
        raise RecordError(f"{folder}: holds no questions of MoMentS; it must hold {LAYOUT}")
    video = finder(folder / "videos", items.VIDEOS)
    transcript = finder(folder / "transcripts", SUFFIXES)
    read = cache(read_transcript)
    questions: list[Question] = []
    for path in sorted(files):
        keys_path = path.with_name(path.name.replace("_questions", "_keys"))
        given = read_json(keys_path).items() if keys_path.exists() else ()
        keys = {
            r.get("question_id").text(): r.get("correct_answer_key").one_of(LABELS) for r in given
        }
        split = path.name.removeprefix("moments_").removesuffix("_questions.json")
        for record in some(read_json(path).items(), path):
            item, urls = read_question(record, split, keys)
            media, context = replace(item.media[0], path=video(urls)), item.context
            if (found := transcript(urls)) is not None:
                starts = media.start, media.focus or 0.0
                words = (within(read(found), start, media.end) or SILENCE for start in starts)
                context = Context("", "", "", *words)
            questions.append(replace(item, media=(media,), context=context))
    names = Counter(item.item_id for item in questions)
    if twice := [name for name, count in names.items() if count > 1]:
        raise RecordError(f"{folder}: question_id {twice[0]!r} is there twice")
    return questions


def read_question(record: Field, split: str, keys: Mapping[str, str]) -> tuple[Question, list[str]]:
    """One record without film and words, and the film's addresses; without a key it is hidden."""
    options = record.get("options")
    if set(options.entries()) != set(LABELS):
        options.fail(f"must have {', '.join(LABELS)}, has {', '.join(options.value)[:60]}")
    title, name = record.get("movie_title").text(), record.get("question_id").text()
    others = record.opt("video_url_alternatives", Field.items) or []
    urls = []
    for url in (record.get("video_url"), *others):
        try:
            _steps(url.text())
        except ValueError as error:
            url.fail(f"must be an address ({error})")
        urls.append(url.text())
    # A t_j beyond the video's length, which one record has, stays as it is.
    start, focus, end = (record.get(name).seconds() for name in ("t_0", "t_i", "t_j"))
    # Some records have no cues, null or an empty list.
    cues = record.opt("multimodal_cues", Field.items) or []
    abilities = record.get("assigned_categories").items()
    item = Question(
        item_id=name,
        benchmark=NAME,
        split=split,
        group=title,
        title=title,
        question=record.get("question").text(),
        options=tuple(Option(label, text.text()) for label, text in options.entries().items()),
        answer=keys.get(name),
        media=(Media(url=urls[0], start=start, end=end, focus=focus),),
        tags=tags_of(
            ability=[ability.spelt(ABILITIES, _SPELLINGS) for ability in abilities],
            cue=[cue.spelt(CUES, _SPELLINGS) for cue in cues],
        ),
    )
    return item, urls


# The paper tells models that the question refers to t_j (section 3.3).
_END = "The question is about the moment at the end of this"

MOMENTS = Benchmark(
    name=NAME,
    load=load,
    views=items.film_views("transcript"),
    default_view="multimodal",
    # Section 5.1: 64 frames, spread evenly.
    sampling=items.Sampling(count=64),
    breakdowns=("ability", "cue"),
    layout=LAYOUT,
    windows=("full", "focused"),
    notes={
        "multimodal": f"{_END} part of the film.",
        "video": f"{_END} part of the film.",
        "audio": f"{_END} part of the film, of which you hear the sound.",
        "audiovisual": f"{_END} part of the film, which you see and hear.",
        "text": f"{_END} transcript.",
    },
    # The keys of the test split are not public.
    default_split="validation",
    submission=True,
)
