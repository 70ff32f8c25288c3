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


def changed(cell: tuple[int, int], mark: str) -> tuple[str, ...]:
    x, y = cell
    return tuple(r[:x] + mark + r[x + 1 :] if i == y else r for i, r in enumerate(GOOD))


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
