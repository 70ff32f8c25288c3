"""Reads a folder in the release layout: our own export, or the official release.

The official release tells its stories from above alone; of what an agent knows its sentences are
kept wherever the agent saw it, and our own sentence stands in for what it did not see.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from sally_anne.core.errors import BenchmarkError, MediaError
from sally_anne.core.media import read_frames, read_picture, timeline_of
from sally_anne.data.gridtom import plot, stories
from sally_anne.data.gridtom.narration import BeliefQuestion, InitialQuestion, unknowing
from sally_anne.data.gridtom.plot import COLOURS, PLOTS, Cast, Condition, Nodes, Perspective, Plot
from sally_anne.data.gridtom.render import HEIGHT, WIDTH
from sally_anne.data.gridtom.stories import CONDITIONS, VERSIONS, StoryRecord, StorySet
from sally_anne.data.read import Field, json_lines, read_bytes, some

PERSPECTIVE_FOLDERS: dict[Perspective, str] = {
    "omniscient": "full",
    "protagonist": "protagonist_pov",
    "participant": "participant_pov",
}
VIDEO, INFO, SETTINGS = "fps3.mp4", "info.json", "build.json"
TYPES: dict[Condition, str] = {"TB": "TrueBelief", "FB": "FalseBelief"}
_PARTS = re.compile(r"(?s)(.*?)\b1\.\s+(.*?)\s+2\.\s+(.*?)\s+3\.\s+(.*)")
_ENDING = re.compile(r"(That is where the video ends\.|The video ends here\.)\s*$")


def folder_of(first: Condition, second: Condition | None) -> str:
    """Where a version's frames are; second-order true beliefs look as first-order ones."""
    return f"{'SecondOrderFalseBelief/' if second == 'FB' else ''}{TYPES[first]}"


def read_version(version: Path, perspective: Perspective, ticks: Sequence[int]) -> np.ndarray:
    """Frames of a version's folder, ``uint8 [N, 420, 294, 3]``; MediaError names a file."""
    folder = version / PERSPECTIVE_FOLDERS[perspective]
    video = folder / VIDEO
    if any(folder.glob("*.png")) or not video.exists():
        pictures = [read_picture(folder / f"{tick}.png") for tick in ticks]
    else:
        timeline, places = timeline_of(video), sorted(set(ticks))
        if places[-1] >= len(timeline.times):
            raise MediaError(
                f"{video}: frame {places[-1]} lies beyond the video, which ends after "
                f"{len(timeline.times)} frames{timeline.damage}"
            )
        pictures = list(read_frames(timeline, places)[np.searchsorted(places, ticks)])
    for tick, picture in zip(ticks, pictures, strict=True):
        if picture.shape[:2] != (HEIGHT, WIDTH):
            raise MediaError(f"{folder}: frame {tick} must be {WIDTH} x {HEIGHT}")
    return np.stack(pictures)


def load(folder: Path) -> StorySet:
    """Read and check all records of ``info.json``; frames are read when they are asked for.

    RecordError names line and field, MediaError a story without a folder of frames.
    """
    info, hint = folder / INFO, "make the data with sally-anne build --out DIR"
    if (folder / SETTINGS).exists():
        hint = "the build was not finished; run it again with the same options"
    content = read_bytes(info, f"; {hint}")
    records: dict[int, StoryRecord] = {}
    for record in json_lines(content, info, "story"):
        story = _story(record, folder)
        if story.index in records:
            record.get("index").fail(f"repeats story {story.index}")
        records[story.index] = story
    some([*records], info, "stories")
    for case in (case for story in records.values() for case in story.versions):
        # os.path.isdir takes any name, Path.is_dir raises for one that is too long.
        if not os.path.isdir(full := f"{case.folder}/full"):
            raise MediaError(f"story {case.story}: its folder of frames {full} is missing")
    return StorySet(
        records, records.__getitem__, f"folder {folder}", partial(_fingerprint, folder, content)
    )


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
    record = replace(record, where=f"{record.where} (story {index})")
    entries = _by(record.get("first_order_belief"), 2, type=TYPES.values())
    colors, cast = _cast(record, *(entries[(name,)] for name in TYPES.values()))
    rooms = tuple(colors.values())[2:5]
    a, b, c, d = (item.number() for item in record.get("nodes").items(count=4))
    if not a < b < c < d:
        record.get("nodes").fail(f"must increase, is {record.value['nodes']}")
    nodes = (a, b, c, d)
    if has_second := record.has("second_order_belief"):
        entries |= _by(record.get("second_order_belief"), 4, first=CONDITIONS, second=CONDITIONS)
    versions = []
    for first, second in VERSIONS if has_second else VERSIONS[:2]:
        entry = entries[(TYPES[first],) if second is None else (first, second)]
        place = folder / str(index) / folder_of(first, second)
        _, believed, thought = cast.beliefs(first, second)
        versions.append(
            stories.BeliefCase(
                story=index,
                first=first,
                second=second,
                cast=cast,
                question=_question(entry, cast, thought if second else believed),
                captions=_captions(entry, cast, first),
                nodes=nodes,
                draw=partial(read_version, place),
                folder=place,
            )
        )
    if record.has("plot"):
        record.get("plot").fail("names another plot than the paper's; only made stories have one")
    questions = record.get("init_belief").items()
    return StoryRecord(
        index=index,
        cast=cast,
        colors=colors,
        nodes=nodes,
        rooms=(rooms[0], rooms[1], rooms[2]),
        environment=record.get("env_desc").text(),
        initial_environment=record.get("init_env_desc").text(),
        initial=tuple(_initial(question, rooms, nodes) for question in questions),
        versions=tuple(versions),
        map=record.opt("map", Field.text),
    )


def _by(field: Field, count: int, **parts: Collection[str]) -> dict[tuple[str, ...], Field]:
    """The entries by the words in their fields ``parts``: one for each combination."""
    entries = {
        tuple(e.get(name).one_of(words) for name, words in parts.items()): e
        for e in field.items(count)
    }
    if len(entries) < count:
        field.fail(f"must have one entry for each combination of {' and '.join(parts)}")
    return entries


def _cast(record: Field, true: Field, false: Field) -> tuple[dict[str, str], Cast]:
    """The colours: two agents, then three rooms; the answers tell which room is which."""
    field = record.get("colors")
    colors = {name: colour.one_of(COLOURS) for name, colour in field.entries().items()}
    protagonist = field.get("protagonist").value
    named = list(colors.values())[:5]
    agents, rooms = named[:2], named[2:]
    if len(set(named)) < 5 or protagonist not in agents:
        field.fail("must name two agents, one of them the protagonist, and three rooms, all unlike")
    # True belief: the protagonist saw the last move. False belief: it saw the first alone.
    last, first = (entry.get("answer").one_of(rooms) for entry in (true, false))
    if first == last:
        record.get("first_order_belief").fail(f"has the same answer {first!r} for TB and FB")
    own = next(room for room in rooms if room not in (first, last))
    return colors, Cast(agents[1 - agents.index(protagonist)], protagonist, first, own, last)


def _initial(field: Field, rooms: tuple[str, ...], nodes: Nodes) -> InitialQuestion:
    text = field.get("question").text()
    start, end = (item.number() for item in field.get("section").items(count=2))
    answer = tuple(item.one_of(COLOURS) for item in field.get("answer").several())
    # The official question lists the colours in brackets at its end.
    brackets = re.findall(r"\(([^()]*)\)", text) or [""]
    choices: tuple[str, ...] = tuple(re.findall(r"[a-z]+", brackets[-1].lower()))
    if not choices or not set(choices) <= set(COLOURS):
        choices = rooms if len(answer) == 1 else COLOURS
    if field.has("choices"):
        choices = tuple(item.one_of(COLOURS) for item in field.get("choices").items())
    if not answer or not set(answer) <= set(choices):
        field.get("answer").fail(f"must be among the choices {', '.join(choices)}")
    question = InitialQuestion(text, answer, choices, (start, end))
    if not stories.initial_ticks(nodes, question):
        field.get("section").fail(f"holds none of the frames that are shown: {start} to {end}")
    return question


def _question(entry: Field, cast: Cast, answer: str) -> BeliefQuestion:
    rooms = (cast.first_room, cast.last_room)
    one, two = (item.one_of(rooms) for item in entry.get("options").items(count=2))
    if one == two:
        entry.get("options").fail("must be two rooms")
    if entry.get("answer").one_of((one, two)) != answer:
        entry.get("answer").fail(f"must be {answer!r} by the belief condition")
    other = two if answer == one else one
    statements = entry.get("belief_true"), entry.get("belief_false")
    for statement, room in zip(statements, (answer, other), strict=True):
        if not re.search(rf"\b{room}\b", statement.text()):
            statement.fail(f"must name the {room} room, is {statement.value!r}")
    right, wrong = (statement.text() for statement in statements)
    return BeliefQuestion(entry.get("question").text(), (one, two), answer, right, wrong)


def _captions(entry: Field, cast: Cast, first: Condition) -> dict[Perspective, str]:
    """The story as each knows it; the official one has numbered parts, all from above."""
    text = entry.get("caption").text()
    if entry.has("captions"):
        own = entry.get("captions")
        return {p: text if p == "omniscient" else own.get(p).text() for p in plot.PERSPECTIVES}
    if not (parts := _PARTS.fullmatch(text)):
        entry.get("caption").fail("must tell the story in three parts numbered 1., 2. and 3.")
    opening, arrival, own_room, transfer = parts.groups()
    ending = _ENDING.search(text)
    shut_in = unknowing(cast.protagonist, cast.own_room) + (f" {ending[1]}" if ending else "")
    waiting = unknowing(cast.participant, cast.first_room)
    mistaken = f"{opening}1. {arrival} 2. {own_room} 3. {shut_in}"
    return {
        "omniscient": text,
        "protagonist": mistaken if first == "FB" else text,
        "participant": f"{opening}1. {arrival} 2. {waiting} 3. {transfer}",
    }


def open_stories(
    data: Path | None, seed: int = stories.DEFAULT_SEED, plots: tuple[Plot, ...] = PLOTS[:1]
) -> StorySet:
    """Stories of a folder with ``info.json``, or (None) generated ones of a seed."""
    if data is None:
        return stories.generated(seed, plots=plots)
    if plots != PLOTS[:1]:
        raise BenchmarkError("--contrast crossed takes generated stories: leave out --data")
    return load(data)
