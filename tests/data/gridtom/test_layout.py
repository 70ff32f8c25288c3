"""Maps: which are accepted, which are refused and why."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import MapError
from sally_anne.data.gridtom.world import (
    COLUMNS,
    ROWS,
    Layout,
    benchmark_layouts,
    random_layouts,
    start_pairs,
)

GOOD = benchmark_layouts()[0].rows


def flood(rows: tuple[str, ...], start: tuple[int, int], passable: str) -> set[tuple[int, int]]:
    """Independent flood fill over characters."""
    found, todo = set(), [start]
    while todo:
        x, y = todo.pop()
        if (x, y) in found or rows[y][x] not in passable:
            continue
        found.add((x, y))
        todo += [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]
    return found


def where(rows: tuple[str, ...], mark: str) -> set[tuple[int, int]]:
    return {(x, y) for y, row in enumerate(rows) for x, c in enumerate(row) if c == mark}


def check_plainly(rows: tuple[str, ...]) -> None:
    """What any usable map must have, checked without the code under test."""
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


def test_there_are_27_different_maps() -> None:
    layouts = benchmark_layouts()
    assert len({layout.rows for layout in layouts}) == len({m.name for m in layouts}) == 27


@pytest.mark.parametrize("layout", benchmark_layouts(), ids=lambda layout: layout.name)
def test_benchmark_map_is_usable(layout: Layout) -> None:
    assert (len(layout.rows), {len(r) for r in layout.rows}) == (10, {7})
    check_plainly(layout.rows)
    assert len(start_pairs(layout)) >= 2


def test_random_maps_are_usable_new_and_repeatable() -> None:
    first, again = random_layouts(5), random_layouts(5)
    drawn = [next(first) for _ in range(10)]
    assert drawn == [next(again) for _ in range(10)]
    assert len({m.rows for m in drawn} | {m.rows for m in benchmark_layouts()}) == 37
    for layout in drawn:
        check_plainly(layout.rows)


def test_rooms_doors_and_thresholds() -> None:
    layout = benchmark_layouts()[0]
    assert layout.doors == ((5, 4), (4, 6), (1, 6))
    assert layout.thresholds == (((5, 5), (5, 3)), ((4, 5), (4, 7)), ((1, 5), (1, 7)))
    assert [layout.room_of(c) for c in ((5, 3), (5, 4), (4, 8), (1, 1))] == [0, 0, 1, None]
    assert layout.mark((-1, 0)) == layout.mark((0, 99)) == "#"


def changed(cell: tuple[int, int], mark: str) -> tuple[str, ...]:
    x, y = cell
    return tuple(r[:x] + mark + r[x + 1 :] if i == y else r for i, r in enumerate(GOOD))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (GOOD[:-1], "10 rows of 7"),
        ((*GOOD[:-1], "######"), "10 rows of 7"),
        (changed((1, 1), "x"), r"unknown characters \['x'\]"),
        (changed((5, 4), "#"), "door A must occur once, occurs 0 times"),
        (changed((4, 4), "A"), "door A must occur once, occurs 2 times"),
        (changed((0, 1), "."), r"edge must be wall, \(0, 1\)"),
        (changed((4, 7), "#"), "room 2 needs at least two cells"),
        (changed((4, 3), "#"), "room 1 is in several pieces"),
        (changed((3, 2), "."), "room 1 is not enclosed"),
        (changed((4, 5), "#"), "door B must lead from room 2 to the corridor"),
        (changed((1, 3), "#"), "corridor is in several pieces"),
        (tuple(r.replace(".", "#") for r in GOOD), "must lead from room 1 to the corridor"),
    ],
)
def test_broken_map_is_refused_with_the_reason(rows: tuple[str, ...], reason: str) -> None:
    with pytest.raises(MapError, match=f"map broken: .*{reason}"):
        Layout("broken", rows)


@settings(max_examples=200, deadline=None)
@given(
    layout=st.sampled_from(benchmark_layouts()),
    x=st.integers(0, COLUMNS - 1),
    y=st.integers(0, ROWS - 1),
    mark=st.sampled_from("#.123ABC?"),
)
def test_a_changed_cell_leaves_a_usable_map_or_a_map_error(
    layout: Layout, x: int, y: int, mark: str
) -> None:
    rows = tuple(r[:x] + mark + r[x + 1 :] if i == y else r for i, r in enumerate(layout.rows))
    try:
        accepted = Layout("mutant", rows)
    except MapError as error:
        assert str(error).startswith("map mutant: ")
        assert rows != layout.rows
    else:
        check_plainly(accepted.rows)
