"""Breadth-first search against distances found by plain relaxation."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.data.gridtom.world import breadth_first, reachable

CELLS = [(x, y) for x in range(6) for y in range(5)]


def distances(start: tuple[int, int], free: set[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Shortest distances by repeating until nothing changes (Bellman-Ford)."""
    known = {start: 0}
    changed = True
    while changed:
        changed = False
        for (x, y), steps in list(known.items()):
            for beside in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
                if beside in free and steps + 1 < known.get(beside, 99):
                    known[beside] = steps + 1
                    changed = True
    return known


@settings(max_examples=200, deadline=None)
@given(free=st.sets(st.sampled_from(CELLS)), start=st.sampled_from(CELLS), goal=st.integers(0, 29))
def test_walk_is_shortest_and_connected(
    free: set[tuple[int, int]], start: tuple[int, int], goal: int
) -> None:
    target = CELLS[goal]
    known = distances(start, free)
    walk = breadth_first(start, target, free.__contains__)
    assert reachable([start], free.__contains__) == set(known)
    if target not in known:
        assert walk is None
        return
    assert walk is not None
    assert len(walk) == known[target]
    steps = [start, *walk]
    assert steps[-1] == target
    assert set(walk) <= free
    for (ax, ay), (bx, by) in zip(steps, steps[1:], strict=False):
        assert abs(ax - bx) + abs(ay - by) == 1
