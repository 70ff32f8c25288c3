"""MoMentS: questions on mental states in short videos (EMNLP 2025)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sally_anne.core.errors import BenchmarkError, RecordError
from sally_anne.data.items import Benchmark, Context, Media, Option, Question, Sampling
from sally_anne.data.read import Field, read_json
from sally_anne.data.transcripts import SUFFIXES, Utterance, read_transcript, within

# In order of preference where one video has several files.
VIDEOS = (".mp4", ".mkv", ".webm", ".mov", ".avi")
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
        try:
            files = sorted(p for p in folder.iterdir() if p.suffix.lower() in self._order)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise BenchmarkError(f"{folder}: cannot be listed ({error.strerror})") from error
        for path in files:
            match = _BRACKETS.search(path.stem)
            ids = {f"id {path.stem}", *([f"id {match[1]}"] if match else [])}
            for key in (*ids, f"title {_plain(path.stem)}"):
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
LICENCE = "CC BY-NC-SA 4.0"
LABELS = ("A", "B", "C", "D")
# As the release spells them; table 1 of the paper defines them.
ABILITIES = (
    *("Knowledge", "Emotions", "Desires", "Beliefs", "Intentions", "Percepts"),
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
# The transcript of a window without speech; an empty one is a transcript that is not there.
SILENCE = "(no speech)"
# The first release, in one file: all questions, which later were parted into splits.
WHOLE = "moments_questions.json"
# Split of those of its questions that no split's file has.
UNSPLIT = "unsplit"
LAYOUT = (
    "moments_<split>_questions.json and moments_<split>_keys.json, here or in the split's own "
    f"folder (data/validation/ as released), or {WHOLE}, the release before it was split; videos/ "
    "with videos and transcripts/ with .json, .srt or .vtt files, both named after the id in "
    "video_url or after movie_title"
)
_PLACES = ("", "*/", "data/*/")


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

    Of the first release's one file (:data:`WHOLE`) come, after these, the questions that no split
    has; their split is :data:`UNSPLIT`. Videos and transcripts that are not there are left out.

    Raises:
        RecordError: no questions, a malformed file or record, a question or key twice, or a
            question that the first release words differently; names file, record and field.
        BenchmarkError: two files are of one video.
    """
    folder = Path(folder)
    found = {p for place in _PLACES for p in folder.glob(f"{place}moments_*_questions.json")}
    whole = {p for place in _PLACES for p in folder.glob(f"{place}{WHOLE}")}
    if not found and not whole:
        raise RecordError(f"{folder}: holds no questions of MoMentS; it must hold {LAYOUT}")
    find = _finder(folder)
    items: dict[str, Question] = {}
    seen: dict[str, Path] = {}
    for path in [*sorted(found), *sorted(whole)]:
        named = path.name.removeprefix("moments_").removesuffix("questions.json").rstrip("_")
        keys_path = path.with_name(path.name.replace("_questions", "_keys"))
        keys = read_keys(read_json(keys_path), str(keys_path)) if keys_path.exists() else {}
        for item in read_questions(read_json(path), str(path), named or UNSPLIT, keys, find):
            keys.pop(item.item_id, None)
            if (there := items.get(item.item_id)) is None:
                items[item.item_id], seen[item.item_id] = item, path
                continue
            if path.name != WHOLE or seen[item.item_id].name == WHOLE:
                raise RecordError(
                    f"{path}: question_id {item.item_id!r} is in {seen[item.item_id]}, too"
                )
            if (there.question, there.options) != (item.question, item.options):
                raise RecordError(
                    f"{path}: question {item.item_id!r} has other words in {seen[item.item_id]}; "
                    "keep one of the files"
                )
        if keys:
            raise RecordError(
                f"{keys_path}: field question_id: {min(keys)!r} is the key of no question in {path}"
            )
    return list(items.values())


def read_questions(
    value: Any,
    where: str,
    split: str,
    keys: Mapping[str, str],
    find: Find = lambda urls, title: (None, None),
) -> list[Question]:
    """The questions in the value of one split's JSON file; those without a key are hidden."""
    records = _records(value, where)
    if not records:
        raise RecordError(f"{where}: has no questions")
    return [_item(record, split, keys.get(name), find) for name, record in records.items()]


def read_keys(value: Any, where: str) -> dict[str, str]:
    """Right labels by question, in the value of a JSON file."""
    return {
        name: record.get("correct_answer_key").one_of(LABELS)
        for name, record in _records(value, where).items()
    }


def _records(value: Any, where: str) -> dict[str, Field]:
    """Records by ``question_id``, each of which is there once."""
    found: dict[str, Field] = {}
    for number, entry in enumerate(Field(value, where).items(), start=1):
        record = Field(entry.value, f"{where}, record {number}")
        name = record.get("question_id").text()
        record = Field(entry.value, f"{where}, record {number} ({name})")
        if name in found:
            record.get("question_id").fail(f"is that of {found[name].where.split(', ')[-1]}, too")
        found[name] = record
    return found


def _item(record: Field, split: str, answer: str | None, find: Find) -> Question:
    options = record.get("options").entries()
    if set(options) != set(LABELS):
        record.get("options").fail(f"must have {', '.join(LABELS)}, has {', '.join(options)[:60]}")
    title = record.get("movie_title").text()
    others = record.opt("video_url_alternatives", Field.items) or []
    urls = [_address(url) for url in (record.get("video_url"), *others)]
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
    cues = record.opt("multimodal_cues", Field.items) or []
    tags = {
        "ability": tuple(dict.fromkeys(_spelt(field, ABILITIES) for field in abilities)),
        "cue": tuple(dict.fromkeys(_spelt(field, CUES) for field in cues)),
    }
    path, speech = find(urls, title)
    return Question(
        item_id=record.get("question_id").text(),
        benchmark=NAME,
        split=split,
        group=title,
        title=title,
        question=record.get("question").text(),
        options=tuple(Option(label, text.text()) for label, text in options.items()),
        answer=answer,
        media=(
            Media(
                path=path,
                url=urls[0],
                alternatives=tuple(urls[1:]),
                start=start,
                end=end,
                focus=focus,
                length=length,
            ),
        ),
        context=Context(
            transcript=_within(speech, start, end), focused_transcript=_within(speech, focus, end)
        ),
        tags={kind: values for kind, values in tags.items() if values},
        licence=LICENCE,
    )


def _within(speech: tuple[Utterance, ...] | None, start: float, end: float) -> str:
    return "" if speech is None else within(speech, start, end) or SILENCE


def _address(field: Field) -> str:
    url = field.text()
    try:
        video_id(url)
    except ValueError as error:
        field.fail(f"must be an address ({error})")
    if not url.startswith(("https://", "http://")):
        field.fail(f"must be an address that begins with https://, is {url[:60]!r}")
    return url


def _spelt(field: Field, names: tuple[str, ...]) -> str:
    """One of the names, as :data:`ABILITIES` and :data:`CUES` spell it."""
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
        "audio": (),
        "audiovisual": (),
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
        "audio": f"{_END} part of the film, of which you hear the sound.",
        "audiovisual": f"{_END} part of the film, which you see and hear.",
        "text": f"{_END} transcript.",
    },
    # The keys of the test split are not public.
    default_split="validation",
    submission=True,
)
