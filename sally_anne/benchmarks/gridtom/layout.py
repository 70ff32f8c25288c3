"""A map: which cells are wall, corridor, room and door, and where agents may start.

A map is 10 rows of 7 characters: ``#`` wall, ``.`` corridor, ``1 2 3`` room floors and
``A B C`` the doors of rooms 1, 2, 3. Cells are ``(column, row)`` as in minigrid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from sally_anne.benchmarks.gridtom.paths import Cell, breadth_first, neighbours
from sally_anne.core.errors import MapError

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
