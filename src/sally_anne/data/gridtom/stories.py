"""The 648 stories, generated from a seed or read from a folder (paper, section 3.1, appendix I)."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from sally_anne.core.errors import BenchmarkError
from sally_anne.data.gridtom.load import load
from sally_anne.data.gridtom.maps import Layout, benchmark_layouts, start_pairs
from sally_anne.data.gridtom.narration import (
    BeliefQuestion,
    caption,
    environment,
    first_order,
    initial_environment,
    initial_questions,
    second_order,
)
from sally_anne.data.gridtom.plot import (
    PLOTS,
    Cast,
    Condition,
    Plot,
    Staging,
    Trace,
    final_beliefs,
    play,
)
from sally_anne.data.gridtom.records import (
    CONDITIONS,
    RETURNING,
    VERSIONS,
    BeliefCase,
    Identity,
    StoryRecord,
    StorySet,
    beliefs,
    identity_of,
)
from sally_anne.data.gridtom.render import PERSPECTIVES, Perspective, render
from sally_anne.data.gridtom.world import COLOURS

# Raise it with every change that alters a frame or a text of the same seed.
GENERATOR_VERSION = 1
DEFAULT_SEED = 2025
STARTS = 2
ORDERS = tuple((a, b, c) for a, b, c in itertools.permutations(range(3)))


@dataclass(frozen=True)
class Story:
    """One basic story, by its number in the release; its versions are played on demand."""

    index: int
    staging: Staging

    @property
    def cast(self) -> Cast:
        """The colours by their part in the plot."""
        return self.staging.colours

    @property
    def rooms(self) -> tuple[str, str, str]:
        """Room colours in the order of the map, which tells nothing about the plot."""
        return self.staging.rooms

    @property
    def identity(self) -> Identity:
        """What it is, whatever its number."""
        staging = self.staging
        return identity_of(self.index, self.cast, self.rooms, staging.layout.name, staging.plot)

    def returning(self) -> Story:
        """The same on the same stage, but that the participant goes back to where it went first."""
        staging, (one, own, other) = self.staging, self.staging.order
        cast = self.cast._replace(first_room=self.cast.last_room, last_room=self.cast.first_room)
        return Story(
            self.index + RETURNING,
            replace(staging, colours=cast, order=(other, own, one), plot="return"),
        )

    def play(self, first: Condition, second: Condition = "TB") -> Trace:
        """Play one version; BenchmarkError if its beliefs are not those that the plot wants."""
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
    """All stories: map x starting position x orientation x order of rooms, 24 a map."""
    stories: list[Story] = []
    for layout in benchmark_layouts() if layouts is None else layouts:
        # One generator a map: a change in one map leaves the stories of all others as they are.
        rng = random.Random(f"{seed}/{layout.name}")
        starts = rng.sample(start_pairs(layout), STARTS)
        a, b = rng.randrange(4), rng.randrange(4)
        orientations = ((a, b), ((a + 2) % 4, (b + 2) % 4))
        for start, directions, order in itertools.product(starts, orientations, ORDERS):
            cast = Cast(*rng.sample(COLOURS, 5))
            stories.append(Story(len(stories), Staging(layout, cast, order, start, directions)))
    return stories


@lru_cache(maxsize=4)
def seeded_stories(seed: int, plots: tuple[Plot, ...] = PLOTS[:1]) -> tuple[Story, ...]:
    """All stories of a seed, drawn once; of each plot in turn."""
    if plots == ("move",):
        return tuple(generate(seed))
    moving = seeded_stories(seed)
    return tuple(s if plot == "move" else s.returning() for plot in plots for s in moving)


def story_of(seed: int, index: int) -> Story:
    """The story with this number, of either plot."""
    moving = seeded_stories(seed)[index % RETURNING]
    return moving if index < RETURNING else moving.returning()


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


def _question(cast: Cast, first: Condition, second: Condition | None) -> BeliefQuestion:
    _, believed, thought = beliefs(cast, first, second)
    return second_order(cast, thought) if second else first_order(cast, believed)


def _record(story: Story) -> StoryRecord:
    """Its record; simulates one of its versions for the frame numbers."""
    cast, rooms, plot = story.cast, story.rooms, story.staging.plot
    nodes = _played(story, "TB", "TB").nodes
    colors = {"participant": cast.participant, "protagonist": cast.protagonist}
    colors |= {f"room_{i}": room for i, room in enumerate(rooms, start=1)}
    return StoryRecord(
        index=story.index,
        cast=cast,
        colors=colors,
        nodes=nodes,
        rooms=rooms,
        environment=environment(rooms),
        initial_environment=initial_environment(),
        initial=initial_questions(cast, rooms, nodes, plot),
        versions=tuple(
            BeliefCase(
                story=story.index,
                first=first,
                second=second,
                cast=cast,
                question=_question(cast, first, second),
                captions={p: caption(cast, first, second, p, plot) for p in PERSPECTIVES},
                nodes=nodes,
                video=GeneratedVideo(story, first, second or "TB"),
            )
            for first, second in VERSIONS
        ),
        map=story.staging.layout.name,
        plot=plot,
    )


def _fingerprint(seed: int, stories: Iterable[Story]) -> str:
    """Hash of version, seed, stagings and texts; simulates nothing."""
    digest = hashlib.sha256(f"gridtom {GENERATOR_VERSION} {seed}".encode())
    for story in stories:
        staging, cast, plot = story.staging, story.cast, story.staging.plot
        parts: list[object] = [
            story.index,
            staging.layout.rows,
            staging.colours,
            staging.order,
            staging.starts,
            staging.directions,
            environment(story.rooms),
            initial_environment(),
            [q.question for q in initial_questions(cast, story.rooms, (0, 0, 0, 0), plot)],
        ]
        for first in CONDITIONS:
            for second in (None, *CONDITIONS):
                parts.append(vars(_question(cast, first, second)))
                parts.extend(caption(cast, first, second, p, plot) for p in PERSPECTIVES)
        digest.update(json.dumps(parts).encode())
    return digest.hexdigest()


def generated(
    seed: int = DEFAULT_SEED,
    stories: Iterable[int] | None = None,
    plots: tuple[Plot, ...] = PLOTS[:1],
    layouts: Sequence[Layout] | None = None,
) -> StorySet:
    """The benchmark's stories, or those of some numbers; each is simulated when it is asked for.

    By default those of the paper's plot; ``plots`` may name both. With ``layouts`` stories of the
    paper's plot on these maps, which are none of the benchmark's.
    """
    every = seeded_stories(seed, plots) if layouts is None else tuple(generate(seed, layouts))
    drawn = {story.index: story for story in every}
    everything = StorySet(
        drawn,
        lambda index: _record(drawn[index]),
        f"generated with seed {seed}",
        lambda: _fingerprint(seed, every),
        lambda index: drawn[index].identity,
    )
    return everything if stories is None else everything.subset(stories)


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
