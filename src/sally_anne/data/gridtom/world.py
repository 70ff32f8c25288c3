"""The grid world: its maps, colours, agents and doors, and what can be seen.

The 27 maps were drawn once by :func:`random_layouts` (seed 27) and are fixed in maps.txt.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path

import numpy as np
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_TO_IDX, COLORS
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Floor, Wall, WorldObj
from minigrid.utils.rendering import (
    downsample,
    fill_coords,
    point_in_rect,
    point_in_triangle,
    rotate_fn,
)

from sally_anne.core.errors import BenchmarkError, MapError

Cell = tuple[int, int]

# minigrid's order of directions: right, down, left, up.
STEPS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))


def neighbours(cell: Cell) -> list[Cell]:
    """The four cells next to ``cell``, in minigrid's order of directions."""
    return [(cell[0] + dx, cell[1] + dy) for dx, dy in STEPS]


def _steps_from(starts: Iterable[Cell], free: Callable[[Cell], bool]) -> dict[Cell, Cell]:
    """From where each cell that can be reached is stepped on first, those nearest in front."""
    came_from = {start: start for start in starts}
    queue = deque(came_from)
    while queue:
        cell = queue.popleft()
        for near in neighbours(cell):
            if near not in came_from and free(near):
                came_from[near] = cell
                queue.append(near)
    return came_from


def breadth_first(start: Cell, goal: Cell, free: Callable[[Cell], bool]) -> list[Cell] | None:
    """The cells of a shortest walk, without ``start``; None if there is none.

    Ties are broken by the order of directions.
    """
    came_from = _steps_from([start], free)
    if goal not in came_from:
        return None
    walk = []
    while goal != start:
        walk.append(goal)
        goal = came_from[goal]
    return walk[::-1]


def reachable(starts: Iterable[Cell], free: Callable[[Cell], bool]) -> set[Cell]:
    """All cells that can be reached from ``starts`` over cells for which ``free`` holds."""
    return set(_steps_from(starts, free))


ROWS, COLUMNS = 10, 7
ROOMS = 3
WALL, CORRIDOR = "#", "."
ROOM_MARKS = "123"
# Width and height of a random map's rooms.
_ROOM_SIZES = ((1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (1, 3), (3, 1))
DOOR_MARKS = "ABC"


@dataclass(frozen=True)
class Layout:
    """One validated map: a name, and 10 strings of 7 characters."""

    name: str
    rows: tuple[str, ...]

    def __post_init__(self) -> None:
        _validate(self)

    def mark(self, cell: Cell) -> str:
        """The character at ``cell``; outside the map counts as wall."""
        x, y = cell
        return self.rows[y][x] if 0 <= x < COLUMNS and 0 <= y < ROWS else WALL

    def cells(self) -> Iterator[Cell]:
        """All cells, row by row."""
        return ((x, y) for y in range(ROWS) for x in range(COLUMNS))

    def marked(self, mark: str) -> list[Cell]:
        """The cells with this character, row by row."""
        return [cell for cell in self.cells() if self.mark(cell) == mark]

    @cached_property
    def doors(self) -> tuple[Cell, ...]:
        """Door cell of each room."""
        return tuple(self.marked(mark)[0] for mark in DOOR_MARKS)

    @cached_property
    def thresholds(self) -> tuple[tuple[Cell, Cell], ...]:
        """For each room, the corridor cell before its door and the room cell behind it."""
        pairs = []
        for mark, door in zip(ROOM_MARKS, self.doors, strict=True):
            sides = {self.mark(cell): cell for cell in neighbours(door)}
            pairs.append((sides[CORRIDOR], sides[mark]))
        return tuple(pairs)

    def room_of(self, cell: Cell) -> int | None:
        """Index of the room whose floor or door is at ``cell``; None in the corridor."""
        found = (ROOM_MARKS + DOOR_MARKS).find(self.mark(cell))
        return None if found < 0 else found % ROOMS


def _validate(layout: Layout) -> None:
    """MapError names the map, the rule and the cell."""

    def require(holds: bool, rule: str) -> None:
        if not holds:
            raise MapError(f"map {layout.name}: {rule}")

    def connected(mark: str) -> bool:
        cells = layout.marked(mark)
        return reachable(cells[:1], lambda cell: layout.mark(cell) == mark) == set(cells)

    sized = len(layout.rows) == ROWS and all(len(row) == COLUMNS for row in layout.rows)
    require(sized, f"must have {ROWS} rows of {COLUMNS} cells")
    marks = "".join(layout.rows)
    unknown = sorted(set(marks) - set(WALL + CORRIDOR + ROOM_MARKS + DOOR_MARKS))
    require(not unknown, f"unknown characters {unknown}")
    for door in DOOR_MARKS:
        found = marks.count(door)
        require(found == 1, f"door {door} must occur once, occurs {found} times")
    for x, y in layout.cells():
        mark = layout.mark((x, y))
        on_edge = x in (0, COLUMNS - 1) or y in (0, ROWS - 1)
        require(not on_edge or mark == WALL, f"the edge must be wall, {(x, y)} is {mark!r}")
    for mark, door, place in zip(ROOM_MARKS, DOOR_MARKS, layout.doors, strict=True):
        floor = layout.marked(mark)
        require(len(floor) >= 2, f"room {mark} needs at least two cells")
        require(connected(mark), f"room {mark} is in several pieces")
        for near in (near for cell in floor for near in neighbours(cell)):
            enclosed = layout.mark(near) in (mark, WALL, door)
            require(enclosed, f"room {mark} is not enclosed at {near}")
        right, below, left, above = (layout.mark(cell) for cell in neighbours(place))
        leads = sorted((right, below, left, above)) == sorted((WALL, WALL, CORRIDOR, mark))
        require(leads, f"door {door} must lead from room {mark} to the corridor")
        straight = {left, right} in ({WALL}, {CORRIDOR, mark})
        require(straight, f"door {door} must stand straight between room and corridor")
    require(len(layout.marked(CORRIDOR)) >= 6, "the corridor needs at least six cells")
    require(connected(CORRIDOR), "the corridor is in several pieces")


@cache
def benchmark_layouts() -> tuple[Layout, ...]:
    """The 27 maps, each validated."""
    text = Path(__file__).with_name("maps.txt").read_text(encoding="ascii").strip()
    return tuple(
        Layout(f"map-{i:02d}", tuple(rows.split("\n"))) for i, rows in enumerate(text.split("\n\n"))
    )


def random_layouts(seed: int) -> Iterator[Layout]:
    """Endless random maps without repetition, none of them one of the 27 benchmark maps."""
    rng = random.Random(seed)
    seen = {layout.rows for layout in benchmark_layouts()}
    names = (f"random-{seed}-{count:05d}" for count in itertools.count())
    name = next(names)
    while True:
        rows = _draw(rng)
        if rows is None or rows in seen:
            continue
        with suppress(MapError):
            layout = Layout(name, rows)
            if len(start_pairs(layout)) >= 2:
                seen.add(rows)
                name = next(names)
                yield layout


def start_pairs(layout: Layout) -> list[tuple[Cell, Cell]]:
    """Corridor cells (participant, protagonist) from which every order of rooms can be played.

    The participant must reach each door past the waiting protagonist; neither starts before one.
    """
    fronts = {outside for outside, _ in layout.thresholds}
    corridor = set(layout.marked(CORRIDOR))
    cells = [cell for cell in layout.marked(CORRIDOR) if cell not in fronts]
    return [
        (participant, protagonist)
        for participant, protagonist in itertools.permutations(cells, 2)
        if fronts <= reachable([participant], (corridor - {protagonist}).__contains__)
    ]


def _draw(rng: random.Random) -> tuple[str, ...] | None:
    """One random try: three rectangular rooms with a ring of walls, the rest corridor."""
    grid = {(x, y): WALL for x in range(COLUMNS) for y in range(ROWS)}
    inner = [(x, y) for x in range(1, COLUMNS - 1) for y in range(1, ROWS - 1)]
    rooms: list[list[Cell]] = []
    ring: set[Cell] = set()
    for _ in range(ROOMS):
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


COLOURS: tuple[str, ...] = ("red", "green", "blue", "yellow", "purple", "white")

# minigrid knows all of them but white; its renderer and object codes read these tables.
COLORS.setdefault("white", np.array([255, 255, 255]))
COLOR_TO_IDX.setdefault("white", len(COLOR_TO_IDX))

# The floor of a room is its colour, dimmed so that doors and agents stand out; minigrid's own
# factor of 1/2 would make a white room the grey of the walls.
_FLOOR_LIGHT = 0.7


class RoomFloor(Floor):
    """Floor of a coloured room."""

    def render(self, img: np.ndarray) -> None:  # type: ignore[override]
        """Draw the dimmed colour inside the grid lines."""
        fill_coords(img, point_in_rect(0.031, 1, 0.031, 1), COLORS[self.color] * _FLOOR_LIGHT)


@dataclass
class Agent:
    """A triangle that points where the agent faces; ``ground`` lies under it, in rooms."""

    color: str
    cell: Cell
    direction: int
    ground: WorldObj | None = None


# Pixels of a cell's side, and how much finer it is drawn before it is averaged.
TILE, _FINER = 42, 3
# minigrid fills shapes pixel by pixel in Python, 20 ms each. Agents need hundreds of tiles, so what
# lies under them and their outline are drawn once.
_tiles: dict[tuple[object, ...], np.ndarray] = {}


def tile(thing: Agent | WorldObj | None) -> np.ndarray:
    """A cell as ``Grid.render_tile`` draws it, ``[TILE, TILE, 3]``."""
    if not isinstance(thing, Agent):
        return Grid.render_tile(thing, tile_size=TILE)
    ground = thing.ground.encode() if thing.ground else ()
    key = (thing.color, thing.direction, *ground)
    if key not in _tiles:
        image = Grid.render_tile(thing.ground, tile_size=TILE * _FINER, subdivs=1).copy()
        image[_triangle(thing.direction)] = COLORS[thing.color]
        _tiles[key] = downsample(image, _FINER)
    return _tiles[key]


@cache
def _triangle(direction: int) -> np.ndarray:
    """Mask of an agent that faces ``direction``."""
    triangle = point_in_triangle((0.12, 0.19), (0.87, 0.50), (0.12, 0.81))
    turned = rotate_fn(triangle, cx=0.5, cy=0.5, theta=0.5 * math.pi * direction)
    side = TILE * _FINER
    return fill_coords(np.zeros((side, side), dtype=bool), turned, True)


class World:
    """A map with coloured rooms and their doors, and the agents in it by name."""

    def __init__(
        self, layout: Layout, room_colours: tuple[str, ...], agents: Mapping[str, Agent]
    ) -> None:
        used = [*room_colours, *(a.color for a in agents.values())]
        if unknown := sorted(set(used) - set(COLOURS)):
            raise BenchmarkError(f"unknown colour {unknown[0]!r}; known: {', '.join(COLOURS)}")
        if len(set(used)) < len(used):
            raise BenchmarkError(f"rooms and agents must all differ in colour, got {used}")
        self.layout = layout
        self.agents = dict(agents)
        self.grid = Grid(COLUMNS, ROWS)
        self.doors = [Door(colour) for colour in room_colours]
        things: dict[str, WorldObj] = {WALL: Wall()}
        things |= zip(DOOR_MARKS, self.doors, strict=True)
        things |= zip(ROOM_MARKS, map(RoomFloor, room_colours), strict=True)
        for cell in layout.cells():
            self.grid.set(*cell, things.get(layout.mark(cell)))
        for name, agent in self.agents.items():
            if not self._free(agent.cell):
                raise BenchmarkError(f"map {layout.name}: {name} cannot stand on {agent.cell}")
            agent.ground = self.grid.get(*agent.cell)

    def _free(self, cell: Cell) -> bool:
        thing = self.grid.get(*cell)
        return thing is None or thing.can_overlap()

    def step(self, actions: Mapping[str, Actions]) -> None:
        """Let every named agent act at once, in the order given; BenchmarkError if one cannot."""
        for name, action in actions.items():
            agent = self.agents[name]
            dx, dy = STEPS[agent.direction]
            ahead = (agent.cell[0] + dx, agent.cell[1] + dy)
            if action == Actions.left:
                agent.direction = (agent.direction - 1) % 4
            elif action == Actions.right:
                agent.direction = (agent.direction + 1) % 4
            elif action == Actions.forward:
                occupied = any(a.cell == ahead for a in self.agents.values())
                if not self._free(ahead) or occupied:
                    raise BenchmarkError(f"map {self.layout.name}: {name} cannot walk to {ahead}")
                agent.cell, agent.ground = ahead, self.grid.get(*ahead)
            elif action == Actions.toggle:
                door = self.grid.get(*ahead)
                if not isinstance(door, Door):
                    raise BenchmarkError(f"map {self.layout.name}: no door at {ahead} for {name}")
                door.toggle(None, ahead)
            elif action != Actions.done:
                raise BenchmarkError(f"{name}: action {action!r} has no meaning here")

    def seen_by(self, name: str, overlooked: int | None = None) -> frozenset[Cell]:
        """Cells that the agent sees now: all connected to it, with the walls and doors around.

        A closed door is seen from both sides, what lies behind it is not. Of a room that is
        ``overlooked`` neither the door nor what is behind it is seen, be it open or not.
        """
        clear = tuple(door.is_open and i != overlooked for i, door in enumerate(self.doors))
        seen = _visible(self.layout, self.agents[name].cell, clear)
        return seen if overlooked is None else seen - {self.layout.doors[overlooked]}


# A story looks from some twenty cells; the stories of one map look from the same ones.
@lru_cache(maxsize=8192)
def _visible(layout: Layout, standing: Cell, open_doors: tuple[bool, ...]) -> frozenset[Cell]:
    def open_to_view(cell: Cell) -> bool:
        mark = layout.mark(cell)
        if mark in DOOR_MARKS:
            return open_doors[DOOR_MARKS.index(mark)]
        return mark != WALL

    inside = reachable([standing], open_to_view)
    return frozenset(inside | {b for cell in inside for b in neighbours(cell)})
