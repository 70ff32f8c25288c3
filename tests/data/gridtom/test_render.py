"""Frames: size, what is masked for whom, and the key frames."""

from __future__ import annotations

import numpy as np
import pytest
from minigrid.core.constants import COLORS

from sally_anne.data.gridtom.render import MASKED, TILE, render
from sally_anne.data.gridtom.stories import generate

STORY = generate()[100]
TICKS = (0, 9, 20, 28, -1)


@pytest.fixture(scope="module")
def trace():
    return STORY.play("FB")


def tile(frame: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
    x, y = cell
    return frame[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE]


def is_masked(frame: np.ndarray, cell: tuple[int, int]) -> bool:
    return bool((tile(frame, cell) == MASKED).all())


@pytest.mark.parametrize("perspective", ["protagonist", "participant"])
def test_masked_are_just_the_cells_that_the_agent_does_not_see(trace, perspective) -> None:
    layout = STORY.staging.layout
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
        assert np.array_equal(tile(above, cell), tile(seen, cell))


def test_agents_rooms_and_doors_have_their_colours(trace) -> None:
    frame = render(trace, "omniscient", [0])[0]
    state, staging = trace.states[0], STORY.staging
    for name, color in zip(("participant", "protagonist"), staging.colours, strict=False):
        centre = tile(frame, state.agents[name][0])[TILE // 2, TILE // 2]
        assert tuple(centre) == tuple(COLORS[color])
    for room, color in enumerate(STORY.rooms):
        floor = next(c for c in staging.layout.cells() if staging.layout.mark(c) == "123"[room])
        expected = np.asarray(COLORS[color]) * 0.7
        assert np.abs(tile(frame, floor)[TILE // 2, TILE // 2] - expected).max() <= 1


def test_a_closed_protagonist_sees_nothing_change(trace) -> None:
    after = render(trace, "protagonist", range(trace.nodes[2], trace.nodes[3] + 1))
    assert (after == after[0]).all()
    above = render(trace, "omniscient", [trace.nodes[2], trace.nodes[3]])
    assert (above[0] != above[1]).any()
