"""What a story is to its users: records, cases and sets, whatever source they come from.

The prompts, probes and steering read nothing else of GridToM, so generated stories, our export
and the official release look the same to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, Protocol, overload

import numpy as np

from sally_anne.benchmarks.gridtom.narration import (
    BeliefQuestion,
    Cast,
    InitialQuestion,
    belief_statement,
    place_statement,
)
from sally_anne.benchmarks.gridtom.plot import Condition
from sally_anne.benchmarks.gridtom.render import Perspective, key_frames
from sally_anne.benchmarks.items import Setting
from sally_anne.core.errors import BenchmarkError, MediaError

Order = Literal[1, 2]
# In every release: two starts, two orientations, six orders of the rooms.
STORIES_PER_MAP = 24
# First order: TB, FB. Second order: (first, second), those without a second-order false belief
# in front.
CONDITIONS: tuple[Condition, Condition] = ("TB", "FB")
COMBINATIONS: tuple[tuple[Condition, Condition], ...] = (
    ("TB", "TB"),
    ("FB", "TB"),
    ("TB", "FB"),
    ("FB", "FB"),
)


class Video(Protocol):
    """Where the frames of one version come from."""

    def frames(self, perspective: Perspective, ticks: Sequence[int]) -> np.ndarray:
        """Frames ``ticks`` as ``uint8 [N, 420, 294, 3]``; a new array that the caller may change.

        Raises:
            MediaError: a frame cannot be had; names the file or story.
        """


def beliefs(cast: Cast, first: Condition, second: Condition | None) -> tuple[str, str, str]:
    """Rooms at the end: reality, the protagonist's belief, what the participant thinks that is.

    ``second`` None is the first-order version, in which the participant is not mistaken.
    """
    believed, other = cast.last_room, cast.first_room
    if first == "FB":
        believed, other = other, believed
    return cast.last_room, believed, other if second == "FB" else believed


@dataclass(frozen=True)
class BeliefCase:
    """One version of one story, as asked in one order.

    Attributes:
        story: index of the story.
        first: the protagonist's belief condition.
        second: the participant's; None for order 1.
        cast: the colours by their part.
        question: options, answer and the two belief statements.
        captions: the story told from each perspective.
        nodes: the frames that bound the three stages.
        video: source of the frames; not compared.
    """

    story: int
    first: Condition
    second: Condition | None
    cast: Cast
    question: BeliefQuestion
    captions: Mapping[Perspective, str] = field(hash=False)
    nodes: tuple[int, int, int, int]
    video: Video = field(compare=False, repr=False)

    @property
    def order(self) -> Order:
        """1 asks for the protagonist's belief, 2 for the participant's idea of it."""
        return 1 if self.second is None else 2

    @property
    def reality(self) -> str:
        """Room in which the participant is."""
        return self.cast.last_room

    @property
    def believed(self) -> str:
        """Room in which the protagonist believes it is."""
        return beliefs(self.cast, self.first, self.second)[1]

    @property
    def thought(self) -> str:
        """Room in which the participant thinks that the protagonist believes it is."""
        return beliefs(self.cast, self.first, self.second)[2]

    @property
    def length(self) -> int:
        """Number of frames: the last node is the last frame."""
        return self.nodes[3] + 1

    def frames(
        self, perspective: Perspective = "omniscient", ticks: Sequence[int] | None = None
    ) -> np.ndarray:
        """Frames of this version.

        Args:
            perspective: whose view.
            ticks: frame numbers; the seven key frames by default (paper, section 3.2).

        Returns:
            ``uint8 [N, 420, 294, 3]``.

        Raises:
            MediaError: no frame is asked for, a number lies outside the story, or a file is
                missing or damaged.
        """
        chosen = list(key_frames(self.nodes)) if ticks is None else [int(t) for t in ticks]
        if not chosen:
            raise MediaError(f"story {self.story}: no frame numbers given")
        if wrong := [t for t in chosen if not 0 <= t < self.length]:
            raise MediaError(
                f"story {self.story} (order {self.order}, {self.first}): frame {wrong[0]} does not "
                f"exist; the frames are 0 to {self.length - 1}"
            )
        return self.video.frames(perspective, chosen)

    def statement(self, room: str) -> str:
        """The belief statement that names ``room``, in this order's form.

        Raises:
            BenchmarkError: the story has no such room.
        """
        if room == self.question.answer:
            return self.question.statement_true
        if room in self.question.options:
            return self.question.statement_false
        if room not in self.cast[2:]:
            raise BenchmarkError(
                f"story {self.story} has no {room!r} room; its rooms are {', '.join(self.cast[2:])}"
            )
        return (place_statement if self.order == 1 else belief_statement)(self.cast, room)


class Identity(NamedTuple):
    """What a story is, whatever its number: its ``map``, and a hash of its ``content``.

    Textual twins and renumbered copies share the content.
    """

    map: str
    content: str


def identity_of(index: int, cast: Cast, rooms: Sequence[str], map_name: str | None) -> Identity:
    """Who a story is: by its map and by the colours of which all its texts are made.

    Args:
        index: number of the story; tells the map where it has no name.
        cast: the colours by their part.
        rooms: the room colours in the order in which they are listed.
        map_name: the map's name; None where the release does not say.
    """
    content = hashlib.sha256(f"gridtom {' '.join(cast)} / {' '.join(rooms)}".encode())
    return Identity(map_name or f"map-{index // STORIES_PER_MAP:02d}", content.hexdigest()[:16])


@dataclass(frozen=True)
class StoryRecord:
    """One story with all its versions and questions.

    Attributes:
        index: number of the story in its release.
        cast: the colours by their part in the plot.
        colors: the release's ``colors`` field, in its order.
        nodes: the frames that bound the three stages, the same in all versions.
        rooms: the room colours in the order of the release, which tells nothing about the plot.
        environment: description of the world.
        initial_environment: the same without the number and colours of the agents, for the
            initial-belief questions.
        initial: questions about the scene itself.
        versions: all cases, first order before second.
        map: name of the map; None where the release does not say.
    """

    index: int
    cast: Cast
    colors: Mapping[str, str] = field(hash=False)
    nodes: tuple[int, int, int, int]
    rooms: tuple[str, str, str]
    environment: str
    initial_environment: str
    initial: tuple[InitialQuestion, ...]
    versions: tuple[BeliefCase, ...] = field(repr=False)
    map: str | None = None

    @property
    def group(self) -> str:
        """Name that all variants of this story share; splits never cut a group."""
        return f"story-{self.index:04d}"

    @property
    def identity(self) -> Identity:
        """What it is, whatever its number."""
        return identity_of(self.index, self.cast, self.rooms, self.map)

    def case(self, order: Order, first: Condition, second: Condition | None = None) -> BeliefCase:
        """One version; ``second`` is given only and always for order 2.

        Raises:
            BenchmarkError: there is no such version in this data.
        """
        for case in self.cases(order):
            if (case.first, case.second) == (first, second):
                return case
        hint = "takes no second condition" if order == 1 else "needs first and second condition"
        raise BenchmarkError(
            f"story {self.index}: no case with order {order}, first {first!r}, second {second!r}; "
            f"order {order} {hint}, each 'TB' or 'FB'"
        )

    def cases(self, order: Order) -> list[BeliefCase]:
        """All versions asked in ``order``: TB and FB, or the four combinations.

        Raises:
            BenchmarkError: this data has no questions of that order.
        """
        if order not in (1, 2):
            raise BenchmarkError(f"order must be 1 or 2, got {order!r}")
        found = [case for case in self.versions if case.order == order]
        if not found:
            raise BenchmarkError(
                f"story {self.index} has no questions of order {order}: its release has no "
                "second_order_belief field; use generated stories or our own export"
            )
        return found


def context_text(
    record: StoryRecord,
    case: BeliefCase,
    perspective: Perspective = "omniscient",
    setting: Setting = "multimodal",
    initial: bool = False,
) -> str:
    """What is said before a statement or a question (GridToM paper, section 3.2).

    Args:
        record: the story.
        case: which version.
        perspective: whose knowledge the words tell.
        setting: what the model is given.
        initial: for the initial-belief questions, which ask for what the world's description
            would give away: then it names no colours.

    Returns:
        The world, and the story in words unless the setting is video alone.
    """
    world = record.initial_environment if initial else record.environment
    return world if setting == "video" else f"{world} {case.captions[perspective]}"


class StorySet(Sequence[StoryRecord]):
    """Stories of one source, each made when it is first asked for.

    Args:
        indices: the stories' numbers, in order.
        make: gives the record of one number.
        source: where they come from, for people to read.
        fingerprint: gives the hash of all that determines the data.
        identity: gives what a number's story is, where that can be had without making its record.
    """

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
        self._known = frozenset(self.indices)
        self._make = make
        self._fingerprint = fingerprint
        self._identity = identity
        self._made: dict[int, StoryRecord] = {}

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, position: int) -> StoryRecord: ...
    @overload
    def __getitem__(self, position: slice) -> StorySet: ...
    def __getitem__(self, position: int | slice) -> StoryRecord | StorySet:
        if isinstance(position, slice):
            return self.subset(self.indices[position])
        return self.story(self.indices[position])

    def __repr__(self) -> str:
        return f"StorySet({len(self)} stories, {self.source})"

    def story(self, index: int) -> StoryRecord:
        """The story numbered ``index`` (not the one at that position).

        Raises:
            BenchmarkError: it is not in this set.
        """
        if index not in self._made:
            self._require([index])
            self._made[index] = self._make(index)
        return self._made[index]

    def identity(self, index: int) -> Identity:
        """What the story numbered ``index`` is; BenchmarkError if it is not in this set."""
        self._require([index])
        return self.story(index).identity if self._identity is None else self._identity(index)

    def _require(self, indices: Iterable[int]) -> None:
        if missing := [i for i in indices if i not in self._known]:
            raise BenchmarkError(f"no story {missing[0]} among the {len(self)} of {self.source}")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what determines the data; a subset's also covers which stories it has."""
        return self._fingerprint()

    def subset(self, indices: Iterable[int]) -> StorySet:
        """The stories with these numbers, in this order.

        Raises:
            BenchmarkError: a number is not in this set, or none is given.
        """
        chosen = tuple(indices)
        if chosen == self.indices:
            return self
        if not chosen:
            raise BenchmarkError(f"no stories chosen from {self.source}")
        self._require(chosen)
        if len(set(chosen)) < len(chosen):
            raise BenchmarkError("the same story is chosen twice")

        def fingerprint() -> str:
            return hashlib.sha256(f"{self.fingerprint} {chosen}".encode()).hexdigest()

        return StorySet(chosen, self.story, self.source, fingerprint, self.identity)
