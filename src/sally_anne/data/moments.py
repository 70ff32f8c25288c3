"""MoMentS: questions on mental states in short videos (EMNLP 2025)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sally_anne.core.errors import BenchmarkError, RecordError
from sally_anne.data.items import (
    VIDEOS,
    Benchmark,
    Context,
    Media,
    Option,
    Question,
    Sampling,
    film_views,
    tags_of,
)
from sally_anne.data.read import Field, read_json, some
from sally_anne.data.transcripts import SUFFIXES, Utterance, read_transcript, within

_BRACKETS = re.compile(r"\[([^\[\]]+)\]$")


def video_id(url: str) -> str | None:
    """The id of the video at an address of YouTube, Vimeo or Dailymotion; None for others.

    ``watch?v=ID``, ``youtu.be/ID``, ``vimeo.com/ID``, ``vimeo.com/ID/HASH``, ``/video/ID``.
    ValueError if it is no address at all.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").removeprefix("www.").removeprefix("m.")
    first, *rest = [step for step in parts.path.split("/") if step] or [""]
    if host == "youtube.com" and first == "watch":
        return parse_qs(parts.query).get("v", [None])[0]
    if host == "youtu.be":
        return first or None
    if host in ("vimeo.com", "player.vimeo.com"):
        return next((step for step in (first, *rest) if re.fullmatch("[0-9]+", step)), None)
    folders = {"youtube.com": ("embed", "shorts", "v"), "dailymotion.com": ("video",)}
    return rest[0] if rest and first in folders.get(host, ()) else None


class Shelf:
    """Files of a folder by video.

    A file belongs to a video if its name without ending is the video's id, ends in the id in
    brackets (``Title [ID].mp4``), or is the video's title but for case, blanks and punctuation. The
    id in the question's own address goes before those of its alternatives, these before the title,
    and endings go in the order of ``suffixes``.
    """

    def __init__(self, folder: Path, suffixes: Sequence[str]) -> None:
        self._files: defaultdict[str, list[Path]] = defaultdict(list)
        self._order = {suffix: place for place, suffix in enumerate(suffixes)}
        for path in sorted(p for p in folder.glob("*") if p.suffix.lower() in self._order):
            match = _BRACKETS.search(path.stem)
            name = f"id {match[1]}" if match else f"id {path.stem}"
            for key in {name, f"id {path.stem}", f"title {_plain(path.stem)}"}:
                self._files[key].append(path)

    def find(self, urls: Sequence[str], title: str) -> Path | None:
        """The file of a video, None if there is none; BenchmarkError if two are as good."""
        keys = [f"id {name}" for url in urls if (name := video_id(url))]
        keys += [f"title {_plain(title)}"] if _plain(title) else []
        files = next((self._files[key] for key in keys if key in self._files), [])
        ranked = sorted((self._order[path.suffix.lower()], path) for path in files)
        if len(ranked) > 1 and ranked[0][0] == ranked[1][0]:
            raise BenchmarkError(
                f"{ranked[0][1]} and {ranked[1][1].name} are both of the video {title!r}; keep one"
            )
        return ranked[0][1] if ranked else None


def _plain(title: str) -> str:
    return "".join(letter for letter in title.casefold() if letter.isalnum())


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
    "or .vtt files, both named after the id in video_url or after movie_title"
)

# The file of a video, by its addresses and title, and its speech; each None if not here.
Find = Callable[[list[str], str], tuple[Path | None, tuple[Utterance, ...] | None]]


def _finder(folder: Path) -> Find:
    videos = Shelf(folder / "videos", VIDEOS)
    transcripts = Shelf(folder / "transcripts", SUFFIXES)
    read = cache(read_transcript)

    def find(urls: list[str], title: str) -> tuple[Path | None, tuple[Utterance, ...] | None]:
        path = transcripts.find(urls, title)
        return videos.find(urls, title), None if path is None else read(path)

    return find


def load(folder: Path) -> list[Question]:
    """All questions of all splits found in a folder, see :data:`LAYOUT`, in the files' order.

    Videos and transcripts that are not there are left out. RecordError names file, record and
    field; BenchmarkError if two files are of one video.
    """
    folder = Path(folder)
    places = ("", "*/", "data/*/")
    files = {p for place in places for p in folder.glob(f"{place}moments_*_questions.json")}
    if not files:
        raise RecordError(f"{folder}: holds no questions of MoMentS; it must hold {LAYOUT}")
    find = _finder(folder)
    items: list[Question] = []
    for path in sorted(files):
        keys_path = path.with_name(path.name.replace("_questions", "_keys"))
        given = read_json(keys_path).items() if keys_path.exists() else ()
        keys = {
            r.get("question_id").text(): r.get("correct_answer_key").one_of(LABELS) for r in given
        }
        split = path.name.removeprefix("moments_").removesuffix("_questions.json")
        items += read_questions(read_json(path), split, keys, find)
    if twice := [i for i, count in Counter(item.item_id for item in items).items() if count > 1]:
        raise RecordError(f"{folder}: question_id {twice[0]!r} is there twice")
    return items


def read_questions(
    value: Field, split: str, keys: Mapping[str, str], find: Find = lambda urls, title: (None, None)
) -> list[Question]:
    """The questions in one split's JSON file; those without a key are hidden."""
    records = some(value.items(), value.where)
    return [_item(r, split, keys.get(r.get("question_id").text()), find) for r in records]


def _item(record: Field, split: str, answer: str | None, find: Find) -> Question:
    options = record.get("options")
    if set(options.entries()) != set(LABELS):
        options.fail(f"must have {', '.join(LABELS)}, has {', '.join(options.value)[:60]}")
    title = record.get("movie_title").text()
    others = record.opt("video_url_alternatives", Field.items) or []
    addresses = [record.get("video_url"), *others]
    urls = [url.text() for url in addresses]
    for url in addresses:
        try:
            video_id(url.text())
        except ValueError as error:
            url.fail(f"must be an address ({error})")
    # A t_j beyond the video's length, which one record has, stays as it is.
    start, focus, end = (record.get(name).seconds() for name in ("t_0", "t_i", "t_j"))
    abilities = record.get("assigned_categories").items()
    # Some records have no cues, null or an empty list.
    cues = record.opt("multimodal_cues", Field.items) or []
    path, speech = find(urls, title)
    return Question(
        item_id=record.get("question_id").text(),
        benchmark=NAME,
        split=split,
        group=title,
        title=title,
        question=record.get("question").text(),
        options=tuple(Option(label, text.text()) for label, text in options.entries().items()),
        answer=answer,
        media=(Media(path=path, url=urls[0], start=start, end=end, focus=focus),),
        context=Context(
            transcript=_within(speech, start, end), focused_transcript=_within(speech, focus, end)
        ),
        tags=tags_of(
            ability=[ability.spelt(ABILITIES, _SPELLINGS) for ability in abilities],
            cue=[cue.spelt(CUES, _SPELLINGS) for cue in cues],
        ),
    )


def _within(speech: tuple[Utterance, ...] | None, start: float, end: float) -> str:
    return "" if speech is None else within(speech, start, end) or SILENCE


# The paper tells models that the question refers to t_j (section 3.3).
_END = "The question is about the moment at the end of this"

MOMENTS = Benchmark(
    name=NAME,
    load=load,
    views=film_views("transcript"),
    default_view="multimodal",
    # Section 5.1: 64 frames, spread evenly.
    sampling=Sampling(count=64),
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
