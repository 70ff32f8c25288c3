"""The 648 stories, generated from a seed or read from a folder (paper, section 3.1, appendix I).

``open_stories(None)`` and ``open_stories(folder)`` give the same :class:`StorySet`; nothing above
this room asks which it was.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path

import numpy as np

from sally_anne.benchmarks.gridtom.load import load
from sally_anne.benchmarks.gridtom.maps import Cell, Layout, benchmark_layouts, start_pairs
from sally_anne.benchmarks.gridtom.narration import (
    Cast,
    caption,
    environment,
    first_order,
    initial_environment,
    initial_questions,
    second_order,
)
from sally_anne.benchmarks.gridtom.plot import (
    PARTICIPANT,
    PROTAGONIST,
    Condition,
    Staging,
    Trace,
    play,
)
from sally_anne.benchmarks.gridtom.records import (
    COMBINATIONS,
    CONDITIONS,
    STORIES_PER_MAP,
    BeliefCase,
    Identity,
    Order,
    StoryRecord,
    StorySet,
    beliefs,
    identity_of,
)
from sally_anne.benchmarks.gridtom.render import PERSPECTIVES, Perspective, render
from sally_anne.benchmarks.gridtom.world import COLOURS
from sally_anne.core.errors import BenchmarkError

DEFAULT_SEED = 2025
STARTS = 2
ORIENTATIONS = 2
ORDERS = tuple((a, b, c) for a, b, c in itertools.permutations(range(3)))


@dataclass(frozen=True)
class Story:
    """One basic story; its true- and false-belief versions are played on demand.

    Attributes:
        index: number in the release, 0 to 647.
        staging: map, colours, room order, starts and directions.
    """

    index: int
    staging: Staging

    @property
    def cast(self) -> Cast:
        """The colours by their part in the plot."""
        return Cast(*self.staging.colours)

    @cached_property
    def rooms(self) -> tuple[str, str, str]:
        """Room colours in the order of the map, which tells nothing about the plot."""
        colours = [""] * 3
        for role, room in enumerate(self.staging.order):
            colours[room] = self.staging.colours[2 + role]
        return (colours[0], colours[1], colours[2])

    def play(self, first: Condition, second: Condition = "TB") -> Trace:
        """Play one version and check the beliefs that follow from it against the plot.

        Raises:
            BenchmarkError: the simulation does not produce the belief condition asked for.
        """
        trace = play(self.staging, first, second)
        beliefs = final_beliefs(trace)
        first_room, _, last_room = self.staging.order
        believed = last_room if first == "TB" else first_room
        other = first_room if first == "TB" else last_room
        thought = believed if second == "TB" else other
        wanted = (last_room, believed, thought)
        found = (beliefs.reality, beliefs.protagonist, beliefs.participant)
        if found != wanted:
            raise BenchmarkError(
                f"story {self.index} ({self.staging.layout.name}, first order {first}, second "
                f"order {second}): the simulation gives rooms {found}, the plot wants {wanted}"
            )
        return trace


def generate(seed: int = DEFAULT_SEED, layouts: Sequence[Layout] | None = None) -> list[Story]:
    """All stories: map x starting position x orientation x order of rooms.

    Args:
        seed: draws starts, directions and colours; the same seed gives the same stories.
        layouts: maps; the 27 of the benchmark by default.

    Returns:
        24 stories a map, in a fixed order; 648 for the benchmark maps.
    """
    maps = benchmark_layouts() if layouts is None else layouts
    return [story for i, layout in enumerate(maps) for story in _stories_of_map(seed, i, layout)]


def _stories_of_map(seed: int, number: int, layout: Layout) -> Iterator[Story]:
    # One generator a map: a change in one map leaves the stories of all others as they are.
    rng = random.Random(f"{seed}/{layout.name}")
    starts = rng.sample(start_pairs(layout), STARTS)
    turned = [rng.randrange(4), rng.randrange(4)]
    orientations = [(turned[0], turned[1]), ((turned[0] + 2) % 4, (turned[1] + 2) % 4)]
    variants = itertools.product(starts, orientations, ORDERS)
    for i, (start, directions, order) in enumerate(variants):
        a, b, r1, r2, r3 = rng.sample(COLOURS, 5)
        yield Story(
            number * STORIES_PER_MAP + i,
            Staging(layout, (a, b, r1, r2, r3), order, start, directions),
        )


@dataclass(frozen=True)
class Beliefs:
    """Rooms (indices in the map) in which the participant is, and is held to be, at the end.

    Attributes:
        reality: where it is.
        protagonist: where the protagonist believes it is (first order).
        participant: where the participant thinks that the protagonist believes it is
            (second order).
    """

    reality: int
    protagonist: int
    participant: int


def final_beliefs(trace: Trace) -> Beliefs:
    """Derive the beliefs at the end of the story from what each agent could see.

    Raises:
        BenchmarkError: the story ends with the participant, or a belief about it, outside any room.
    """
    layout = trace.staging.layout
    own_room = trace.staging.order[1]
    own_door = layout.doors[own_room]
    last_seen: Cell = trace.states[0].agents[PARTICIPANT][0]
    thought_seen = last_seen
    seen_open: bool | None = None
    for state in trace.states:
        cell, _ = state.agents[PARTICIPANT]
        other_cell, _ = state.agents[PROTAGONIST]
        if cell in state.seen[PROTAGONIST]:
            last_seen = cell
        if own_door in state.seen[PARTICIPANT]:
            seen_open = state.open_doors[own_room]
        # To the participant, the protagonist sees it while both stand in the corridor, or while
        # the protagonist's door was last seen open; behind a closed door of its own, never.
        participant_shut_in = not _corridor_open_to(trace, state.open_doors, cell)
        protagonist_inside = layout.room_of(other_cell) == own_room
        if not participant_shut_in and (not protagonist_inside or seen_open):
            thought_seen = cell
    rooms = []
    for what, where in (
        ("reality", trace.states[-1].agents[PARTICIPANT][0]),
        ("the protagonist's belief", last_seen),
        ("the participant's belief", thought_seen),
    ):
        room = layout.room_of(where)
        if room is None:
            raise BenchmarkError(f"map {layout.name}: {what} ends in the corridor at {where}")
        rooms.append(room)
    return Beliefs(*rooms)


def _corridor_open_to(trace: Trace, open_doors: tuple[bool, bool, bool], cell: Cell) -> bool:
    """Whether an agent on ``cell`` is in the corridor, or in a room whose door stands open."""
    room = trace.staging.layout.room_of(cell)
    return room is None or open_doors[room]


# Raise it with every change that alters a frame or a text of the same seed.
GENERATOR_VERSION = 1


@dataclass(frozen=True)
class GeneratedVideo:
    """Frames of one version, drawn when asked for."""

    story: Story
    first: Condition
    second: Condition

    def frames(self, perspective: Perspective, ticks: Sequence[int]) -> np.ndarray:
        """Frames ``ticks`` as ``uint8 [N, 420, 294, 3]``."""
        return _drawn(self, perspective, tuple(ticks)).copy()


@lru_cache(maxsize=16)
def _played(story: Story, first: Condition, second: Condition) -> Trace:
    return story.play(first, second)


# Key frames take 2.6 MB; a whole story 15 MB.
@lru_cache(maxsize=6)
def _drawn(film: GeneratedVideo, perspective: Perspective, ticks: tuple[int, ...]) -> np.ndarray:
    return render(_played(film.story, film.first, film.second), perspective, ticks)


def story_record(story: Story) -> StoryRecord:
    """The record of a generated story; simulates one of its versions for the frame numbers.

    Raises:
        BenchmarkError: the simulation does not give the beliefs that the plot wants.
    """
    cast, rooms = story.cast, story.rooms
    nodes = _played(story, "TB", "TB").nodes
    colors = {"participant": cast.participant, "protagonist": cast.protagonist}
    colors |= {f"room_{i}": room for i, room in enumerate(rooms, start=1)}
    versions: list[tuple[Order, Condition, Condition | None]] = [
        *((1, first, None) for first in CONDITIONS),
        *((2, first, second) for first, second in COMBINATIONS),
    ]
    cases = []
    for order, first, second in versions:
        reality, believed, thought = beliefs(cast, first, second)
        cases.append(
            BeliefCase(
                story=story.index,
                order=order,
                first=first,
                second=second,
                cast=cast,
                question=(
                    first_order(cast, believed) if order == 1 else second_order(cast, thought)
                ),
                captions={p: caption(cast, first, second, p) for p in PERSPECTIVES},
                nodes=nodes,
                reality=reality,
                believed=believed,
                thought=thought,
                film=GeneratedVideo(story, first, second or "TB"),
            )
        )
    return StoryRecord(
        index=story.index,
        cast=cast,
        colors=colors,
        nodes=nodes,
        rooms=rooms,
        environment=environment(rooms),
        initial_environment=initial_environment(),
        initial=initial_questions(cast, rooms, nodes),
        versions=tuple(cases),
        map=story.staging.layout.name,
    )


@lru_cache(maxsize=4)
def seeded_stories(seed: int) -> tuple[Story, ...]:
    """All stories of a seed, drawn once."""
    return tuple(generate(seed))


def _record_of_seed(seed: int, index: int) -> StoryRecord:
    return story_record(seeded_stories(seed)[index])


def _identity_of_seed(seed: int, index: int) -> Identity:
    story = seeded_stories(seed)[index]
    return identity_of(index, story.cast, story.rooms, story.staging.layout.name)


def _fingerprint_of_seed(seed: int) -> str:
    """Hash of version, seed, stagings and texts; simulates nothing."""
    digest = hashlib.sha256(f"gridtom {GENERATOR_VERSION} {seed}".encode())
    for story in seeded_stories(seed):
        staging, cast = story.staging, story.cast
        parts: list[object] = [
            story.index,
            staging.layout.rows,
            staging.colours,
            staging.order,
            staging.starts,
            staging.directions,
            environment(story.rooms),
            initial_environment(),
            [q.question for q in initial_questions(cast, story.rooms, (0, 0, 0, 0))],
        ]
        for first in CONDITIONS:
            for second in (None, *CONDITIONS):
                _, believed, thought = beliefs(cast, first, second)
                asked = second_order(cast, thought) if second else first_order(cast, believed)
                parts.append(vars(asked))
                parts.extend(caption(cast, first, second, p) for p in PERSPECTIVES)
        digest.update(json.dumps(parts).encode())
    return digest.hexdigest()


def generated(seed: int = DEFAULT_SEED, stories: Iterable[int] | None = None) -> StorySet:
    """The benchmark's stories, made in memory; each is simulated when it is asked for.

    Args:
        seed: draws starts, directions and colours.
        stories: numbers of the wanted stories; all 648 by default.

    Raises:
        BenchmarkError: a number is unknown.
    """
    everything = StorySet(
        range(len(seeded_stories(seed))),
        partial(_record_of_seed, seed),
        f"generated with seed {seed}",
        partial(_fingerprint_of_seed, seed),
        partial(_identity_of_seed, seed),
    )
    return everything if stories is None else everything.subset(stories)


def open_stories(data: Path | None, seed: int = DEFAULT_SEED) -> StorySet:
    """Stories of a folder, or generated ones.

    Args:
        data: folder with ``info.json``; None for generated stories.
        seed: seed of generated stories; a folder has its own.

    Raises:
        BenchmarkError: the folder is not usable; the message says what and where.
    """
    return generated(seed) if data is None else load(data)
