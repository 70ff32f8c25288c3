"""The grid world: its maps, and what can be seen from a cell of them.

The 27 maps were drawn once by :func:`random_layouts` (seed 27) and are fixed in maps.txt.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path

Cell = tuple[int, int]
# minigrid's order of directions: right, down, left, up.
STEPS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))
ROWS, COLUMNS = 10, 7
WALL, CORRIDOR, ROOM_MARKS, DOOR_MARKS = "#", ".", "123", "ABC"
COLOURS: tuple[str, ...] = ("red", "green", "blue", "yellow", "purple", "white")
# Width and height of a random map's rooms.
_ROOM_SIZES = ((1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (1, 3), (3, 1))


def neighbours(cell: Cell) -> list[Cell]:
    """The four cells next to ``cell``, in minigrid's order of directions."""
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
    """The cells after ``start``; ties are broken by the order of directions.

    KeyError if there is no way.
    """
    came_from = search(start, free)
    walk = [goal]
    while walk[-1] != start:
        walk.append(came_from[walk[-1]])
    return walk[-2::-1]


@dataclass(frozen=True)
class Layout:
    """One map: a name, and 10 strings of 7 characters."""

    name: str
    rows: tuple[str, ...]

    def mark(self, cell: Cell) -> str:
        """The character at ``cell``."""
        return self.rows[cell[1]][cell[0]]

    def cells(self) -> Iterator[Cell]:
        """All cells, row by row."""
        return ((x, y) for y in range(ROWS) for x in range(COLUMNS))

    def marked(self, marks: str) -> list[Cell]:
        """The cells with one of these characters, row by row."""
        return [cell for cell in self.cells() if self.mark(cell) in marks]

    @cached_property
    def doors(self) -> tuple[Cell, ...]:
        """Door cell of each room."""
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


@cache
def benchmark_layouts() -> tuple[Layout, ...]:
    """The 27 maps."""
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
    """Corridor cells (participant, protagonist) from which every order of rooms can be played.

    The participant must reach each door past the waiting protagonist; neither starts before one.
    """
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
    for mark, door in zip(ROOM_MARKS, layout.doors, strict=True):
        if sorted(map(layout.mark, neighbours(door))) != sorted((WALL, WALL, CORRIDOR, mark)):
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
    """Cells seen from one: all connected to it, with the walls and doors around.

    A closed door is seen from both sides, what lies behind it is not.
    """
    clear = set(layout.marked(CORRIDOR + ROOM_MARKS))
    clear |= set(itertools.compress(layout.doors, open_doors))
    return frozenset(near for cell in search(standing, clear) for near in (cell, *neighbours(cell)))
