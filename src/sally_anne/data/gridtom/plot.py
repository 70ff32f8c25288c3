"""The grid world, and the unexpected-transfer plot played in it (paper, section 3.1).

The 27 maps were drawn once by :func:`random_layouts` (seed 27) and are fixed in maps.txt. Agents
search their own way; what they come to believe is read off the played story.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from sally_anne.core.errors import BenchmarkError

Cell = tuple[int, int]
# minigrid's order of directions: right, down, left, up.
STEPS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))
ROWS, COLUMNS = 10, 7
WALL, CORRIDOR, ROOM_MARKS, DOOR_MARKS = "#", ".", "123", "ABC"
COLOURS: tuple[str, ...] = ("red", "green", "blue", "yellow", "purple", "white")
# Width and height of a random map's rooms.
_ROOM_SIZES = ((1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (1, 3), (3, 1))


def neighbours(cell: Cell) -> list[Cell]:
    """In minigrid's order of directions."""
    return [(cell[0] + dx, cell[1] + dy) for dx, dy in STEPS]


def search(start: Cell, free: Collection[Cell]) -> dict[Cell, Cell]:
    """Breadth-first: from where each cell that can be reached is stepped on, nearest first."""
    came_from = {start: start}
    queue = deque(came_from)
    while queue:
        cell = queue.popleft()
        for near in neighbours(cell):
            if near in free and near not in came_from:
                came_from[near] = cell
                queue.append(near)
    return came_from


def shortest_walk(start: Cell, goal: Cell, free: Collection[Cell]) -> list[Cell]:
    """The cells after ``start``; ties are broken by the order of directions."""
    came_from = search(start, free)
    walk = [goal]
    while walk[-1] != start:
        walk.append(came_from[walk[-1]])
    return walk[-2::-1]


@dataclass(frozen=True)
class Layout:
    """One map of 10 rows of 7 characters."""

    name: str
    rows: tuple[str, ...]

    def mark(self, cell: Cell) -> str:
        return self.rows[cell[1]][cell[0]]

    def cells(self) -> Iterator[Cell]:
        return ((x, y) for y in range(ROWS) for x in range(COLUMNS))

    def marked(self, marks: str) -> list[Cell]:
        return [cell for cell in self.cells() if self.mark(cell) in marks]

    @cached_property
    def doors(self) -> tuple[Cell, ...]:
        return tuple(self.marked(mark)[0] for mark in DOOR_MARKS)

    @cached_property
    def thresholds(self) -> tuple[tuple[Cell, Cell], ...]:
        """For each room, the corridor cell before its door and the room cell behind it."""
        around = [{self.mark(cell): cell for cell in neighbours(door)} for door in self.doors]
        return tuple((by[CORRIDOR], by[mark]) for by, mark in zip(around, ROOM_MARKS, strict=True))

    def room_of(self, cell: Cell) -> int | None:
        """Index of the room whose floor or door is at ``cell``; None in the corridor."""
        index = (ROOM_MARKS + DOOR_MARKS).find(self.mark(cell))
        return None if index < 0 else index % len(ROOM_MARKS)

    @cached_property
    def parts(self) -> tuple[tuple[Cell, str, int | None], ...]:
        """Each cell, its mark, and the index of its room."""
        return tuple((cell, self.mark(cell), self.room_of(cell)) for cell in self.cells())


@cache
def benchmark_layouts() -> tuple[Layout, ...]:
    maps = Path(__file__).with_name("maps.txt").read_text(encoding="ascii").split("\n\n")
    return tuple(Layout(f"map-{i:02d}", tuple(rows.split())) for i, rows in enumerate(maps))


def random_layouts(seed: int) -> Iterator[Layout]:
    """Endless random maps without repetition, none of them one of the 27 benchmark maps."""
    rng = random.Random(seed)
    known = {layout.rows for layout in benchmark_layouts()}
    count = 0
    while True:
        rows = _draw(rng)
        layout = Layout(f"random-{seed}-{count:05d}", rows or ())
        if rows and rows not in known and _is_usable(layout) and len(start_pairs(layout)) >= 2:
            known.add(rows)
            count += 1
            yield layout


def start_pairs(layout: Layout) -> list[tuple[Cell, Cell]]:
    """Cells (participant, protagonist) from which each door is reached past the waiting other."""
    fronts = {outside for outside, _ in layout.thresholds}
    corridor = layout.marked(CORRIDOR)
    return [
        (participant, protagonist)
        for participant, protagonist in itertools.permutations(corridor, 2)
        if fronts.isdisjoint((participant, protagonist))
        and fronts <= search(participant, {*corridor} - {protagonist}).keys()
    ]


def _is_usable(layout: Layout) -> bool:
    """Whether each door leads from its room alone to the corridor, which is in one piece."""
    around = [sorted(map(layout.mark, neighbours(door))) for door in layout.doors]
    if around != [sorted((WALL, WALL, CORRIDOR, mark)) for mark in ROOM_MARKS]:
        return False
    corridor = layout.marked(CORRIDOR)
    return len(corridor) >= 6 and len(search(corridor[0], corridor)) == len(corridor)


def _draw(rng: random.Random) -> tuple[str, ...] | None:
    """One random try: three rectangular rooms with a ring of walls, the rest corridor."""
    grid = {(x, y): WALL for x in range(COLUMNS) for y in range(ROWS)}
    rooms: list[list[Cell]] = []
    ring: set[Cell] = set()
    for _ in ROOM_MARKS:
        width, height = rng.choice(_ROOM_SIZES)
        x0 = rng.randint(1, COLUMNS - 1 - width)
        y0 = rng.randint(1, ROWS - 1 - height)
        floor = [(x, y) for x in range(x0, x0 + width) for y in range(y0, y0 + height)]
        if not ring.union(*rooms).isdisjoint(floor):
            return None
        around = {(x + dx, y + dy) for x, y in floor for dx in (-1, 0, 1) for dy in (-1, 0, 1)}
        rooms.append(floor)
        ring |= around - set(floor)
    taken = ring.union(*rooms)
    inner = itertools.product(range(1, COLUMNS - 1), range(1, ROWS - 1))
    grid |= {cell: CORRIDOR for cell in inner if cell not in taken}
    for room, floor in enumerate(rooms):
        grid |= dict.fromkeys(floor, ROOM_MARKS[room])
        doors = [
            (x + dx, y + dy)
            for (x, y), (dx, dy) in itertools.product(floor, STEPS)
            if grid.get((x + dx, y + dy)) == WALL and grid.get((x + 2 * dx, y + 2 * dy)) == CORRIDOR
        ]
        if not doors:
            return None
        grid[rng.choice(doors)] = DOOR_MARKS[room]
    return tuple("".join(grid[x, y] for x in range(COLUMNS)) for y in range(ROWS))


# A story looks from some twenty cells; the stories of one map look from the same ones.
@lru_cache(maxsize=8192)
def visible(layout: Layout, standing: Cell, open_doors: tuple[bool, ...]) -> frozenset[Cell]:
    """Cells seen from one: all connected to it by open doors, with the walls and doors around."""
    clear = set(layout.marked(CORRIDOR + ROOM_MARKS))
    clear |= set(itertools.compress(layout.doors, open_doors))
    return frozenset(near for cell in search(standing, clear) for near in (cell, *neighbours(cell)))


PARTICIPANT, PROTAGONIST = "participant", "protagonist"
Perspective = Literal["omniscient", "protagonist", "participant"]
PERSPECTIVES: tuple[Perspective, ...] = ("omniscient", "protagonist", "participant")
Condition = Literal["TB", "FB"]
# move: the paper's. return: the participant has been in the last room before, seen by all; without
# it what is so is always what came last, and whoever is mistaken names the room that came first.
Plot = Literal["move", "return"]
PLOTS: tuple[Plot, ...] = ("move", "return")
Nodes = tuple[int, int, int, int]


class Cast(NamedTuple):
    """Five colours of a story; returning, the participant comes to the first room from the last."""

    participant: str
    protagonist: str
    first_room: str
    own_room: str
    last_room: str

    def visited(self, plot: Plot) -> tuple[str, str]:
        """The participant's two rooms, that which it enters first in front."""
        rooms = self.first_room, self.last_room
        return rooms if plot == "move" else rooms[::-1]

    def beliefs(self, first: Condition, second: Condition | None) -> tuple[str, str, str]:
        """Rooms at the end: reality, the protagonist's belief, the participant's idea of that."""
        rooms = {"TB": self.last_room, "FB": self.first_room}
        mistaken = "TB" if first == "FB" else "FB"
        return self.last_room, rooms[first], rooms[mistaken if second == "FB" else first]


@dataclass(frozen=True)
class Story:
    """One basic story; its versions are played on demand.

    Attributes:
        order: index in the map of the room of each plot role.
        starts: cells of participant and protagonist.
        directions: where they face (0 right, 1 down, 2 left, 3 up).
    """

    layout: Layout
    cast: Cast
    order: tuple[int, int, int]
    starts: tuple[Cell, Cell]
    directions: tuple[int, int]
    plot: Plot = "move"
    index: int = 0

    @property
    def map(self) -> str:
        return self.layout.name

    @property
    def rooms(self) -> tuple[str, str, str]:
        """Room colours in the order of the map, which tells nothing about the plot."""
        one, two, three = (self.cast[2 + self.order.index(room)] for room in range(3))
        return one, two, three


class State(NamedTuple):
    """One tick: where the agents are, which doors (by room) are open, what each agent sees."""

    agents: dict[str, tuple[Cell, int]]
    open_doors: tuple[bool, ...]
    seen: dict[str, frozenset[Cell]]


class Trace(NamedTuple):
    """A played story: one state a tick, and the four ticks that bound its stages."""

    story: Story
    states: tuple[State, ...]
    nodes: Nodes


class _Stage:
    """Moves the agents tick by tick and records every state.

    The protagonist believes that the participant is where it last saw it. The participant models it
    by the same rule, with the protagonist's door as the participant itself last saw it.
    """

    def __init__(self, story: Story) -> None:
        self.layout, self.own_room = story.layout, story.order[1]
        # Where the participant is, is seen by the other, and thinks that it is; all at first.
        self.beliefs = [story.starts[0]] * 3
        self.seen_open = False
        poses = zip(story.starts, story.directions, strict=True)
        self.agents = dict(zip((PARTICIPANT, PROTAGONIST), poses, strict=True))
        self.open_doors = [False] * 3
        # The room at which the participant does not look.
        self.overlooked: int | None = None
        self.states: list[State] = []
        self.tick()

    def ahead(self, name: str) -> Cell:
        (x, y), direction = self.agents[name]
        return x + STEPS[direction][0], y + STEPS[direction][1]

    def tick(self, step: str | None = None, toggle: str | None = None) -> None:
        """Let one agent step forward, and one open or close the door before it, at once."""
        if step is not None:
            self.agents[step] = self.ahead(step), self.agents[step][1]
        if toggle is not None:
            room = self.layout.doors.index(self.ahead(toggle))
            self.open_doors[room] = not self.open_doors[room]
        doors = tuple(self.open_doors)
        seen = {n: visible(self.layout, cell, doors) for n, (cell, _) in self.agents.items()}
        if self.overlooked is not None:
            # Neither the door of that room nor what is behind it, be it open or not.
            watched = tuple(o and room != self.overlooked for room, o in enumerate(doors))
            cells = visible(self.layout, self.agents[PARTICIPANT][0], watched)
            seen[PARTICIPANT] = cells - {self.layout.doors[self.overlooked]}
        self.states.append(State(dict(self.agents), doors, seen))
        self.beliefs[0] = cell = self.agents[PARTICIPANT][0]
        if cell in seen[PROTAGONIST]:
            self.beliefs[1] = cell
        if self.layout.doors[self.own_room] in seen[PARTICIPANT]:
            self.seen_open = doors[self.own_room]
        # To the participant, the other sees it while both stand in the corridor, or while the
        # other's door was last seen open; behind a closed door of its own, never.
        within = self.layout.room_of(cell)
        inside = self.layout.room_of(self.agents[PROTAGONIST][0]) == self.own_room
        if (within is None or doors[within]) and (self.seen_open or not inside):
            self.beliefs[2] = cell

    def face(self, name: str, direction: int) -> None:
        while (facing := self.agents[name][1]) != direction:
            turn = -1 if (direction - facing) % 4 == 3 else 1
            self.agents[name] = self.agents[name][0], (facing + turn) % 4
            self.tick()

    def advance(self, name: str, cell: Cell) -> None:
        """Step on a cell next to the agent."""
        x, y = self.agents[name][0]
        self.face(name, STEPS.index((cell[0] - x, cell[1] - y)))
        self.tick(step=name)

    def go_in(self, name: str, room: int) -> None:
        """Walk to the room's door, open it if it is closed, step in and turn to the door."""
        front, inside = self.layout.thresholds[room]
        door = self.layout.doors[room]
        standing = {cell for agent, (cell, _) in self.agents.items() if agent != name}
        free = set(self.layout.marked(CORRIDOR)) - standing
        for cell in shortest_walk(self.agents[name][0], front, free):
            self.advance(name, cell)
        towards = STEPS.index((door[0] - front[0], door[1] - front[1]))
        self.face(name, towards)
        if not self.open_doors[room]:
            self.tick(toggle=name)
        self.advance(name, door)
        self.advance(name, inside)
        self.face(name, (towards + 2) % 4)

    def change_room(self, old: int, new: int, toggle: str | None = None) -> None:
        """The participant shuts itself in another room; as it steps out, ``toggle`` uses a door."""
        self.tick(step=PARTICIPANT, toggle=toggle)
        self.advance(PARTICIPANT, self.layout.thresholds[old][0])
        self.go_in(PARTICIPANT, new)
        self.tick(toggle=PARTICIPANT)


def play(story: Story, first: Condition, second: Condition | None = None) -> Trace:
    """Play the story; BenchmarkError if the beliefs that follow are not those of the plot.

    Stage 1: the participant goes into the first room and closes its door. Stage 2: the protagonist
    goes into its own room, and closes its door or waits. Stage 3: the participant leaves the first
    room, goes into the last and closes its door. Where it returns, it goes into the last room in
    stage 1, and in stage 2, as long as the protagonist's door is open, from there into the first.

    With ``second`` FB the protagonist's door changes in the very tick in which the participant
    steps out (appendix B.2), unnoticed, and is therefore first left the other way.
    """
    first_room, own_room, last_room = story.order
    door_closed_at_first = (first == "FB") != (second == "FB")
    stage, returns = _Stage(story), story.plot == "return"
    stage.go_in(PARTICIPANT, last_room if returns else first_room)
    stage.tick(toggle=PARTICIPANT)
    end_1 = len(stage.states) - 1
    stage.go_in(PROTAGONIST, own_room)
    if returns:
        stage.tick(toggle=PARTICIPANT)
        stage.change_room(last_room, first_room)
    # Waiting takes the tick that closing takes, so that both conditions share their frame numbers.
    stage.tick(toggle=PROTAGONIST if door_closed_at_first else None)
    end_2 = len(stage.states) - 1
    stage.tick(toggle=PARTICIPANT)
    # By the rule of seeing alone (section 3: nothing is hidden but behind closed doors) it would
    # notice the change. The paper does not say why it does not; here it looks no more at that room.
    stage.overlooked = own_room if second == "FB" else None
    stage.change_room(first_room, last_room, PROTAGONIST if second == "FB" else None)
    expected = story.cast.beliefs(first, second)
    rooms = map(story.layout.room_of, stage.beliefs)
    simulated = tuple("the corridor" if room is None else story.rooms[room] for room in rooms)
    if simulated != expected:
        raise BenchmarkError(
            f"story {story.index} ({story.layout.name}, first order {first}, second order "
            f"{second}): the simulation gives {simulated}, the plot {expected}"
        )
    return Trace(story, tuple(stage.states), (0, end_1, end_2, len(stage.states) - 1))
