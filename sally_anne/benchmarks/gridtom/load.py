"""Reads a folder in the release layout: our own export, or the official release.

The official release has no second-order questions, no captions but the omniscient one, and no
participant's frames. Its wording is kept as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sally_anne.benchmarks.fields import Field
from sally_anne.benchmarks.gridtom.load_video import FolderVideo
from sally_anne.benchmarks.gridtom.narration import BeliefQuestion, Cast, InitialQuestion
from sally_anne.benchmarks.gridtom.plot import Condition
from sally_anne.benchmarks.gridtom.records import (
    COMBINATIONS,
    CONDITIONS,
    BeliefCase,
    StoryRecord,
    StorySet,
    beliefs,
)
from sally_anne.benchmarks.gridtom.render import PERSPECTIVES, Perspective
from sally_anne.benchmarks.gridtom.world import COLOURS
from sally_anne.core.errors import MediaError, RecordError

INFO = "info.json"
SETTINGS = "build.json"
TYPES: dict[Condition, str] = {"TB": "TrueBelief", "FB": "FalseBelief"}


def load(folder: Path) -> StorySet:
    """Read and check all records; frames are read when they are asked for.

    Args:
        folder: holds ``info.json`` (JSON lines) and the frames.

    Raises:
        RecordError: ``info.json`` is missing, empty or has an unusable record; names line and
            field.
        MediaError: a story has no folder with frames.
    """
    folder = Path(folder)
    info = folder / INFO
    try:
        content = info.read_bytes()
    except OSError as error:
        unfinished = (folder / SETTINGS).exists()
        hint = (
            "the build was not finished; run it again with the same options"
            if unfinished
            else "make the data with python -m sally_anne.benchmarks.gridtom.build --out DIR"
        )
        raise RecordError(f"{info}: cannot be read ({error.strerror}); {hint}") from error
    with_frames = _has_frames(folder)
    records: dict[int, StoryRecord] = {}
    for record in _lines(info, content):
        story = read_record(record, folder)
        if story.index in records:
            record.get("index").fail(f"repeats story {story.index}")
        records[story.index] = story
    if not records:
        raise RecordError(f"{info}: has no stories")
    if with_frames:
        _check_folders(records)
    return StorySet(
        records, records.__getitem__, f"folder {folder}", partial(_fingerprint, folder, content)
    )


def read_record(record: Field, folder: Path) -> StoryRecord:
    """One record of ``info.json``.

    Args:
        record: the parsed line.
        folder: where the frames are.

    Raises:
        RecordError: a field is missing or does not fit the others.
    """
    index = record.get("index").number()
    colors, cast = _cast(record)
    nodes = _nodes(record.get("nodes"))
    versions = list(_first_order(record, cast, nodes, folder))
    if record.has("second_order_belief"):
        versions.extend(_second_order(record, cast, nodes, folder))
    rooms = tuple(list(colors.values())[2:5])
    return StoryRecord(
        index=index,
        cast=cast,
        colors=colors,
        nodes=nodes,
        rooms=(rooms[0], rooms[1], rooms[2]),
        environment=record.get("env_desc").text(),
        initial_environment=record.get("init_env_desc").text(),
        initial=tuple(_initial(q, rooms, nodes) for q in record.get("init_belief").items()),
        versions=tuple(versions),
        map=record.get("map").text() if record.has("map") else None,
    )


def _lines(path: Path, content: bytes) -> Iterator[Field]:
    for number, line in enumerate(content.splitlines(), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode())
        # ValueError covers bad JSON, bad UTF-8 and numbers with thousands of digits.
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{where}: is not valid JSON ({error})") from error
        if not isinstance(value, dict):
            raise RecordError(f"{where}: must be an object with the fields of one story")
        story = value.get("index")
        place = f"{where} (story {story})" if isinstance(story, int) else where
        yield Field(value, place)


def _cast(record: Field) -> tuple[dict[str, str], Cast]:
    """The colours in their order and by their part.

    Values 0 and 1 are the agents, 2 to 4 the rooms; the answers tell which room is which.
    """
    field = record.get("colors")
    protagonist = field.get("protagonist").one_of(COLOURS)
    if len(field.value) < 5:
        field.fail(f"must name two agents and three rooms, names {len(field.value)}")
    colors = {name: field.get(name).one_of(COLOURS) for name in field.value}
    named = list(colors.values())[:5]
    if len(set(named)) < 5:
        field.fail(f"must all differ, are {', '.join(named)}")
    if protagonist not in named[:2]:
        field.fail(f"must have the protagonist among the first two, not at {protagonist!r}")
    participant = named[1 - named.index(protagonist)]
    rooms = named[2:]
    # True belief: the protagonist saw the last move. False belief: it saw the first alone.
    answers = {kind: entry.get("answer").one_of(rooms) for kind, entry in _by_type(record).items()}
    last, first = answers["TB"], answers["FB"]
    if first == last:
        record.get("first_order_belief").fail(f"has the same answer {first!r} for TB and FB")
    own = next(room for room in rooms if room not in (first, last))
    return colors, Cast(participant, protagonist, first, own, last)


def _by_type(record: Field) -> dict[Condition, Field]:
    field = record.get("first_order_belief")
    entries = field.items(count=2)
    found: dict[Condition, Field] = {}
    for condition, name in TYPES.items():
        named = [e for e in entries if e.get("type").one_of(TYPES.values()) == name]
        if len(named) != 1:
            field.fail(f"must have one entry of type {name}, has {len(named)}")
        found[condition] = named[0]
    return found


def _nodes(field: Field) -> tuple[int, int, int, int]:
    a, b, c, d = (item.number() for item in field.items(count=4))
    if not a < b < c < d:
        field.fail(f"must increase, is {field.value}")
    return a, b, c, d


def _initial(field: Field, rooms: tuple[str, ...], nodes: tuple[int, ...]) -> InitialQuestion:
    question = field.get("question").text()
    section = field.get("section")
    start, end = (item.number() for item in section.items(count=2))
    if not start < end <= nodes[3]:
        section.fail(f"must lie within the frames 0 to {nodes[3]}, is {section.value}")
    given = field.get("answer")
    if isinstance(given.value, str):
        answer: tuple[str, ...] = (given.one_of(COLOURS),)
    else:
        answer = tuple(item.one_of(COLOURS) for item in given.items())
    if not answer or len(set(answer)) < len(answer):
        given.fail(f"must name different colours, is {given.value}")
    if field.has("choices"):
        choices = tuple(item.one_of(COLOURS) for item in field.get("choices").items())
    else:
        choices = _choices(question, rooms if len(answer) == 1 else COLOURS)
    if missing := [colour for colour in answer if colour not in choices]:
        given.fail(f"names {missing[0]}, which is not among the choices {', '.join(choices)}")
    return InitialQuestion(question, answer, choices, (start, end))


def _choices(question: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """The colours that the official question lists in brackets at its end."""
    brackets = re.findall(r"\(([^()]*)\)", question)
    listed = re.findall(r"[a-z]+", brackets[-1].lower()) if brackets else []
    return tuple(listed) if listed and set(listed) <= set(COLOURS) else otherwise


def _question(entry: Field, cast: Cast, answer: str) -> BeliefQuestion:
    options_field = entry.get("options")
    options = [item.one_of(cast[2:]) for item in options_field.items(count=2)]
    if set(options) != {cast.first_room, cast.last_room}:
        options_field.fail(
            f"must be the rooms {cast.first_room} and {cast.last_room}, which the answers name; "
            f"is {options_field.value}"
        )
    given = entry.get("answer").one_of(options)
    if given != answer:
        entry.get("answer").fail(f"is {given!r}, the belief condition makes it {answer!r}")
    other = options[1 - options.index(answer)]
    statements = []
    for name, room in (("belief_true", answer), ("belief_false", other)):
        field = entry.get(name)
        if not re.search(rf"\b{room}\b", field.text()):
            field.fail(f"must name the {room} room, is {field.value!r}")
        statements.append(field.text())
    return BeliefQuestion(
        entry.get("question").text(), (options[0], options[1]), answer, statements[0], statements[1]
    )


def _captions(entry: Field, cast: Cast, first: Condition) -> dict[Perspective, str]:
    if not entry.has("captions"):
        return captions_of_release(entry.get("caption"), cast, first)
    own = entry.get("captions")
    return {
        p: entry.get("caption").text() if p == "omniscient" else own.get(p).text()
        for p in PERSPECTIVES
    }


def _first_order(
    record: Field, cast: Cast, nodes: tuple[int, int, int, int], folder: Path
) -> Iterator[BeliefCase]:
    entries = _by_type(record)
    for first in CONDITIONS:
        index = record.get("index").number()
        frames = folder / str(index) / TYPES[first]
        yield _case(entries[first], index, cast, nodes, first, None, frames)


def _second_order(
    record: Field, cast: Cast, nodes: tuple[int, int, int, int], folder: Path
) -> Iterator[BeliefCase]:
    field = record.get("second_order_belief")
    entries = {
        (e.get("first").one_of(CONDITIONS), e.get("second").one_of(CONDITIONS)): e
        for e in field.items(count=4)
    }
    if len(entries) < 4:
        field.fail("must have one entry for each combination of first and second TB and FB")
    for first, second in COMBINATIONS:
        entry = entries[first, second]
        frames = folder / _inside(entry.get("frames"))
        yield _case(entry, record.get("index").number(), cast, nodes, first, second, frames)


def _case(
    entry: Field,
    story: int,
    cast: Cast,
    nodes: tuple[int, int, int, int],
    first: Condition,
    second: Condition | None,
    frames: Path,
) -> BeliefCase:
    """One version; it is of second order if it has a second condition."""
    reality, believed, thought = beliefs(cast, first, second)
    return BeliefCase(
        story=story,
        order=1 if second is None else 2,
        first=first,
        second=second,
        cast=cast,
        question=_question(entry, cast, believed if second is None else thought),
        captions=_captions(entry, cast, first),
        nodes=nodes,
        reality=reality,
        believed=believed,
        thought=thought,
        film=FolderVideo(frames),
    )


def _inside(field: Field) -> str:
    """A relative path that stays in the data folder."""
    path = field.text()
    if "\0" in path or "\\" in path or path.startswith("/") or ".." in path.split("/"):
        field.fail(f"must be a path inside the data folder, is {path!r}")
    return path


def _has_frames(folder: Path) -> bool:
    """Whether frames belong to this folder; our builds of metadata alone say that they do not."""
    path = folder / SETTINGS
    if not path.exists():
        return True
    try:
        return not json.loads(path.read_text())["metadata_only"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: is damaged ({error}); build the folder again") from error


def _check_folders(records: dict[int, StoryRecord]) -> None:
    for record in records.values():
        for case in record.versions:
            assert isinstance(case.film, FolderVideo)
            full = case.film.folder / "full"
            # os.path.isdir takes any name, Path.is_dir raises for one that is too long.
            if not os.path.isdir(full):
                raise MediaError(f"story {record.index}: its folder of frames {full} is missing")


def _fingerprint(folder: Path, info: bytes) -> str:
    """Hash of ``info.json`` and of the names and sizes of all files."""
    digest = hashlib.sha256(info)
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            digest.update(f"{os.path.relpath(path, folder)} {os.path.getsize(path)}\n".encode())
    return digest.hexdigest()


_PARTS = re.compile(r"(?s)(.*?)\b1\.\s+(.*?)\s+2\.\s+(.*?)\s+3\.\s+(.*)")
_ENDING = re.compile(r"(That is where the video ends\.|The video ends here\.)\s*$")


def captions_of_release(caption: Field, cast: Cast, first: Condition) -> dict[Perspective, str]:
    """The caption from all perspectives.

    Args:
        caption: the official caption, with parts numbered 1., 2. and 3.
        cast: the colours by their part.
        first: the protagonist's belief condition.

    Raises:
        RecordError: the caption does not have the three parts.
    """
    text = caption.text()
    found = _PARTS.fullmatch(text)
    if not found:
        caption.fail("must tell the story in three parts numbered 1., 2. and 3.")
    opening, arrival, own_room, transfer = found.groups()
    ending = _ENDING.search(text)
    close = f" {ending[1]}" if ending else ""
    a, b, r1, r2, _ = cast
    protagonist = text
    if first == "FB":
        unknown = (
            f"While the {b} agent is in the {r2} room with the {r2} door closed, the {b} agent "
            f"does not know what happens outside the {r2} room.{close}"
        )
        protagonist = f"{opening}1. {arrival} 2. {own_room} 3. {unknown}"
    waiting = (
        f"While the {a} agent is in the {r1} room with the {r1} door closed, the {a} agent does "
        f"not know what happens outside the {r1} room."
    )
    return {
        "omniscient": text,
        "protagonist": protagonist,
        "participant": f"{opening}1. {arrival} 2. {waiting} 3. {transfer}",
    }
