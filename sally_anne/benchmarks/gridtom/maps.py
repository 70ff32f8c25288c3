"""The 27 maps of the benchmark, and further random ones for training data.

The 27 were drawn once by :func:`random_layouts` (seed 27), looked at, and are fixed here, so that
the benchmark never changes with a library's random numbers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from sally_anne.benchmarks.gridtom.layout import (
    COLUMNS,
    CORRIDOR,
    DOOR_MARKS,
    ROOM_MARKS,
    ROOMS,
    ROWS,
    WALL,
    Layout,
)
from sally_anne.benchmarks.gridtom.paths import Cell, breadth_first, neighbours
from sally_anne.core.errors import MapError

_ROOM_SIZES = ((1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (1, 3), (3, 1))

_BENCHMARK_MAPS = """
#######
#.....#
#.#####
#.#111#
#.###A#
#.....#
#C##B##
#33#2##
#33#2##
#######

#######
#.#222#
#.#222#
#.#B###
#.....#
#A###.#
#111#.#
#####.#
#33C..#
#######

#######
#333#.#
#333C.#
#####.#
#22#..#
#B##..#
#.....#
#.#####
#.A111#
#######

#######
##3#..#
##3#..#
##C#..#
#.....#
#B##A##
#22#1##
#22#1##
#22####
#######

#######
#######
#11#22#
#11##B#
#11A..#
#####.#
##33C.#
#####.#
#.....#
#######

#######
#..#22#
#..B22#
#..#22#
#..####
#..C33#
##A#33#
#11#33#
#######
#######

#######
#..#22#
#..B22#
#..####
#..####
#..C33#
#.#####
#.A11##
#.#11##
#######

#######
#111#.#
#A###.#
#.....#
#C#...#
#3##B##
#3##2##
#3##2##
####2##
#######

#######
#...###
#...B2#
#...#2#
#...###
#C#A###
#3#11##
#3#11##
#3#####
#######

#######
#.B222#
#.#222#
#.#####
#..A11#
#..####
#.#####
#.C333#
#.#####
#######

#######
###...#
#1#...#
#1A...#
###.#C#
###B#3#
##22#3#
##22#3#
##22###
#######

#######
#.#111#
#.#111#
#.###A#
#.....#
#####.#
#222B.#
#####.#
#33C..#
#######

#######
####22#
#11##B#
#11#..#
#11#..#
##A#..#
#.....#
#C##..#
#33#..#
#######

#######
#.#333#
#.#C###
#...A1#
#...#1#
#..####
#..#22#
#..B22#
#..####
#######

#######
#11A..#
#11#..#
#11#..#
####..#
#2B...#
#2#...#
#####.#
##33C.#
#######

#######
##222##
####B##
#11#..#
#11#..#
##A#..#
#.....#
#####.#
##33C.#
#######

#######
##22###
##B##3#
#...C3#
#...###
#.#####
#.#11##
#.#11##
#.A11##
#######

#######
#33C..#
#33#..#
#####.#
##22B.#
#####.#
#111#.#
#111A.#
#####.#
#######

#######
#22#..#
#22#..#
#22B..#
#####.#
##11A.#
#####.#
####..#
#33C..#
#######

#######
#.B222#
#.#####
#.#####
#.#11##
#.A11##
#.#####
#..#3##
#..C3##
#######

#######
#####.#
#333C.#
#333#.#
#####.#
#11A..#
####..#
#####.#
#222B.#
#######

#######
#..B22#
#..#22#
#..#22#
#..####
#..####
#..A11#
#.#####
#.C333#
#######

#######
#.C33##
#.#####
#.#11##
#.A11##
#.#11##
#.#####
#..B22#
#..####
#######

#######
##33C.#
##33#.#
#####.#
#.....#
###.#A#
#2#.#1#
#2#.#1#
#2B.###
#######

#######
#111#.#
###A#.#
###...#
#3#...#
#3C...#
#####.#
#222#.#
#222B.#
#######

#######
##11#3#
##A##3#
#...C3#
#...###
#..####
#..#22#
#..B22#
#..#22#
#######

#######
#333#.#
##C##.#
#.....#
#.....#
#..#B##
##A#22#
##1#22#
##1#22#
#######
"""


@cache
def benchmark_layouts() -> tuple[Layout, ...]:
    """The 27 maps, each validated."""
    blocks = _BENCHMARK_MAPS.strip().split("\n\n")
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
