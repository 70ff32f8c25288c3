"""Frames of a story: 294 x 420 RGB through minigrid's tile renderer, for each perspective."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from sally_anne.benchmarks.gridtom.layout import COLUMNS, ROWS
from sally_anne.benchmarks.gridtom.plot import Staging, State, Trace
from sally_anne.benchmarks.gridtom.world import tile

TILE = 42
WIDTH, HEIGHT = COLUMNS * TILE, ROWS * TILE
# What models are shown of a story: its seven key frames.
CLIP_SHAPE = (7, HEIGHT, WIDTH)
# What an agent cannot see: darker than the walls, lighter than the corridor, without grid lines.
MASKED = (50, 50, 50)

Perspective = Literal["omniscient", "protagonist", "participant"]
PERSPECTIVES: tuple[Perspective, ...] = ("omniscient", "protagonist", "participant")


def render(
    trace: Trace, perspective: Perspective = "omniscient", ticks: Iterable[int] | None = None
) -> np.ndarray:
    """Draw the frames of a story.

    Args:
        trace: the played story.
        perspective: whose view; cells that this agent does not see are masked.
        ticks: frame numbers to draw; all of them by default.

    Returns:
        ``uint8 [N, 420, 294, 3]``.
    """
    painter = _Painter(trace.staging)
    chosen = range(len(trace.states)) if ticks is None else ticks
    return np.stack([painter.frame(trace.states[t], perspective) for t in chosen])


def key_frames(nodes: tuple[int, int, int, int]) -> tuple[int, ...]:
    """The seven frame numbers shown to models: four nodes and three midpoints (section 3.2)."""
    a, b, c, d = nodes
    return (a, (a + b) // 2, b, (b + c) // 2, c, (c + d) // 2, d)


class _Painter:
    def __init__(self, staging: Staging) -> None:
        self.world = staging.world()
        self.masked_tile = np.full((TILE, TILE, 3), MASKED, dtype=np.uint8)

    def frame(self, state: State, perspective: Perspective) -> np.ndarray:
        world = self.world
        for room, is_open in enumerate(state.open_doors):
            world.door(room).is_open = is_open
        standing = {}
        for name, (cell, direction) in state.agents.items():
            agent = world.agents[name]
            agent.cell, agent.direction = cell, direction
            agent.ground = world.grid.get(*cell)
            standing[cell] = agent
        seen = None if perspective == "omniscient" else state.seen[perspective]
        image = np.empty((HEIGHT, WIDTH, 3), dtype=np.uint8)
        for x, y in world.layout.cells():
            # Walls never move and stay drawn; they carry no information about the story.
            if seen is not None and (x, y) not in seen and world.layout.mark((x, y)) != "#":
                drawn = self.masked_tile
            else:
                thing = standing.get((x, y)) or world.grid.get(x, y)
                drawn = tile(thing, TILE)
            image[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE] = drawn
        return image
