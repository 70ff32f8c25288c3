"""Reads a folder in the benchmark's layout: questions.json, texts.json and the films."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sally_anne.benchmarks.fields import Field
from sally_anne.benchmarks.items import BenchmarkItem, Context, Media
from sally_anne.benchmarks.json_file import read_json
from sally_anne.benchmarks.muma_tom.people import people
from sally_anne.benchmarks.muma_tom.told import told
from sally_anne.benchmarks.muma_tom.wording import Wording, answer_label, cleaned, take_apart
from sally_anne.core.errors import BenchmarkError, RecordError

NAME = "muma_tom"
QUESTIONS, TEXTS, FILMS = "questions.json", "texts.json", ("videos", "Videos")
TYPES = ("belief", "social_goal", "belief_of_goal")
LAYOUT = (
    f"{QUESTIONS}, {TEXTS} and videos/ of the dataset MUMA-TOM-BENCHMARK (films named 42.mp4 or "
    "video_42.mp4 after their episodes)"
)
LICENCE = "Apache-2.0"
# About what is said while people talk.
_TALK = ("belief", "social_goal")
_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm")


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions, in the file's order; an episode's questions are one group.

    Args:
        folder: holds ``questions.json``; ``texts.json`` and films where there are some.

    Raises:
        RecordError: a record is malformed; names file, episode, question and field.
        BenchmarkError: there is no ``questions.json``, or a file cannot be read.
    """
    folder = Path(folder)
    path = folder / QUESTIONS
    if not path.is_file():
        raise BenchmarkError(f"{path} is missing; the folder must hold {LAYOUT}")
    records = _read(path)
    texts = _read(folder / TEXTS) if (folder / TEXTS).exists() else {}
    films = _films(folder)
    items = []
    for episode, record in records.items():
        text = texts.get(episode)
        given = None if text is None else Field(text, f"{folder / TEXTS}, episode {episode}")
        where = f"{path}, episode {episode}"
        cleaned(Field(episode, f"{path}, episode {episode!r}", "name"))
        items += read_episode(episode, Field(record, where), given, films.get(episode))
    if not items:
        raise RecordError(f"{path}: has no questions")
    return items


def read_episode(
    episode: str, record: Field, text: Field | None = None, film: Path | None = None
) -> list[BenchmarkItem]:
    """The questions of one episode.

    Args:
        episode: its number.
        record: its entry in ``questions.json``.
        text: its entry in ``texts.json``; None where there is none.
        film: its file; None where it is not here.

    Raises:
        RecordError: names file, episode, question and field.
    """
    asked = {
        number: (take_apart(question), answer, _type(label))
        for number, question, answer, label in _questions(record)
    }
    talks = any(kind in _TALK for _, _, kind in asked.values())
    context = told(record, text, talks, people(_wordings(w for w, _, _ in asked.values())))
    return [
        _item(episode, number, wording, answer_label(answer, wording.options), kind, context, film)
        for number, (wording, answer, kind) in asked.items()
    ]


def _item(
    episode: str,
    number: str,
    wording: Wording,
    answer: str,
    kind: str,
    context: Context,
    film: Path | None,
) -> BenchmarkItem:
    return BenchmarkItem(
        item_id=f"{episode}/{number}",
        benchmark=NAME,
        split="test",
        group=episode,
        question=wording.question,
        options=wording.options,
        answer=answer,
        media=(Media(path=film),),
        context=context,
        tags={"type": (kind,), "polarity": (wording.polarity,)},
        polarity=wording.polarity,
        licence=LICENCE,
    )


def _wordings(asked: Iterator[Wording]) -> Iterator[str]:
    for wording in asked:
        yield wording.question
        yield from (option.text for option in wording.options)


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


def _read(path: Path) -> dict[str, Any]:
    """A JSON object by episode."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise RecordError(f"{path}: must be an object with one entry an episode")
    return value


def _films(folder: Path) -> dict[str, Path]:
    """The film of each episode that has one here."""
    found: dict[str, Path] = {}
    for name in FILMS:
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
                    f"{path}: episode {episode} has a film at {found[episode]} too"
                )
            found[episode] = path
    return found
