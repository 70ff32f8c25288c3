"""Reads a folder in the release layout: our own export, or the official release.

The official release tells its stories from above alone; of what an agent knows its sentences are
kept wherever the agent saw it, and our own sentence stands in for what it did not see.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from sally_anne.core.errors import ClipError, MediaError, RecordError
from sally_anne.data.gridtom.narration import BeliefQuestion, InitialQuestion, unknowing
from sally_anne.data.gridtom.plot import PLOTS, Cast, Condition, Plot
from sally_anne.data.gridtom.render import HEIGHT, PERSPECTIVES, WIDTH, Perspective, key_frames
from sally_anne.data.gridtom.stories import (
    CONDITIONS,
    DEFAULT_SEED,
    RETURNING,
    VERSIONS,
    BeliefCase,
    StoryRecord,
    StorySet,
    beliefs,
    generated,
    initial_ticks,
)
from sally_anne.data.gridtom.world import COLOURS
from sally_anne.data.media import read_frames, timeline_of
from sally_anne.data.pictures import read_picture
from sally_anne.data.read import Field, json_lines, read_bytes

PERSPECTIVE_FOLDERS: dict[Perspective, str] = {
    "omniscient": "full",
    "protagonist": "protagonist_pov",
    "participant": "participant_pov",
}
VIDEO = "fps3.mp4"


@dataclass(frozen=True)
class FolderVideo:
    """Frames of one version, whose ``folder`` has one for each perspective."""

    folder: Path

    def frames(self, perspective: Perspective, ticks: Sequence[int]) -> np.ndarray:
        """Frames ``ticks`` as ``uint8 [N, 420, 294, 3]``; MediaError names a file."""
        folder = self.folder / PERSPECTIVE_FOLDERS[perspective]
        try:
            names = set(os.listdir(folder))
        except OSError as error:
            raise MediaError(
                f"{folder}: no frames from the {perspective} perspective here "
                f"({error.strerror}); generated stories have all perspectives"
            ) from error
        try:
            if any(name.endswith(".png") for name in names):
                return np.stack([_read_png(folder / f"{tick}.png") for tick in ticks])
            if VIDEO not in names:
                raise MediaError(f"{folder}: has neither PNG frames nor {VIDEO}")
            return _read_video(folder / VIDEO, ticks)
        except ClipError as error:
            raise MediaError(str(error)) from error


def _read_png(path: Path) -> np.ndarray:
    if not path.exists():
        raise MediaError(f"{path}: this frame is missing")
    return _sized(path, read_picture(path))


def _read_video(path: Path, ticks: Sequence[int]) -> np.ndarray:
    timeline = timeline_of(path)
    length = len(timeline.numbers)
    if missing := [tick for tick in sorted(ticks) if tick >= length]:
        raise MediaError(
            f"{path}: frame {missing[0]} lies beyond the video, which ends after {length} frames"
            f"{timeline.damage}"
        )
    places = sorted(set(ticks))
    return _sized(path, read_frames(timeline, places))[np.searchsorted(places, ticks)]


def _sized(path: Path, pixels: np.ndarray) -> np.ndarray:
    height, width = pixels.shape[-3:-1]
    if (width, height) != (WIDTH, HEIGHT):
        raise MediaError(f"{path}: must be {WIDTH} x {HEIGHT}, is {width} x {height}")
    return pixels


INFO = "info.json"
SETTINGS = "build.json"
TYPES: dict[Condition, str] = {"TB": "TrueBelief", "FB": "FalseBelief"}
_PARTS = re.compile(r"(?s)(.*?)\b1\.\s+(.*?)\s+2\.\s+(.*?)\s+3\.\s+(.*)")
_ENDING = re.compile(r"(That is where the video ends\.|The video ends here\.)\s*$")


def load(folder: Path) -> StorySet:
    """Read and check all records of ``info.json``; frames are read when they are asked for.

    Raises:
        RecordError: ``info.json`` is missing, empty or has an unusable record; names line and
            field.
        MediaError: a story has no folder with frames.
    """
    folder = Path(folder)
    info, settings = folder / INFO, folder / SETTINGS
    built = settings.exists()
    unfinished = "the build was not finished; run it again with the same options"
    content = read_bytes(
        info, f"; {unfinished if built else 'make the data with sally-anne build --out DIR'}"
    )
    with_frames = not (built and read_settings(settings).get("metadata_only"))
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


def read_settings(path: Path) -> dict[str, object]:
    """The options with which the build in this folder was begun."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise RecordError(
            f"{path}: is damaged ({error}); delete the folder and build it again"
        ) from error


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
    entries = _by(record.get("first_order_belief"), 2, type=TYPES.values())
    colors, cast = _cast(record, *(entries[(name,)] for name in TYPES.values()))
    a, b, c, d = (item.number() for item in record.get("nodes").items(count=4))
    if not a < b < c < d:
        record.get("nodes").fail(f"must increase, is {record.value['nodes']}")
    if has_second := record.has("second_order_belief"):
        entries |= _by(record.get("second_order_belief"), 4, first=CONDITIONS, second=CONDITIONS)
    versions = []
    for first, second in VERSIONS if has_second else VERSIONS[:2]:
        entry = entries[(TYPES[first],) if second is None else (first, second)]
        place = f"{index}/{TYPES[first]}" if second is None else _inside(entry.get("frames"))
        _, believed, thought = beliefs(cast, first, second)
        versions.append(
            BeliefCase(
                story=index,
                first=first,
                second=second,
                cast=cast,
                question=_question(entry, cast, thought if second else believed),
                captions=_captions(entry, cast, first),
                nodes=(a, b, c, d),
                video=FolderVideo(folder / place),
            )
        )
    one, two, three = list(colors.values())[2:5]
    returns = record.has("plot") and record.get("plot").one_of(PLOTS) == "return"
    if returns and index < RETURNING:
        record.get("plot").fail(f"is 'return', whose stories have numbers from {RETURNING} on")
    return StoryRecord(
        index=index,
        cast=cast,
        colors=colors,
        nodes=(a, b, c, d),
        rooms=(one, two, three),
        environment=record.get("env_desc").text(),
        initial_environment=record.get("init_env_desc").text(),
        initial=tuple(
            _initial(q, (one, two, three), (a, b, c, d)) for q in record.get("init_belief").items()
        ),
        versions=tuple(versions),
        map=record.opt("map", Field.text),
        plot="return" if returns else "move",
    )


def _by(field: Field, count: int, **parts: Collection[str]) -> dict[tuple[str, ...], Field]:
    """The entries by what their ``parts`` say: one for each combination of the words."""
    entries = {
        tuple(e.get(name).one_of(words) for name, words in parts.items()): e
        for e in field.items(count)
    }
    if len(entries) < count:
        said = " and ".join(f"{name} ({', '.join(words)})" for name, words in parts.items())
        field.fail(f"must have one entry for each combination of {said}")
    return entries


def _cast(record: Field, true: Field, false: Field) -> tuple[dict[str, str], Cast]:
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
    last, first = (entry.get("answer").one_of(rooms) for entry in (true, false))
    if first == last:
        record.get("first_order_belief").fail(f"has the same answer {first!r} for TB and FB")
    own = next(room for room in rooms if room not in (first, last))
    return colors, Cast(participant, protagonist, first, own, last)


def _initial(
    field: Field, rooms: tuple[str, ...], nodes: tuple[int, int, int, int]
) -> InitialQuestion:
    question = field.get("question").text()
    section = field.get("section")
    start, end = (item.number() for item in section.items(count=2))
    if not start < end <= nodes[3]:
        section.fail(f"must lie within the frames 0 to {nodes[3]}, is {section.value}")
    given = field.get("answer")
    answer = tuple(item.one_of(COLOURS) for item in given.several())
    if not answer or len(set(answer)) < len(answer):
        given.fail(f"must name different colours, is {given.value}")
    choices = _listed(question) or (rooms if len(answer) == 1 else COLOURS)
    if field.has("choices"):
        choices = tuple(item.one_of(COLOURS) for item in field.get("choices").items())
    if missing := [colour for colour in answer if colour not in choices]:
        given.fail(f"names {missing[0]}, which is not among the choices {', '.join(choices)}")
    found = InitialQuestion(question, answer, choices, (start, end))
    if not initial_ticks(nodes, found):
        shown = ", ".join(map(str, key_frames(nodes)))
        section.fail(f"must hold one of the frames that are shown ({shown}), is {section.value}")
    return found


def _listed(question: str) -> tuple[str, ...]:
    """The colours that the official question lists in brackets at its end."""
    brackets = re.findall(r"\(([^()]*)\)", question)
    listed = re.findall(r"[a-z]+", brackets[-1].lower()) if brackets else []
    return tuple(listed) if set(listed) <= set(COLOURS) else ()


def _question(entry: Field, cast: Cast, answer: str) -> BeliefQuestion:
    options_field = entry.get("options")
    one, two = (item.one_of(cast[2:]) for item in options_field.items(count=2))
    if {one, two} != {cast.first_room, cast.last_room}:
        options_field.fail(
            f"must be the rooms {cast.first_room} and {cast.last_room}, which the answers name; "
            f"is {options_field.value}"
        )
    given = entry.get("answer").one_of((one, two))
    if given != answer:
        entry.get("answer").fail(f"is {given!r}, the belief condition makes it {answer!r}")
    statements = []
    for name, room in (("belief_true", answer), ("belief_false", two if answer == one else one)):
        field = entry.get(name)
        if not re.search(rf"\b{room}\b", field.text()):
            field.fail(f"must name the {room} room, is {field.value!r}")
        statements.append(field.text())
    return BeliefQuestion(entry.get("question").text(), (one, two), answer, *statements)


def _captions(entry: Field, cast: Cast, first: Condition) -> dict[Perspective, str]:
    """The story as each knows it; the official one has numbered parts, all from above."""
    text = entry.get("caption").text()
    if entry.has("captions"):
        own = entry.get("captions")
        return {p: text if p == "omniscient" else own.get(p).text() for p in PERSPECTIVES}
    found = _PARTS.fullmatch(text)
    if not found:
        entry.get("caption").fail("must tell the story in three parts numbered 1., 2. and 3.")
    opening, arrival, own_room, transfer = found.groups()
    ending = _ENDING.search(text)
    close = f" {ending[1]}" if ending else ""
    shut_in = unknowing(cast.protagonist, cast.own_room)
    waiting = unknowing(cast.participant, cast.first_room)
    mistaken = f"{opening}1. {arrival} 2. {own_room} 3. {shut_in}{close}"
    return {
        "omniscient": text,
        "protagonist": mistaken if first == "FB" else text,
        "participant": f"{opening}1. {arrival} 2. {waiting} 3. {transfer}",
    }


def _inside(field: Field) -> str:
    """A relative path that stays in the data folder."""
    path = field.text()
    if "\0" in path or "\\" in path or path.startswith("/") or ".." in path.split("/"):
        field.fail(f"must be a path inside the data folder, is {path!r}")
    return path


def open_stories(
    data: Path | None, seed: int = DEFAULT_SEED, plots: tuple[Plot, ...] = PLOTS[:1]
) -> StorySet:
    """Stories of a folder with ``info.json``, or (None) generated ones of a seed.

    Raises:
        BenchmarkError: the folder has none of a plot.
    """
    if data is None:
        return generated(seed, plots=plots)
    every = load(data)
    return every.subset(i for plot in plots for i in every.of_plot(plot).indices)
