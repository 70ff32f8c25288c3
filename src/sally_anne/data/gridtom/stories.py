"""Story records, cases and sets, and the 648 generated stories (paper, section 3.1, appendix I)."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from sally_anne.core.errors import BenchmarkError
from sally_anne.data.gridtom import narration, plot
from sally_anne.data.gridtom.plot import PLOTS, Cast, Condition, Nodes, Perspective, Plot, Story
from sally_anne.data.gridtom.render import key_frames, render
from sally_anne.data.items import Setting

Order = Literal[1, 2]
# In every release: two starts, two orientations, six orders of the rooms.
STORIES_PER_MAP = 24
# The number of a story in which the participant returns is so much above that of the moving one.
RETURNING = 648
CONDITIONS: tuple[Condition, Condition] = ("TB", "FB")
# (first, second) of second order, those without a second-order false belief in front.
COMBINATIONS = tuple((first, second) for second in CONDITIONS for first in CONDITIONS)
# All versions: in first order there is no second.
VERSIONS: tuple[tuple[Condition, Condition | None], ...] = ("TB", None), ("FB", None), *COMBINATIONS


@dataclass(frozen=True)
class BeliefCase:
    """One version of one story, as asked in one order.

    Attributes:
        first, second: belief condition of the protagonist; of the participant, None for order 1.
        nodes: the frames that bound the three stages; the last is the last frame.
        draw: gives the frames of a perspective and ticks.
        folder: of the files with the frames, if they are read.
    """

    story: int
    first: Condition
    second: Condition | None
    cast: Cast
    question: narration.BeliefQuestion
    captions: Mapping[Perspective, str] = field(hash=False)
    nodes: Nodes
    draw: Callable[[Perspective, tuple[int, ...]], np.ndarray] = field(compare=False, repr=False)
    folder: Path | None = field(default=None, compare=False, repr=False)

    @property
    def order(self) -> Order:
        return 1 if self.second is None else 2

    @property
    def condition(self) -> str:
        return self.first if self.second is None else f"{self.first}/{self.second}"

    @property
    def reality(self) -> str:
        return self.cast.last_room

    @property
    def believed(self) -> str:
        """Room in which the protagonist believes it is."""
        return self.cast.beliefs(self.first, self.second)[1]

    @property
    def thought(self) -> str:
        """Room in which the participant thinks that the protagonist believes it is."""
        return self.cast.beliefs(self.first, self.second)[2]

    @property
    def length(self) -> int:
        return self.nodes[3] + 1

    def frames(
        self, perspective: Perspective = "omniscient", ticks: Sequence[int] | None = None
    ) -> np.ndarray:
        """``uint8 [N, 420, 294, 3]``, by default of the seven key frames (paper, section 3.2)."""
        # They are the caller's to change.
        chosen = key_frames(self.nodes) if ticks is None else ticks
        return self.draw(perspective, tuple(chosen)).copy()

    def statement(self, room: str) -> str:
        if room in self.question.options:
            right = room == self.question.answer
            return self.question.statement_true if right else self.question.statement_false
        return narration.belief_statement(self.cast, room, self.order)


class Identity(NamedTuple):
    """What a story is, whatever its number; copies and the two plots of a stage share content."""

    map: str
    content: str
    plot: Plot = "move"


def identity_of(story: Story | StoryRecord) -> Identity:
    """By the map, which the number tells where the release does not, and by the colours."""
    one, other = story.cast.visited(story.plot)
    staged = story.cast._replace(first_room=one, last_room=other)
    content = hashlib.sha256(f"gridtom {' '.join(staged)} / {' '.join(story.rooms)}".encode())
    name = story.map or f"map-{story.index // STORIES_PER_MAP:02d}"
    return Identity(name, content.hexdigest()[:16], story.plot)


@dataclass(frozen=True)
class StoryRecord:
    """One story with all its versions and questions.

    Attributes:
        colors: the release's ``colors`` field, in its order.
        nodes: the frames that bound the three stages, the same in all versions.
        rooms: the room colours in the order of the release, which tells nothing about the plot.
        environment: description of the world; ``initial_environment`` leaves out the number and
            colours of the agents, for the initial-belief questions.
        map: its name; None where the release does not say.
    """

    index: int
    cast: Cast
    colors: Mapping[str, str] = field(hash=False)
    nodes: Nodes
    rooms: tuple[str, str, str]
    environment: str
    initial_environment: str
    initial: tuple[narration.InitialQuestion, ...]
    versions: tuple[BeliefCase, ...] = field(repr=False)
    map: str | None = None
    plot: Plot = "move"

    @property
    def group(self) -> str:
        return f"story-{self.index - (RETURNING if self.plot == 'return' else 0):04d}"

    @property
    def identity(self) -> Identity:
        return identity_of(self)

    def case(self, order: Order, first: Condition, second: Condition | None = None) -> BeliefCase:
        """One version; ``second`` is given only and always for order 2."""
        return {(c.first, c.second): c for c in self.cases(order)}[first, second]

    def cases(self, order: Order) -> list[BeliefCase]:
        """All versions asked in ``order``: TB and FB, or the four combinations."""
        if cases := [case for case in self.versions if case.order == order]:
            return cases
        raise BenchmarkError(
            f"story {self.index} has no questions of order {order}: its release has no "
            "second_order_belief field; use generated stories or our own export"
        )


def beliefs_at_nodes(record: StoryRecord, case: BeliefCase) -> list[tuple[str, str, str]]:
    """Rooms as of ``Cast.beliefs`` at each of the four nodes; in the first all are ``corridor``."""
    # Until the last stage begins, everybody has seen where the participant went.
    alike = ("corridor", record.cast.visited(record.plot)[0], record.cast.first_room)
    return [*((place,) * 3 for place in alike), case.cast.beliefs(case.first, case.second)]


def context_text(
    record: StoryRecord,
    case: BeliefCase,
    perspective: Perspective = "omniscient",
    setting: Setting = "multimodal",
) -> str:
    """The world, and the story in words unless it is video alone (GridToM paper, section 3.2)."""
    world = record.environment
    return world if setting == "video" else f"{world} {case.captions[perspective]}"


def initial_text(record: StoryRecord, question: narration.InitialQuestion, setting: Setting) -> str:
    """The world alone, as in ``init_belief.py`` of the release; without frames also in words."""
    if setting != "text":
        return record.initial_environment
    parts = 1 + sum(question.section[1] > node for node in record.nodes[1:3])
    words = re.split(rf"\s{parts + 1}[.]\s", record.case(1, "FB").captions["omniscient"])[0]
    return f"{record.initial_environment} {words}"


def initial_ticks(nodes: Nodes, question: narration.InitialQuestion) -> tuple[int, ...]:
    """Key frames in the question's section, of the false-belief version as in the release."""
    start, end = question.section
    return tuple(tick for tick in key_frames(nodes) if start <= tick <= end)


class StorySet:
    """Stories of one source, made on demand; ``identity`` tells what one is without its record."""

    def __init__(
        self,
        indices: Iterable[int],
        make: Callable[[int], StoryRecord],
        source: str,
        fingerprint: Callable[[], str],
        identity: Callable[[int], Identity] | None = None,
    ) -> None:
        self.indices: tuple[int, ...] = tuple(indices)
        self.source = source
        self.story = cache(make)
        self.identity = identity or (lambda index: self.story(index).identity)
        self._fingerprint = fingerprint

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> StoryRecord:
        return self.story(self.indices[position])

    def __iter__(self) -> Iterator[StoryRecord]:
        return map(self.story, self.indices)

    def __repr__(self) -> str:
        return f"StorySet({len(self)} stories, {self.source})"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what determines the data; a subset's also covers which stories it has."""
        return self._fingerprint()

    def of_plot(self, which: Plot) -> StorySet:
        """Those of one plot; BenchmarkError if there are none."""
        if indices := [index for index in self.indices if self.identity(index).plot == which]:
            return self.subset(indices)
        raise BenchmarkError(
            f"{self.source} has no story of the plot {which!r}; generated stories have both"
        )

    def check_order(self, order: Order) -> None:
        for record in self:
            record.cases(order)

    def subset(self, indices: Iterable[int]) -> StorySet:
        chosen = tuple(indices)
        if chosen == self.indices:
            return self
        if unknown := set(chosen).difference(self.indices):
            raise BenchmarkError(f"{self.source} has no story {min(unknown)}")

        return StorySet(
            chosen,
            self.story,
            self.source,
            lambda: hashlib.sha256(f"{self.fingerprint} {chosen}".encode()).hexdigest(),
            self.identity,
        )


# Raise it with every change that alters a frame or a text of the same seed.
GENERATOR_VERSION = 1
DEFAULT_SEED = 2025


def generate(seed: int = DEFAULT_SEED, layouts: Sequence[plot.Layout] | None = None) -> list[Story]:
    """All stories: map x starting position x orientation x order of rooms, 24 a map."""
    stories: list[Story] = []
    for layout in plot.benchmark_layouts() if layouts is None else layouts:
        # One generator a map: a change in one map leaves the stories of all others as they are.
        rng = random.Random(f"{seed}/{layout.name}")
        starts = rng.sample(plot.start_pairs(layout), 2)
        a, b = rng.randrange(4), rng.randrange(4)
        orientations = ((a, b), ((a + 2) % 4, (b + 2) % 4))
        orders = itertools.permutations(range(3))
        for start, directions, (i, j, k) in itertools.product(starts, orientations, orders):
            cast = Cast(*rng.sample(plot.COLOURS, 5))
            stories.append(Story(layout, cast, (i, j, k), start, directions, index=len(stories)))
    return stories


def returning(story: Story) -> Story:
    first, own, last = story.order
    back = story.cast._replace(first_room=story.cast.last_room, last_room=story.cast.first_room)
    number = story.index + RETURNING
    return replace(story, cast=back, order=(last, own, first), plot="return", index=number)


@lru_cache(maxsize=4)
def seeded_stories(seed: int) -> dict[int, Story]:
    """All stories of a seed by number, drawn once: of the paper's plot, then of the other."""
    moving = generate(seed)
    return {story.index: story for story in (*moving, *map(returning, moving))}


_played = lru_cache(maxsize=16)(plot.play)
_Version = tuple[Story, Condition, Condition | None]


# Key frames take 2.6 MB; a whole story 15 MB.
@lru_cache(maxsize=6)
def _frames(version: _Version, perspective: Perspective, ticks: tuple[int, ...]) -> np.ndarray:
    return render(_played(*version), perspective, ticks)


def _question(cast: Cast, first: Condition, second: Condition | None) -> narration.BeliefQuestion:
    order: Order = 2 if second else 1
    return narration.question_of(cast, cast.beliefs(first, second)[order], order)


def _captions(story: Story, first: Condition, second: Condition | None) -> dict[Perspective, str]:
    caption = partial(narration.caption, story.cast, first, second, plot=story.plot)
    return {perspective: caption(perspective=perspective) for perspective in plot.PERSPECTIVES}


def _record(story: Story) -> StoryRecord:
    cast, rooms = story.cast, story.rooms
    nodes = _played(story, "TB", None).nodes
    names = "participant", "protagonist", "room_1", "room_2", "room_3"
    return StoryRecord(
        index=story.index,
        cast=cast,
        colors=dict(zip(names, (*cast[:2], *rooms), strict=True)),
        nodes=nodes,
        rooms=rooms,
        environment=narration.environment(rooms),
        initial_environment=narration.environment(),
        initial=narration.initial_questions(cast, rooms, nodes, story.plot),
        versions=tuple(
            BeliefCase(
                story=story.index,
                first=first,
                second=second,
                cast=cast,
                question=_question(cast, first, second),
                captions=_captions(story, first, second),
                nodes=nodes,
                draw=partial(_frames, (story, first, None if second == "TB" else second)),
            )
            for first, second in VERSIONS
        ),
        map=story.layout.name,
        plot=story.plot,
    )


def _fingerprint(seed: int, stories: Iterable[Story]) -> str:
    """Hash of version, seed, stagings and texts; simulates nothing."""
    digest = hashlib.sha256(f"gridtom {GENERATOR_VERSION} {seed}".encode())
    for story in stories:
        cast = story.cast
        initial = narration.initial_questions(cast, story.rooms, (0, 0, 0, 0), story.plot)
        parts: list[object] = [story.index, story.layout.rows, cast, story.order, story.starts]
        parts += [story.directions, narration.environment(story.rooms), narration.environment()]
        parts.append([question.question for question in initial])
        for first, second in itertools.product(CONDITIONS, (None, *CONDITIONS)):
            parts.append(vars(_question(cast, first, second)))
            parts.extend(_captions(story, first, second).values())
        digest.update(json.dumps(parts).encode())
    return digest.hexdigest()


def generated(
    seed: int = DEFAULT_SEED,
    stories: Iterable[int] | None = None,
    plots: tuple[Plot, ...] = PLOTS[:1],
    layouts: Sequence[plot.Layout] | None = None,
) -> StorySet:
    """The benchmark's stories, or those of some numbers or of other maps, simulated on demand."""
    every = seeded_stories(seed).values() if layouts is None else generate(seed, layouts)
    drawn = [story for which in plots for story in every if story.plot == which]
    by_index = {story.index: story for story in drawn}
    everything = StorySet(
        by_index,
        lambda index: _record(by_index[index]),
        f"generated with seed {seed}",
        lambda: _fingerprint(seed, drawn),
        lambda index: identity_of(by_index[index]),
    )
    return everything if stories is None else everything.subset(stories)
