"""Acting, seeing and drawing in the grid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.core.actions import Actions
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, WorldObj

from sally_anne.core.errors import BenchmarkError
from sally_anne.data.gridtom.world import (
    TILE,
    Agent,
    Cell,
    Layout,
    RoomFloor,
    World,
    benchmark_layouts,
    tile,
)

LAYOUT = benchmark_layouts()[0]
ROOMS = ("red", "green", "blue")


def flood(layout: Layout, start: Cell, open_doors: tuple[bool, ...]) -> set[Cell]:
    """Cells that light reaches from ``start``, independent of the code under test."""
    clear = ".123" + "".join(d for d, is_open in zip("ABC", open_doors, strict=True) if is_open)
    found: set[Cell] = set()
    todo = [start]
    while todo:
        x, y = todo.pop()
        if (x, y) not in found and (layout.rows[y][x] in clear or (x, y) == start):
            found.add((x, y))
            todo += [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]
    return found


@settings(max_examples=150, deadline=None)
@given(data=st.data(), layout=st.sampled_from(benchmark_layouts()))
def test_an_agent_sees_what_no_closed_door_hides(data: st.DataObject, layout: Layout) -> None:
    cells = [c for c in layout.cells() if layout.mark(c) in ".123"]
    cell = data.draw(st.sampled_from(cells))
    doors = data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    start = layout.marked(".")[0]
    world = World(layout, ROOMS, {"a": Agent("white", start, 0)})
    world.agents["a"].cell = cell
    for room, is_open in enumerate(doors):
        world.doors[room].is_open = is_open
    seen = world.seen_by("a")
    reached = flood(layout, cell, doors)
    around = {(x + dx, y + dy) for x, y in reached for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1))}
    assert seen == reached | around


def test_a_closed_door_hides_and_an_open_one_shows() -> None:
    world = World(LAYOUT, ROOMS, {"a": Agent("white", (1, 1), 0)})
    assert LAYOUT.doors[0] in world.seen_by("a")
    assert (5, 3) not in world.seen_by("a")
    world.doors[0].is_open = True
    assert (5, 3) in world.seen_by("a")
    assert (4, 7) not in world.seen_by("a")


@pytest.mark.parametrize(
    ("rooms", "agents", "problem"),
    [
        (("red", "green", "pink"), {"a": Agent("white", (1, 1), 0)}, "unknown colour 'pink'"),
        (ROOMS, {"a": Agent("red", (1, 1), 0)}, "must all differ"),
        (ROOMS, {"a": Agent("white", (0, 0), 0)}, r"a cannot stand on \(0, 0\)"),
        (ROOMS, {"a": Agent("white", (5, 4), 0)}, r"a cannot stand on \(5, 4\)"),
    ],
)
def test_impossible_worlds_are_refused(
    rooms: tuple[str, ...], agents: dict[str, Agent], problem: str
) -> None:
    with pytest.raises(BenchmarkError, match=problem):
        World(LAYOUT, rooms, agents)


def test_turning_walking_and_toggling() -> None:
    world = World(LAYOUT, ROOMS, {"a": Agent("white", (5, 5), 0)})
    world.step({"a": Actions.left})
    assert world.agents["a"].direction == 3
    with pytest.raises(BenchmarkError, match="cannot walk"):
        world.step({"a": Actions.forward})
    world.step({"a": Actions.toggle})
    assert world.doors[0].is_open
    world.step({"a": Actions.forward})
    assert world.agents["a"].cell == (5, 4)
    assert isinstance(world.agents["a"].ground, Door)
    world.step({"a": Actions.right})
    assert world.agents["a"].direction == 0


@pytest.mark.parametrize("direction", range(4))
@pytest.mark.parametrize("ground", [None, RoomFloor("red"), Door("green", is_open=True)])
def test_tiles_are_those_of_minigrid(direction: int, ground: WorldObj | None) -> None:
    # minigrid's own agent is red.
    agent = Agent("red", (1, 1), direction, ground)
    for _ in range(2):  # the second time from the cache
        expected = Grid.render_tile(ground, agent_dir=direction, tile_size=TILE)
        assert np.array_equal(tile(agent), expected)
        assert np.array_equal(tile(ground), Grid.render_tile(ground, tile_size=TILE))
