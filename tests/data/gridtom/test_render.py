"""Frames: size, what is masked for whom, and the key frames."""

from __future__ import annotations

import numpy as np
import pytest
from minigrid.core.constants import COLORS
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door

from sally_anne.data.gridtom.plot import play
from sally_anne.data.gridtom.render import MASKED, TILE, RoomFloor, key_frames, render, tile
from sally_anne.data.gridtom.stories import generate

STORY = generate()[100]
TICKS = (0, 9, 20, 28, -1)


@pytest.fixture(scope="module")
def trace():
    return play(STORY, "FB")


def cut(frame: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
    x, y = cell
    return frame[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE]


def is_masked(frame: np.ndarray, cell: tuple[int, int]) -> bool:
    return bool((cut(frame, cell) == MASKED).all())


@pytest.mark.parametrize("perspective", ["protagonist", "participant"])
def test_masked_are_just_the_cells_that_the_agent_does_not_see(trace, perspective) -> None:
    layout = STORY.layout
    ticks = [t % len(trace.states) for t in TICKS]
    frames = render(trace, perspective, ticks)
    masked_anywhere = 0
    for tick, frame in zip(ticks, frames, strict=True):
        seen = trace.states[tick].seen[perspective]
        for cell in layout.cells():
            hidden = cell not in seen and layout.mark(cell) != "#"
            assert is_masked(frame, cell) == hidden
            masked_anywhere += hidden
    assert masked_anywhere


def test_what_is_seen_looks_as_from_above(trace) -> None:
    tick = trace.nodes[2]
    above = render(trace, "omniscient", [tick])[0]
    seen = render(trace, "protagonist", [tick])[0]
    for cell in trace.states[tick].seen["protagonist"]:
        assert np.array_equal(cut(above, cell), cut(seen, cell))


def test_agents_rooms_and_doors_have_their_colours(trace) -> None:
    frame = render(trace, "omniscient", [0])[0]
    state, story = trace.states[0], STORY
    for name, color in zip(("participant", "protagonist"), story.cast, strict=False):
        centre = cut(frame, state.agents[name][0])[TILE // 2, TILE // 2]
        assert tuple(centre) == tuple(COLORS[color])
    for room, color in enumerate(STORY.rooms):
        floor = next(c for c in story.layout.cells() if story.layout.mark(c) == "123"[room])
        expected = np.asarray(COLORS[color]) * 0.7
        assert np.abs(cut(frame, floor)[TILE // 2, TILE // 2] - expected).max() <= 1


def test_a_closed_protagonist_sees_nothing_change(trace) -> None:
    after = render(trace, "protagonist", range(trace.nodes[2], trace.nodes[3] + 1))
    assert (after == after[0]).all()
    above = render(trace, "omniscient", [trace.nodes[2], trace.nodes[3]])
    assert (above[0] != above[1]).any()


def test_key_frames_are_the_nodes_and_their_midpoints() -> None:
    assert key_frames((0, 11, 19, 36)) == (0, 5, 11, 15, 19, 27, 36)


@pytest.mark.parametrize("direction", range(4))
def test_tiles_are_those_of_minigrid(direction: int) -> None:
    grounds = {
        (".", "", False): None,
        ("1", "red", False): RoomFloor("red"),
        ("B", "green", True): Door("green", is_open=True),
    }
    for key, ground in grounds.items():
        # minigrid's own agent is red.
        expected = Grid.render_tile(ground, agent_dir=direction, tile_size=TILE)
        assert np.array_equal(tile(*key, agent=("red", direction)), expected)
        assert np.array_equal(tile(*key), Grid.render_tile(ground, tile_size=TILE))
