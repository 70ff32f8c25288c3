"""Breadth-first search on the grid: shortest walks and what is reachable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

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
