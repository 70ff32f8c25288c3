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
from sally_anne.benchmarks.gridtom.maps import Layout, benchmark_layouts, start_pairs
from sally_anne.benchmarks.gridtom.narration import (
    Cast,
    caption,
    environment,
    first_order,
    initial_environment,
    initial_questions,
    second_order,
)
from sally_anne.benchmarks.gridtom.plot import Condition, Staging, Trace, final_beliefs, play
from sally_anne.benchmarks.gridtom.records import (
    COMBINATIONS,
    CONDITIONS,
    STORIES_PER_MAP,
    BeliefCase,
    Identity,
    StoryRecord,
    StorySet,
    beliefs,
    identity_of,
)
from sally_anne.benchmarks.gridtom.render import PERSPECTIVES, Perspective, render
from sally_anne.benchmarks.gridtom.world import COLOURS
from sally_anne.core.errors import BenchmarkError

# Raise it with every change that alters a frame or a text of the same seed.
GENERATOR_VERSION = 1
DEFAULT_SEED = 2025
STARTS = 2
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
        return self.staging.rooms

    def play(self, first: Condition, second: Condition = "TB") -> Trace:
        """Play one version and check the beliefs that follow from it against the plot.

        Raises:
            BenchmarkError: the simulation does not produce the belief condition asked for.
        """
        trace = play(self.staging, first, second)
        wanted = beliefs(self.cast, first, second)
        found = tuple(self.rooms[room] for room in final_beliefs(trace))
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
        staging = Staging(layout, (a, b, r1, r2, r3), order, start, directions)
        yield Story(number * STORIES_PER_MAP + i, staging)


@lru_cache(maxsize=4)
def seeded_stories(seed: int) -> tuple[Story, ...]:
    """All stories of a seed, drawn once."""
    return tuple(generate(seed))


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
def _drawn(video: GeneratedVideo, perspective: Perspective, ticks: tuple[int, ...]) -> np.ndarray:
    return render(_played(video.story, video.first, video.second), perspective, ticks)


def story_record(story: Story) -> StoryRecord:
    """The record of a generated story; simulates one of its versions for the frame numbers.

    Raises:
        BenchmarkError: the simulation does not give the beliefs that the plot wants.
    """
    cast, rooms = story.cast, story.rooms
    nodes = _played(story, "TB", "TB").nodes
    colors = {"participant": cast.participant, "protagonist": cast.protagonist}
    colors |= {f"room_{i}": room for i, room in enumerate(rooms, start=1)}
    pairs: list[tuple[Condition, Condition | None]] = [(first, None) for first in CONDITIONS]
    cases = []
    for first, second in [*pairs, *COMBINATIONS]:
        _, believed, thought = beliefs(cast, first, second)
        cases.append(
            BeliefCase(
                story=story.index,
                first=first,
                second=second,
                cast=cast,
                question=second_order(cast, thought) if second else first_order(cast, believed),
                captions={p: caption(cast, first, second, p) for p in PERSPECTIVES},
                nodes=nodes,
                video=GeneratedVideo(story, first, second or "TB"),
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
    """Stories of a folder with ``info.json``, or (None) generated ones of a seed.

    Raises:
        BenchmarkError: the folder is not usable; the message says what and where.
    """
    return generated(seed) if data is None else load(data)
