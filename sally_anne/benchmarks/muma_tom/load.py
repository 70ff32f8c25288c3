"""Reads a folder in the benchmark's layout: questions.json, texts.json and the videos.

A record's ``description`` is the whole narrative, from which the video was rendered: it tells what
the video shows and is used here only to take the talk from and to compare with.
``filtered_description`` is the text of episodes without talk: one person's actions, while the video
shows the other's. ``texts.json`` comes in two kinds. As the benchmark's text it holds the talk
(``Name: words``) or one person's actions; the copy beside the released code holds the whole
narrative instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from sally_anne.benchmarks.fields import Field, read_json
from sally_anne.benchmarks.items import BenchmarkItem, Context, Media
from sally_anne.benchmarks.muma_tom.wording import (
    People,
    answer_label,
    cleaned,
    one_line,
    people,
    take_apart,
)
from sally_anne.core.errors import BenchmarkError, RecordError

NAME = "muma_tom"
QUESTIONS, TEXTS, VIDEOS = "questions.json", "texts.json", ("videos", "Videos")
TYPES = ("belief", "social_goal", "belief_of_goal")
LAYOUT = (
    f"{QUESTIONS}, {TEXTS} and videos/ of the dataset MUMA-TOM-BENCHMARK (videos named 42.mp4 or "
    "video_42.mp4 after their episodes)"
)
# About what is said while people talk.
_TALK = ("belief", "social_goal")
_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm")
# The benchmark's texts have at most 7 in 10 of their narratives' words; those above tell it all.
WHOLE = 0.9
_LINE = re.compile(r"([^\W\d_][\w'’-]*)\s*:\s*(\S.*)")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”")


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions, in the file's order; an episode's questions are one group.

    Args:
        folder: holds ``questions.json``; ``texts.json`` and videos where there are some.

    Raises:
        RecordError: a record is malformed; names file, episode, question and field.
        BenchmarkError: there is no ``questions.json``, or a file cannot be read.
    """
    folder = Path(folder)
    path, texts_path = folder / QUESTIONS, folder / TEXTS
    if not path.is_file():
        raise BenchmarkError(f"{path} is missing; the folder must hold {LAYOUT}")
    records = Field(read_json(path), str(path)).entries()
    texts = Field(read_json(texts_path) if texts_path.exists() else {}, str(texts_path)).entries()
    videos = _videos(folder)
    items = []
    for episode, record in records.items():
        text = texts.get(episode)
        given = Field(text.value, f"{texts_path}, episode {episode}") if text else None
        cleaned(Field(episode, f"{path}, episode {episode!r}", "name"))
        where = f"{path}, episode {episode}"
        items += read_episode(episode, Field(record.value, where), given, videos.get(episode))
    if not items:
        raise RecordError(f"{path}: has no questions")
    return items


def read_episode(
    episode: str, record: Field, text: Field | None = None, video: Path | None = None
) -> list[BenchmarkItem]:
    """The questions of one episode.

    Args:
        episode: its number.
        record: its entry in ``questions.json``.
        text: its entry in ``texts.json``; None where there is none.
        video: its file; None where it is not here.

    Raises:
        RecordError: names file, episode, question and field.
    """
    asked = {
        number: (take_apart(question), answer, _type(label))
        for number, question, answer, label in _questions(record)
    }
    wordings = [
        words
        for wording, _, _ in asked.values()
        for words in (wording.question, *(option.text for option in wording.options))
    ]
    talks = any(kind in _TALK for _, _, kind in asked.values())
    context = _context(record, text, talks, people(wordings))
    return [
        BenchmarkItem(
            item_id=f"{episode}/{number}",
            benchmark=NAME,
            split="test",
            group=episode,
            question=wording.question,
            options=wording.options,
            answer=answer_label(answer, wording.options),
            media=(Media(path=video),),
            context=context,
            tags={"type": (kind,), "polarity": (wording.polarity,)},
            polarity=wording.polarity,
            licence="Apache-2.0",
        )
        for number, (wording, answer, kind) in asked.items()
    ]


def _questions(record: Field) -> Iterator[tuple[str, Field, Field, Field]]:
    """Number, question, answer and label of each question, whose places name the question."""
    columns = {name: record.get(name).entries() for name in ("questions", "answers", "labels")}
    numbers = dict.fromkeys(number for column in columns.values() for number in column)
    if not numbers:
        record.get("questions").fail("is empty")
    for number in numbers:
        cleaned(Field(number, f"{record.where}, question {number!r}", "questions"))
        row = []
        for name, column in columns.items():
            place = Field(None, f"{record.where}, question {number}", name)
            if number not in column:
                place.fail("is missing")
            row.append(Field(column[number].value, place.where, name))
        yield number, row[0], row[1], row[2]


def _type(field: Field) -> str:
    spelt = cleaned(field).lower().replace(" ", "_")
    return Field(spelt, field.where, field.path).one_of(TYPES)


def _videos(folder: Path) -> dict[str, Path]:
    """The video of each episode that has one here."""
    found: dict[str, Path] = {}
    for name in VIDEOS:
        try:
            files = sorted(os.listdir(folder / name))
        except OSError:
            continue
        for path in (folder / name / file for file in files):
            if path.suffix.lower() not in _SUFFIXES:
                continue
            episode = path.stem.removeprefix("video_")
            # On disks deaf to case both folders are the same one.
            if episode in found and not path.samefile(found[episode]):
                raise BenchmarkError(
                    f"{path}: episode {episode} has a video at {found[episode]} too"
                )
            found[episode] = path
    return found


def _context(record: Field, text: Field | None, talks: bool, who: People | None) -> Context:
    """What the benchmark tells in words: the talk, or one person's actions, never the narrative.

    Args:
        record: of ``questions.json``.
        text: entry of ``texts.json``; None where there is none.
        talks: whether the questions are about what is said.
        who: the persons that the questions name.

    Returns:
        ``dialogue``: two or more lines ``Name: words``; or ``actions``: what one person does.

    Raises:
        RecordError: a field is missing or no text, tells the whole narrative, or quotes no talk.
    """
    description = record.get("description")
    narrative = cleaned(description)
    if record.has("filtered_description"):
        return Context(actions=_part(record.get("filtered_description"), narrative))
    if talks:
        lines = _dialogue(cleaned(text)) if text is not None else None
        return Context(dialogue=lines or _quoted(description, narrative, text, who))
    if text is None:
        record.get("filtered_description")
        record.fail("field filtered_description is null, and there is no entry in texts.json")
    return Context(actions=_part(text, narrative))


def _part(field: Field, narrative: str) -> str:
    """A text that tells a part of the narrative."""
    text = cleaned(field)
    words, whole = text.split(), narrative.split()
    if len(words) >= WHOLE * len(whole) or one_line(narrative) in one_line(text):
        field.fail(
            f"tells the whole narrative ({len(words)} of {len(whole)} words), not what the "
            "benchmark gives: one person's actions, as in field filtered_description"
        )
    return text


def _dialogue(text: str) -> str | None:
    """Lines ``Name: words``; None if the text is something else."""
    lines = [_LINE.fullmatch(line.strip()) for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not all(lines):
        return None
    return "\n".join(f"{line[1]}: {line[2]}" for line in lines if line)


def _quoted(description: Field, narrative: str, text: Field | None, who: People | None) -> str:
    """The talk that a narrative quotes: a question, and a reply by whom the questions are about.

    The questions' names are taken, as texts.json renames people in some episodes.
    """
    said = _quotes(narrative)
    if len(said) != 2 and text is not None:
        said = _quotes(cleaned(text))
    if len(said) != 2:
        description.fail(f"must quote a question and a reply, quotes {len(said)} utterances")
    if who is None:
        description.fail("quotes a talk, but the questions do not tell who asks and who replies")
    return f"{who.other}: {said[0]}\n{who.subject}: {said[1]}"


def _quotes(text: str) -> list[str]:
    """Quoted utterances, each a sentence with its own end."""
    said = [one_line(a or b).rstrip(" ,;") for a, b in _QUOTED.findall(text)]
    return [words if words[-1] in ".!?" else f"{words}." for words in said if words]
