"""Maps: cells and walks over them, the 27 maps of the benchmark, and random ones for training.

The 27 were drawn once by :func:`random_layouts` (seed 27), looked at, and are fixed in maps.txt, so
that the benchmark never changes with a library's random numbers.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from sally_anne.core.errors import MapError

Cell = tuple[int, int]

# minigrid's order of directions: right, down, left, up.
STEPS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))


def neighbours(cell: Cell) -> list[Cell]:
    """The four cells beside ``cell``, in minigrid's order of directions."""
    return [(cell[0] + dx, cell[1] + dy) for dx, dy in STEPS]


def breadth_first(start: Cell, goal: Cell, free: Callable[[Cell], bool]) -> list[Cell] | None:
    """Shortest walk from ``start`` to ``goal`` over cells for which ``free`` holds.

    Returns:
        The cells after ``start``, ending with ``goal``; empty if they are the same;
        None if there is no walk. Ties are broken by the order of directions.
    """
    came_from: dict[Cell, Cell] = {start: start}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        if cell == goal:
            walk = []
            while cell != start:
                walk.append(cell)
                cell = came_from[cell]
            return walk[::-1]
        for beside in neighbours(cell):
            if beside not in came_from and free(beside):
                came_from[beside] = cell
                queue.append(beside)
    return None


def reachable(starts: Iterable[Cell], free: Callable[[Cell], bool]) -> set[Cell]:
    """All cells that can be reached from ``starts`` over cells for which ``free`` holds."""
    seen = set(starts)
    queue = deque(seen)
    while queue:
        for beside in neighbours(queue.popleft()):
            if beside not in seen and free(beside):
                seen.add(beside)
                queue.append(beside)
    return seen


ROWS, COLUMNS = 10, 7
ROOMS = 3
WALL, CORRIDOR = "#", "."
ROOM_MARKS = "123"
DOOR_MARKS = "ABC"


@dataclass(frozen=True)
class Layout:
    """One validated map.

    Attributes:
        name: identifier used in error messages and splits.
        rows: the 10 strings of 7 characters.
    """

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

    @cached_property
    def corridor(self) -> tuple[Cell, ...]:
        """Corridor cells, row by row."""
        return tuple(c for c in self.cells() if self.mark(c) == CORRIDOR)

    @cached_property
    def doors(self) -> tuple[Cell, ...]:
        """Door cell of each room."""
        found = {self.mark(c): c for c in self.cells() if self.mark(c) in DOOR_MARKS}
        return tuple(found[m] for m in DOOR_MARKS)

    @cached_property
    def thresholds(self) -> tuple[tuple[Cell, Cell], ...]:
        """For each room, the corridor cell before its door and the room cell behind it."""
        pairs = []
        for room, door in enumerate(self.doors):
            outside = [c for c in neighbours(door) if self.mark(c) == CORRIDOR]
            inside = [c for c in neighbours(door) if self.mark(c) == ROOM_MARKS[room]]
            pairs.append((outside[0], inside[0]))
        return tuple(pairs)

    def room_of(self, cell: Cell) -> int | None:
        """Index of the room whose floor or door is at ``cell``; None in the corridor."""
        mark = self.mark(cell)
        for marks in (ROOM_MARKS, DOOR_MARKS):
            if mark in marks:
                return marks.index(mark)
        return None


def _validate(layout: Layout) -> None:
    """Check the layout's rules.

    Raises:
        MapError: names the map, the rule and the cell.
    """

    def fail(reason: str) -> None:
        raise MapError(f"map {layout.name}: {reason}")

    if len(layout.rows) != ROWS or any(len(r) != COLUMNS for r in layout.rows):
        fail(f"must have {ROWS} rows of {COLUMNS} cells")
    marks = "".join(layout.rows)
    if unknown := sorted(set(marks) - set(WALL + CORRIDOR + ROOM_MARKS + DOOR_MARKS)):
        fail(f"unknown characters {unknown}")
    for door in DOOR_MARKS:
        if marks.count(door) != 1:
            fail(f"door {door} must occur once, occurs {marks.count(door)} times")
    for cell in layout.cells():
        x, y = cell
        on_edge = x in (0, COLUMNS - 1) or y in (0, ROWS - 1)
        if on_edge and layout.mark(cell) != WALL:
            fail(f"the edge must be wall, {cell} is {layout.mark(cell)!r}")
    for room, mark in enumerate(ROOM_MARKS):
        floor = [c for c in layout.cells() if layout.mark(c) == mark]
        if len(floor) < 2:
            fail(f"room {mark} needs at least two cells")
        if not _connected(floor, lambda c, m=mark: layout.mark(c) == m):  # type: ignore[misc]
            fail(f"room {mark} is in several pieces")
        for cell in floor:
            for beside in neighbours(cell):
                if layout.mark(beside) not in (mark, WALL, DOOR_MARKS[room]):
                    fail(f"room {mark} is not enclosed at {beside}")
        place = next(c for c in layout.cells() if layout.mark(c) == DOOR_MARKS[room])
        sides = sorted(layout.mark(c) for c in neighbours(place))
        if sides != sorted([WALL, WALL, CORRIDOR, mark]):
            fail(f"door {DOOR_MARKS[room]} must lead from room {mark} to the corridor")
        x, y = place
        if {layout.mark((x - 1, y)), layout.mark((x + 1, y))} not in (
            {WALL},
            {CORRIDOR, mark},
        ):
            fail(f"door {DOOR_MARKS[room]} must stand straight between room and corridor")
    corridor = [c for c in layout.cells() if layout.mark(c) == CORRIDOR]
    if len(corridor) < 6:
        fail("the corridor needs at least six cells")
    if not _connected(corridor, lambda c: layout.mark(c) == CORRIDOR):
        fail("the corridor is in several pieces")


def _connected(cells: list[Cell], free: Callable[[Cell], bool]) -> bool:
    return all(breadth_first(cells[0], c, free) is not None for c in cells)


_ROOM_SIZES = ((1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (1, 3), (3, 1))


@cache
def benchmark_layouts() -> tuple[Layout, ...]:
    """The 27 maps, each validated."""
    text = Path(__file__).with_name("maps.txt").read_text(encoding="ascii")
    blocks = text.strip().split("\n\n")
    return tuple(Layout(f"map-{i:02d}", tuple(b.split("\n"))) for i, b in enumerate(blocks))


def random_layouts(seed: int) -> Iterator[Layout]:
    """Endless random maps without repetition, none of them one of the 27 benchmark maps."""
    rng = random.Random(seed)
    seen = {layout.rows for layout in benchmark_layouts()}
    count = 0
    while True:
        rows = _draw(rng)
        if rows is None or rows in seen:
            continue
        try:
            layout = Layout(f"random-{seed}-{count:05d}", rows)
        except MapError:
            continue
        if len(start_pairs(layout)) < 2:
            continue
        seen.add(rows)
        count += 1
        yield layout


def start_pairs(layout: Layout) -> list[tuple[Cell, Cell]]:
    """Corridor cells (participant, protagonist) from which every order of rooms can be played.

    The participant must reach each door past the waiting protagonist, and neither may start
    in front of a door.
    """
    fronts = {outside for outside, _ in layout.thresholds}
    cells = [c for c in layout.corridor if c not in fronts]
    pairs = []
    for participant in cells:
        for protagonist in cells:
            if participant == protagonist:
                continue

            def free(cell: Cell, blocked: Cell = protagonist) -> bool:
                return layout.mark(cell) == CORRIDOR and cell != blocked

            if all(breadth_first(participant, f, free) is not None for f in fronts):
                pairs.append((participant, protagonist))
    return pairs


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
        taken = {c for room in rooms for c in room}
        if any(c in taken or c in ring for c in floor):
            return None
        around = {(x + dx, y + dy) for x, y in floor for dx in (-1, 0, 1) for dy in (-1, 0, 1)}
        if taken & around:
            return None
        rooms.append(floor)
        ring |= around - set(floor)
    for cell in inner:
        if cell not in ring and not any(cell in room for room in rooms):
            grid[cell] = CORRIDOR
    for room, floor in enumerate(rooms):
        for cell in floor:
            grid[cell] = ROOM_MARKS[room]
        doors = []
        for cell in floor:
            for (x, y), (bx, by) in ((cell, b) for b in neighbours(cell)):
                beyond = (2 * bx - x, 2 * by - y)
                if grid.get((bx, by)) == WALL and grid.get(beyond) == CORRIDOR:
                    doors.append((bx, by))
        if not doors:
            return None
        grid[rng.choice(doors)] = DOOR_MARKS[room]
    return tuple("".join(grid[x, y] for x in range(COLUMNS)) for y in range(ROWS))
