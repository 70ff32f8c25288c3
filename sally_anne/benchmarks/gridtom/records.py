"""The one way to stories: generated in memory, or read from a folder.

``open_stories(None)`` and ``open_stories(folder)`` give the same :class:`StorySet`; nothing above
this room asks which it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from sally_anne.benchmarks.gridtom.load import load
from sally_anne.benchmarks.gridtom.narration import caption, environment, initial_environment
from sally_anne.benchmarks.gridtom.plot import Condition, Trace
from sally_anne.benchmarks.gridtom.questions import first_order, initial_questions, second_order
from sally_anne.benchmarks.gridtom.records_types import (
    COMBINATIONS,
    CONDITIONS,
    BeliefCase,
    Film,
    Identity,
    Order,
    StoryRecord,
    StorySet,
    beliefs,
    identity_of,
)
from sally_anne.benchmarks.gridtom.render import PERSPECTIVES, Perspective, render
from sally_anne.benchmarks.gridtom.stories import DEFAULT_SEED, Story, generate

__all__ = [
    "COMBINATIONS",
    "CONDITIONS",
    "DEFAULT_SEED",
    "GENERATOR_VERSION",
    "BeliefCase",
    "Film",
    "Identity",
    "Order",
    "StoryRecord",
    "StorySet",
    "generated",
    "open_stories",
    "seeded_stories",
    "story_record",
]

# Raise it with every change that alters a frame or a text of the same seed.
GENERATOR_VERSION = 1


@dataclass(frozen=True)
class GeneratedFilm:
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
def _drawn(film: GeneratedFilm, perspective: Perspective, ticks: tuple[int, ...]) -> np.ndarray:
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
                film=GeneratedFilm(story, first, second or "TB"),
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
