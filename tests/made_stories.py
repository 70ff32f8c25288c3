"""GridToM stories made by hand: every word, answer and frame is known without the generator."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sally_anne.data.gridtom.narration import BeliefQuestion, Cast, InitialQuestion
from sally_anne.data.gridtom.stories import BeliefCase, StoryRecord, StorySet

NODES = (0, 4, 10, 18)
# The frames that models are shown: the nodes, and what lies halfway.
KEY_FRAMES = (0, 2, 4, 7, 10, 14, 18)
# Where the one is believed to be, by the version: the room it walked to last, or first.
BELIEVED = {"TB": "last", "FB": "first"}
THOUGHT = {("TB", "TB"): "last", ("FB", "TB"): "first", ("TB", "FB"): "first", ("FB", "FB"): "last"}
CASTS = [
    Cast(*colours)
    for colours in itertools.permutations(
        ("red", "white", "blue", "green", "purple", "yellow", "orange"), 5
    )
]
# A map a story, so that each split has some.
STORIES = range(27)


def grey(story: int, version: int, perspective: str, ticks: Sequence[int]) -> np.ndarray:
    """Frame t of version v of story n is grey 40 (n mod 4) + 20 v + t."""
    shade = 40 * (story % 4) + 20 * version + np.array(ticks, dtype=np.uint8)
    return np.broadcast_to(shade[:, None, None, None], (len(ticks), 420, 294, 3))


def cast_of(index: int) -> Cast:
    """Other colours for each story: no two say the same."""
    return CASTS[1091 * index % len(CASTS)]


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
                first=first,
                second=second,
                cast=cast,
                question=BeliefQuestion(asked, rooms, right, f"In {right}.", f"In {wrong}."),
                captions={
                    view: f"Story {index}, {name}, seen by the {view}."
                    for view in ("omniscient", "protagonist", "participant")
                },
                nodes=NODES,
                draw=partial(grey, index, len(versions) % 2),
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
        map=f"map-{index % 27:02d}",
    )


def made_stories(indices: Iterable[int] = STORIES) -> StorySet:
    """A set of them."""
    return StorySet(indices, made_story, "stories made by hand", lambda: "0" * 64)


@dataclass(frozen=True)
class Asked:
    """A question of a made story as a model should be asked it, in words alone."""

    item_id: str
    condition: str
    first: str
    text: str
    options: tuple[str, ...]
    answer: tuple[str, ...]

    @property
    def story(self) -> str:
        return self.item_id.partition("/")[0]


def asked_of(index: int, order: str, setting: str = "text") -> list[Asked]:
    """The questions of story ``index``, put together without the harness.

    With frames, nothing but the world is told to initial-belief questions.
    """
    cast, group = cast_of(index), f"story-{index:04d}"
    if order == "initial":
        told = "Some world."
        told += f" Story {index}, FB, seen by the omniscient." if setting == "text" else ""
        return [
            Asked(f"{group}/initial/{n}", "", "", f"{told} Question: {ask} Answer:", choices, right)
            for n, (ask, choices, right) in enumerate(
                [
                    (f"Which agents? ({index})", tuple(cast), (cast[0], cast[1])),
                    (f"First room? ({index})", tuple(cast[2:]), (cast[2],)),
                ]
            )
        ]
    found = []
    for first, second in [("TB", None), ("FB", None)] if order == "1" else list(THOUGHT):
        name, said = (f"{first}/{second}", f"{first} and {second}") if second else (first, first)
        item_id = f"{group}/{name}"
        rooms = random.Random(f"options/{item_id}").sample((cast.first_room, cast.last_room), 2)
        text = (
            f"World {index}. Story {index}, {said}, seen by the omniscient. Question: Who is where "
            f"in {said}? Choose one: {rooms[0]} or {rooms[1]}. Answer:"
        )
        right = right_room(index, first, second)
        found.append(Asked(item_id, second or first, first, text, tuple(rooms), (right,)))
    return found


# What is replied to the first eight questions: rightly, in JSON, wrongly, in part, not at all.
REPLIES = {
    "1": "right right json wrong wrong right none json",
    "2": "right right wrong right json wrong json none",
    "initial": "right right json wrong part right none json",
}
# What comes of it, counted by hand. Nothing but JSON is an answer to the official reader of
# beliefs; of initial beliefs a room is the whole reply, and agents are named anywhere in it.
NUMBERS = {
    "1": {
        "robust": {"TB": 2 / 4, "FB": 3 / 4, "Both": 1 / 4, "invalid": 1 / 8},
        "official": {"TB": 1 / 4, "FB": 1 / 4, "Both": 0 / 4, "invalid": 6 / 8},
    },
    "2": {
        "robust": {"TB": 3 / 4, "FB": 2 / 4, "Both": 2 / 4, "invalid": 1 / 8},
        "official": {"TB": 1 / 4, "FB": 1 / 4, "Both": 1 / 4, "invalid": 6 / 8},
    },
    "initial": {
        "robust": {"accuracy": 5 / 8, "invalid": 1 / 8},
        "official": {"accuracy": 4 / 8, "invalid": 3 / 8},
    },
}


def reply_to(asked: Asked, kind: str) -> str:
    """A reply of this kind."""
    wrong = [option for option in asked.options if option not in asked.answer]
    return {
        "right": " and ".join(asked.answer),
        "json": json.dumps({"answer": asked.answer if len(asked.answer) > 1 else asked.answer[0]}),
        "wrong": f"It is {wrong[-1]}.",
        "part": asked.answer[0],
        "none": "I cannot tell.",
    }[kind]


def replies(order: str, asked: Sequence[Asked]) -> list[str]:
    """The planted replies to the first eight questions."""
    return [reply_to(a, kind) for a, kind in zip(asked, REPLIES[order].split(), strict=True)]
