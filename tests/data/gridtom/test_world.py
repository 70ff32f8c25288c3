"""Maps and search, and what can be seen, against independent floods of the characters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.data.gridtom.plot import (
    Cell,
    Layout,
    benchmark_layouts,
    random_layouts,
    search,
    shortest_walk,
    start_pairs,
    visible,
)

CELLS = [(x, y) for x in range(6) for y in range(5)]


def around(cell: Cell) -> list[Cell]:
    x, y = cell
    return [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]


def flood(rows: tuple[str, ...], start: Cell, passable: str) -> set[Cell]:
    """Cells with these characters that are connected with ``start``."""
    reached: set[Cell] = set()
    todo = [start]
    while todo:
        x, y = todo.pop()
        if (x, y) not in reached and rows[y][x] in passable:
            reached.add((x, y))
            todo += around((x, y))
    return reached


def where(rows: tuple[str, ...], mark: str) -> set[Cell]:
    return {(x, y) for y, row in enumerate(rows) for x, c in enumerate(row) if c == mark}


def check_plainly(layout: Layout) -> None:
    """What any usable map must have."""
    rows = layout.rows
    assert (len(rows), {len(row) for row in rows}) == (10, {7})
    edge = {*rows[0], *rows[-1], *(row[0] for row in rows), *(row[-1] for row in rows)}
    assert edge == {"#"} and set("".join(rows)) == set("#.123ABC")
    corridor = where(rows, ".")
    assert flood(rows, min(corridor), ".") == corridor
    for door, room in zip("ABC", "123", strict=True):
        assert len(where(rows, door)) == 1
        floor = where(rows, room)
        assert len(floor) >= 2
        assert flood(rows, min(floor), room) == floor
        # Opening this door alone joins this room, and no other, to the corridor.
        joined = flood(rows, min(corridor), "." + door + "123")
        assert joined == corridor | where(rows, door) | floor
    assert len(start_pairs(layout)) >= 2


def test_the_27_maps_are_usable() -> None:
    layouts = benchmark_layouts()
    assert len({layout.rows for layout in layouts}) == len({m.name for m in layouts}) == 27
    for layout in layouts:
        check_plainly(layout)


def test_random_maps_are_usable_new_and_repeatable() -> None:
    first, again = random_layouts(5), random_layouts(5)
    drawn = [next(first) for _ in range(10)]
    assert drawn == [next(again) for _ in range(10)]
    assert len({m.rows for m in drawn} | {m.rows for m in benchmark_layouts()}) == 37
    for layout in drawn:
        check_plainly(layout)


def distances(start: Cell, free: set[Cell]) -> dict[Cell, int]:
    """Shortest distances by repeating until nothing changes (Bellman-Ford)."""
    known = {start: 0}
    changed = True
    while changed:
        changed = False
        for cell, steps in list(known.items()):
            for near in around(cell):
                if near in free and steps + 1 < known.get(near, 99):
                    known[near] = steps + 1
                    changed = True
    return known


@settings(max_examples=200, deadline=None)
@given(
    free=st.sets(st.sampled_from(CELLS)),
    start=st.sampled_from(CELLS),
    goal=st.sampled_from(CELLS),
)
def test_a_walk_is_shortest_and_connected(free: set[Cell], start: Cell, goal: Cell) -> None:
    known = distances(start, free)
    assert search(start, free).keys() == known.keys()
    if goal not in known:
        with pytest.raises(KeyError):
            shortest_walk(start, goal, free)
        return
    walk = shortest_walk(start, goal, free)
    assert len(walk) == known[goal] and set(walk) <= free
    steps = [start, *walk]
    assert steps[-1] == goal
    assert all(b in around(a) for a, b in zip(steps, walk, strict=False))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), layout=st.sampled_from(benchmark_layouts()))
def test_an_agent_sees_what_no_closed_door_hides(data: st.DataObject, layout: Layout) -> None:
    cell = data.draw(st.sampled_from(layout.marked(".123")))
    doors = data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    clear = ".123" + "".join(d for d, is_open in zip("ABC", doors, strict=True) if is_open)
    reached = flood(layout.rows, cell, clear)
    assert visible(layout, cell, doors) == reached.union(*map(around, reached))
