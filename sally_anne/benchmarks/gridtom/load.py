"""Reads a folder in the release layout: our own export, or the official release.

The official release has no second-order questions, no captions but the omniscient one, and no
participant's frames. Its wording is kept as it is. It tells its stories from above alone, in three
numbered parts; of what an agent knows these are kept wherever the agent saw them, and our own
sentence stands in for what it did not see.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

from sally_anne.benchmarks.fields import Field, json_lines, read_bytes
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
_PARTS = re.compile(r"(?s)(.*?)\b1\.\s+(.*?)\s+2\.\s+(.*?)\s+3\.\s+(.*)")
_ENDING = re.compile(r"(That is where the video ends\.|The video ends here\.)\s*$")

Nodes = tuple[int, int, int, int]


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
    hint = "; make the data with sally-anne build --out DIR"
    if (folder / SETTINGS).exists():
        hint = "; the build was not finished; run it again with the same options"
    content = read_bytes(info, hint)
    with_frames = _has_frames(folder / SETTINGS)
    records: dict[int, StoryRecord] = {}
    for record in json_lines(content, info, "story"):
        if isinstance(number := record.value.get("index"), int):
            record = replace(record, where=f"{record.where} (story {number})")
        story = _story(record, folder)
        if story.index in records:
            record.get("index").fail(f"repeats story {story.index}")
        records[story.index] = story
    if not records:
        raise RecordError(f"{info}: has no stories")
    for case in (case for story in records.values() for case in story.versions if with_frames):
        assert isinstance(case.video, FolderVideo)
        full = case.video.folder / "full"
        # os.path.isdir takes any name, Path.is_dir raises for one that is too long.
        if not os.path.isdir(full):
            raise MediaError(f"story {case.story}: its folder of frames {full} is missing")
    return StorySet(
        records, records.__getitem__, f"folder {folder}", partial(_fingerprint, folder, content)
    )


def _has_frames(settings: Path) -> bool:
    """Whether frames belong to this folder; our builds of metadata alone say that they do not."""
    if not settings.exists():
        return True
    try:
        return not json.loads(settings.read_text())["metadata_only"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{settings}: is damaged ({error}); build the folder again") from error


def _fingerprint(folder: Path, info: bytes) -> str:
    """Hash of ``info.json`` and of the names and sizes of all files."""
    digest = hashlib.sha256(info)
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            digest.update(f"{os.path.relpath(path, folder)} {os.path.getsize(path)}\n".encode())
    return digest.hexdigest()


def _story(record: Field, folder: Path) -> StoryRecord:
    index = record.get("index").number()
    first_order = _by_type(record.get("first_order_belief"))
    colors, cast = _cast(record, first_order)
    nodes = _nodes(record.get("nodes"))
    case = partial(_case, index, cast, nodes)
    versions = [
        case(first_order[first], first, None, folder / str(index) / TYPES[first])
        for first in CONDITIONS
    ]
    if record.has("second_order_belief"):
        entries = _by_conditions(record.get("second_order_belief"))
        for pair in COMBINATIONS:
            frames = folder / _inside(entries[pair].get("frames"))
            versions.append(case(entries[pair], *pair, frames))
    one, two, three = list(colors.values())[2:5]
    return StoryRecord(
        index=index,
        cast=cast,
        colors=colors,
        nodes=nodes,
        rooms=(one, two, three),
        environment=record.get("env_desc").text(),
        initial_environment=record.get("init_env_desc").text(),
        initial=tuple(
            _initial(q, (one, two, three), nodes[3]) for q in record.get("init_belief").items()
        ),
        versions=tuple(versions),
        map=record.get("map").text() if record.has("map") else None,
    )


def _by_type(field: Field) -> dict[Condition, Field]:
    entries = field.items(count=2)
    found: dict[Condition, Field] = {}
    for condition, name in TYPES.items():
        named = [e for e in entries if e.get("type").one_of(TYPES.values()) == name]
        if len(named) != 1:
            field.fail(f"must have one entry of type {name}, has {len(named)}")
        found[condition] = named[0]
    return found


def _by_conditions(field: Field) -> dict[tuple[str, str], Field]:
    entries = {
        (e.get("first").one_of(CONDITIONS), e.get("second").one_of(CONDITIONS)): e
        for e in field.items(count=4)
    }
    if len(entries) < 4:
        field.fail("must have one entry for each combination of first and second TB and FB")
    return entries


def _cast(record: Field, first_order: dict[Condition, Field]) -> tuple[dict[str, str], Cast]:
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
    last, first = (first_order[kind].get("answer").one_of(rooms) for kind in CONDITIONS)
    if first == last:
        record.get("first_order_belief").fail(f"has the same answer {first!r} for TB and FB")
    own = next(room for room in rooms if room not in (first, last))
    return colors, Cast(participant, protagonist, first, own, last)


def _nodes(field: Field) -> Nodes:
    a, b, c, d = (item.number() for item in field.items(count=4))
    if not a < b < c < d:
        field.fail(f"must increase, is {field.value}")
    return a, b, c, d


def _initial(field: Field, rooms: tuple[str, ...], end_of_story: int) -> InitialQuestion:
    question = field.get("question").text()
    section = field.get("section")
    start, end = (item.number() for item in section.items(count=2))
    if not start < end <= end_of_story:
        section.fail(f"must lie within the frames 0 to {end_of_story}, is {section.value}")
    given = field.get("answer")
    named = [given] if isinstance(given.value, str) else given.items()
    answer = tuple(item.one_of(COLOURS) for item in named)
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


def _case(
    story: int,
    cast: Cast,
    nodes: Nodes,
    entry: Field,
    first: Condition,
    second: Condition | None,
    frames: Path,
) -> BeliefCase:
    """One version; it is of second order if it has a second condition."""
    _, believed, thought = beliefs(cast, first, second)
    question = _question(entry, cast, believed if second is None else thought)
    caption = entry.get("caption")
    captions: dict[Perspective, str] = {"omniscient": caption.text()}
    if entry.has("captions"):
        own = entry.get("captions")
        captions |= {p: own.get(p).text() for p in PERSPECTIVES if p != "omniscient"}
    else:
        captions |= _views_of_release(caption, cast, first)
    return BeliefCase(story, first, second, cast, question, captions, nodes, FolderVideo(frames))


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


def _views_of_release(caption: Field, cast: Cast, first: Condition) -> dict[Perspective, str]:
    """The official caption, with parts numbered 1., 2. and 3., as each agent knows it."""
    text = caption.text()
    found = _PARTS.fullmatch(text)
    if not found:
        caption.fail("must tell the story in three parts numbered 1., 2. and 3.")
    opening, arrival, own_room, transfer = found.groups()
    ending = _ENDING.search(text)
    close = f" {ending[1]}" if ending else ""

    def unknowing(agent: str, room: str) -> str:
        return (
            f"While the {agent} agent is in the {room} room with the {room} door closed, the "
            f"{agent} agent does not know what happens outside the {room} room."
        )

    protagonist = text
    if first == "FB":
        unknown = unknowing(cast.protagonist, cast.own_room)
        protagonist = f"{opening}1. {arrival} 2. {own_room} 3. {unknown}{close}"
    waiting = unknowing(cast.participant, cast.first_room)
    return {
        "protagonist": protagonist,
        "participant": f"{opening}1. {arrival} 2. {waiting} 3. {transfer}",
    }


def _inside(field: Field) -> str:
    """A relative path that stays in the data folder."""
    path = field.text()
    if "\0" in path or "\\" in path or path.startswith("/") or ".." in path.split("/"):
        field.fail(f"must be a path inside the data folder, is {path!r}")
    return path
