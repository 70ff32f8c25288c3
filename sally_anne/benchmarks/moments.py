"""MoMentS: questions on mental states in short videos (EMNLP 2025).

Holds: the loader of the official release, and the benchmark's own protocol.
Must not know: models, prompts' chat layout or scores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sally_anne.benchmarks.fields import Field, read_json
from sally_anne.benchmarks.items import Benchmark, BenchmarkItem, Context, Media, Option, Sampling
from sally_anne.benchmarks.transcripts import SUFFIXES, Utterance, read_transcript, within
from sally_anne.core.errors import BenchmarkError, RecordError

# In order of preference where one video has several files.
VIDEOS = (".mp4", ".mkv", ".webm", ".mov", ".avi")
_BRACKETS = re.compile(r"\[([^\[\]]+)\]$")


def video_id(url: str) -> str | None:
    """The id of the video at an address of YouTube, Vimeo or Dailymotion; None for others.

    ``watch?v=ID``, ``youtu.be/ID``, ``vimeo.com/ID``, ``vimeo.com/ID/HASH``, ``/video/ID``.

    Raises:
        ValueError: not an address at all.
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

    A file belongs to a video if its name without ending is the video's id, or ends in the id in
    brackets (``Title [ID].mp4``), or is the title of the video, whatever its case, blanks and
    punctuation. Of several the id in the question's own address goes before those of its
    alternatives, these before the title, and endings in the order of ``suffixes``.

    Args:
        folder: it may be missing.
        suffixes: endings of the files that count, in order of preference.

    Raises:
        BenchmarkError: the folder cannot be listed.
    """

    def __init__(self, folder: Path, suffixes: Sequence[str]) -> None:
        self._ids: dict[str, list[Path]] = {}
        self._titles: dict[str, list[Path]] = {}
        self._order = {suffix: place for place, suffix in enumerate(suffixes)}
        if not folder.is_dir():
            return
        try:
            files = sorted(p for p in folder.iterdir() if p.suffix.lower() in self._order)
        except OSError as error:
            raise BenchmarkError(f"{folder}: cannot be listed ({error.strerror})") from error
        for path in files:
            self._ids.setdefault(path.stem, []).append(path)
            if match := _BRACKETS.search(path.stem):
                self._ids.setdefault(match[1], []).append(path)
            self._titles.setdefault(_plain(path.stem), []).append(path)

    def find(self, urls: Sequence[str], title: str) -> Path | None:
        """The file of a video; None if there is none.

        Args:
            urls: the question's own address, then its alternatives.
            title: of the video.

        Raises:
            BenchmarkError: two files are meant alike; names both.
        """
        shelves = [self._ids.get(found, []) for url in urls if (found := video_id(url))]
        shelves.append(self._titles.get(_plain(title), []) if _plain(title) else [])
        files = next((files for files in shelves if files), [])
        ranked = sorted(files, key=self._rank)
        if len(ranked) > 1 and self._rank(ranked[0]) == self._rank(ranked[1]):
            raise BenchmarkError(
                f"{ranked[0]} and {ranked[1].name} are both of the video {title!r}; keep one"
            )
        return ranked[0] if ranked else None

    def _rank(self, path: Path) -> int:
        return self._order[path.suffix.lower()]


def _plain(title: str) -> str:
    return "".join(letter for letter in title.casefold() if letter.isalnum())


NAME = "moments"
LICENCE = "CC BY-NC-SA 4.0"
LABELS = ("A", "B", "C", "D")
# As the release spells them; table 1 of the paper defines them.
ABILITIES = (
    "Knowledge",
    "Emotions",
    "Desires",
    "Beliefs",
    "Intentions",
    "Percepts",
    "Non-literal communication",
)
# Section 3.3.
CUES = ("Face Expression and Gaze", "Body Language", "Speech-related")
# What the release, its card and the paper write for them, in letters alone.
_SPELLINGS = {
    **{re.sub("[^a-z]", "", name.casefold()): name for name in (*ABILITIES, *CUES)},
    "nonliteralcommunicationnlc": "Non-literal communication",
    "nlc": "Non-literal communication",
    "facialexpressionsorgaze": "Face Expression and Gaze",
    "facialexpressionsandgaze": "Face Expression and Gaze",
    "facialexpressionandgaze": "Face Expression and Gaze",
}
# In a window in which nobody speaks; an empty transcript is one that is not there.
SILENCE = "(no speech)"
LAYOUT = (
    "moments_<split>_questions.json and moments_<split>_keys.json, here or in the split's own "
    "folder (data/validation/ as released), videos/ with videos and transcripts/ with .json, .srt "
    "or .vtt files, both named after the id in video_url or after movie_title"
)
_PLACES = ("", "*/", "data/*/")
_QUESTIONS = re.compile(r"moments_(.+)_questions\.json")


class Library:
    """The videos and transcripts of a folder.

    Args:
        folder: with ``videos/`` and ``transcripts/``, or neither.
    """

    def __init__(self, folder: Path) -> None:
        self._videos = Shelf(folder / "videos", VIDEOS)
        self._transcripts = Shelf(folder / "transcripts", SUFFIXES)
        self._read = lru_cache(maxsize=None)(read_transcript)

    def video(self, urls: list[str], title: str) -> Path | None:
        """A video's file, see :class:`Shelf`."""
        return self._videos.find(urls, title)

    def transcript(self, urls: list[str], title: str) -> tuple[Utterance, ...] | None:
        """What is said in a video; None if that is not here."""
        path = self._transcripts.find(urls, title)
        return None if path is None else self._read(path)


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions of all splits found, in the files' order.

    Args:
        folder: see :data:`LAYOUT`. Videos and transcripts that are not there are left out.

    Raises:
        RecordError: no questions, a malformed file or record, or a question or key twice; names
            file, record and field.
        BenchmarkError: two files are meant alike for one video.
    """
    folder = Path(folder)
    found = {p for place in _PLACES for p in folder.glob(f"{place}moments_*_questions.json")}
    if not found:
        raise RecordError(
            f"{folder}: holds no moments_<split>_questions.json; it must hold {LAYOUT}"
        )
    library = Library(folder)
    seen: dict[str, Path] = {}
    items: list[BenchmarkItem] = []
    for path in sorted(found):
        for item in _split(path, library):
            if item.item_id in seen:
                raise RecordError(
                    f"{path}: question_id {item.item_id!r} is in {seen[item.item_id]}, too"
                )
            seen[item.item_id] = path
            items.append(item)
    return items


def _split(path: Path, library: Library) -> list[BenchmarkItem]:
    match = _QUESTIONS.fullmatch(path.name)
    assert match is not None
    split = match[1]
    keys_path = path.with_name(f"moments_{split}_keys.json")
    keys = read_keys(read_json(keys_path), str(keys_path)) if keys_path.exists() else {}
    items = read_questions(read_json(path), str(path), split, keys, library)
    if unknown := set(keys) - {item.item_id for item in items}:
        raise RecordError(
            f"{keys_path}: field question_id: {min(unknown)!r} is the key of no question in {path}"
        )
    return items


def read_questions(
    value: Any,
    where: str,
    split: str,
    keys: Mapping[str, str],
    library: Library | None = None,
) -> list[BenchmarkItem]:
    """The questions of one split.

    Args:
        value: of the JSON file.
        where: the file.
        split: its name.
        keys: right labels by question; those that are not in it are hidden.
        library: videos and transcripts.

    Raises:
        RecordError: names file, record and field.
    """
    records = _records(value, where)
    if not records:
        raise RecordError(f"{where}: has no questions")
    return [
        read_question(record, split, keys.get(name), library) for name, record in records.items()
    ]


def read_keys(value: Any, where: str) -> dict[str, str]:
    """Right labels by question.

    Raises:
        RecordError: names file, record and field.
    """
    return {
        name: record.get("correct_answer_key").one_of(LABELS)
        for name, record in _records(value, where).items()
    }


def _records(value: Any, where: str) -> dict[str, Field]:
    """Records by ``question_id``, each of which is there once."""
    found: dict[str, Field] = {}
    for number, entry in enumerate(Field(value, where).items(), start=1):
        record = Field(entry.value, f"{where}, record {number}")
        name = record.get("question_id").encodable()
        record = Field(entry.value, f"{where}, record {number} ({name})")
        if name in found:
            record.get("question_id").fail(f"is that of {found[name].where.split(', ')[-1]}, too")
        found[name] = record
    return found


def read_question(
    record: Field, split: str, answer: str | None, library: Library | None = None
) -> BenchmarkItem:
    """One question with what is known of its video.

    Raises:
        RecordError: names file, record and field.
    """
    options = record.get("options").entries()
    if set(options) != set(LABELS):
        record.get("options").fail(f"must have {', '.join(LABELS)}, has {', '.join(options)[:60]}")
    title = record.get("movie_title").encodable()
    urls = [_address(record.get("video_url"))]
    if record.has("video_url_alternatives"):
        urls += [_address(url) for url in record.get("video_url_alternatives").items()]
    # A t_j beyond the video's length, which one record has, stays as it is.
    start, focus, end = (record.get(name).seconds() for name in ("t_0", "t_i", "t_j"))
    if focus < start:
        record.get("t_i").fail(f"is before t_0, {focus:g} < {start:g} s")
    if end <= focus:
        record.get("t_j").fail(f"must be after t_i, {end:g} <= {focus:g} s")
    length = record.get("video_length").seconds()
    if length == 0:
        record.get("video_length").fail("must be more than 0 s")
    abilities = record.get("assigned_categories").items()
    if not abilities:
        record.get("assigned_categories").fail("must name an ability")
    # Some records have none, null or an empty list.
    cues = record.get("multimodal_cues").items() if record.has("multimodal_cues") else []
    tags = {
        "ability": tuple(dict.fromkeys(read_ability(field) for field in abilities)),
        "cue": tuple(dict.fromkeys(read_cue(field) for field in cues)),
    }
    said = library.transcript(urls, title) if library else None
    return BenchmarkItem(
        item_id=record.get("question_id").encodable(),
        benchmark=NAME,
        split=split,
        group=title,
        question=record.get("question").encodable(),
        options=tuple(Option(label, text.encodable()) for label, text in options.items()),
        answer=answer,
        media=(
            Media(
                path=library.video(urls, title) if library else None,
                url=urls[0],
                alternatives=tuple(urls[1:]),
                start=start,
                end=end,
                focus=focus,
                length=length,
            ),
        ),
        context=Context(
            transcript=_within(said, start, end), focused_transcript=_within(said, focus, end)
        ),
        tags={kind: values for kind, values in tags.items() if values},
        licence=LICENCE,
    )


def _within(said: tuple[Utterance, ...] | None, start: float, end: float) -> str:
    return "" if said is None else within(said, start, end) or SILENCE


def _address(field: Field) -> str:
    url = field.encodable()
    try:
        video_id(url)
    except ValueError as error:
        field.fail(f"must be an address ({error})")
    if not url.startswith(("https://", "http://")):
        field.fail(f"must be an address that begins with https://, is {url[:60]!r}")
    return url


def read_ability(field: Field) -> str:
    """An ability as in :data:`ABILITIES`; RecordError for an unknown one."""
    return _spelt(field, ABILITIES)


def read_cue(field: Field) -> str:
    """A cue as in :data:`CUES`; RecordError for an unknown one."""
    return _spelt(field, CUES)


def _spelt(field: Field, names: tuple[str, ...]) -> str:
    text = field.value.casefold().replace("&", "and") if isinstance(field.value, str) else ""
    found = _SPELLINGS.get(re.sub("[^a-z]", "", text))
    return found if found in names else field.one_of(names)


# The paper tells models that the question refers to t_j (section 3.3).
_END = "The question is about the moment at the end of this"

MOMENTS = Benchmark(
    name=NAME,
    load=load,
    views={
        "multimodal": ("transcript",),
        "video": (),
        "text": ("transcript",),
        "none": (),
    },
    default_view="multimodal",
    # Section 5.1: 64 frames, spread evenly.
    sampling=Sampling(count=64),
    breakdowns=("ability", "cue"),
    layout=LAYOUT,
    windows=("full", "focused"),
    notes={
        "multimodal": f"{_END} part of the film.",
        "video": f"{_END} part of the film.",
        "text": f"{_END} transcript.",
    },
    # The keys of the test split are not public.
    default_split="validation",
)
