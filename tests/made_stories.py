"""GridToM stories made by hand: every word, answer and frame is known without the generator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.gridtom.narration import Cast
from benchmarks.gridtom.questions import BeliefQuestion, InitialQuestion
from benchmarks.gridtom.records import BeliefCase, StoryRecord, StorySet

NODES = (0, 4, 10, 18)
# The frames that models are shown: the nodes, and what lies halfway.
KEY_FRAMES = (0, 2, 4, 7, 10, 14, 18)
# Where the one is believed to be, by the version: the room it walked to last, or first.
BELIEVED = {"TB": "last", "FB": "first"}
THOUGHT = {
    ("TB", "TB"): "last",
    ("FB", "TB"): "first",
    ("TB", "FB"): "first",
    ("FB", "FB"): "last",
}
# Participant, protagonist, and the rooms that are walked to first, second and last.
CASTS = (
    Cast("red", "white", "blue", "green", "purple"),
    Cast("yellow", "orange", "green", "red", "white"),
)


@dataclass(frozen=True)
class GreyFilm:
    """Frame t of version v of story n is grey 40 (n mod 4) + 20 v + t."""

    story: int
    version: int

    def frames(self, perspective: str, ticks: Sequence[int]) -> np.ndarray:
        grey = 40 * (self.story % 4) + 20 * self.version + np.array(ticks, dtype=np.uint8)
        return np.broadcast_to(grey[:, None, None, None], (len(ticks), 420, 294, 3)).copy()


def cast_of(index: int) -> Cast:
    """Stories of even and of odd number have different colours."""
    return CASTS[index % 2]


def right_room(index: int, first: str, second: str | None = None) -> str:
    """The room that is the right answer, by hand."""
    cast = cast_of(index)
    where = BELIEVED[first] if second is None else THOUGHT[first, second]
    return cast.last_room if where == "last" else cast.first_room


def made_story(index: int) -> StoryRecord:
    """Story ``index``."""
    cast = cast_of(index)
    versions: list[BeliefCase] = []
    for first, second in [("TB", None), ("FB", None), *THOUGHT]:
        right = right_room(index, first, second)
        rooms = (cast.first_room, cast.last_room)
        wrong = rooms[1] if right == rooms[0] else rooms[0]
        name = first if second is None else f"{first} and {second}"
        asked = f"Who is where in {name}?"
        versions.append(
            BeliefCase(
                story=index,
                order=1 if second is None else 2,
                first=first,
                second=second,
                cast=cast,
                question=BeliefQuestion(asked, rooms, right, f"In {right}.", f"In {wrong}."),
                captions={
                    view: f"Story {index}, {name}, seen by the {view}."
                    for view in ("omniscient", "protagonist", "participant")
                },
                nodes=NODES,
                reality=cast.last_room,
                believed=right_room(index, first),
                thought=right_room(index, first, second) if second else right_room(index, first),
                film=GreyFilm(index, len(versions) % 2),
            )
        )
    colours = {"participant": cast[0], "protagonist": cast[1]}
    return StoryRecord(
        index=index,
        cast=cast,
        colors=colours | {f"room_{i}": room for i, room in enumerate(cast[2:], start=1)},
        nodes=NODES,
        rooms=(cast[2], cast[3], cast[4]),
        environment=f"World {index}.",
        initial_environment="Some world.",
        initial=(
            InitialQuestion(f"Which agents? ({index})", (cast[0], cast[1]), tuple(cast), (0, 18)),
            InitialQuestion(f"First room? ({index})", (cast[2],), tuple(cast[2:]), (0, 4)),
        ),
        versions=tuple(versions),
        map="made by hand",
    )


def made_stories(indices: Iterable[int] = range(24)) -> StorySet:
    """A set of them."""
    return StorySet(indices, made_story, "stories made by hand", lambda: "0" * 64)
