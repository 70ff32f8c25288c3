"""The grid world: its colours, agents and doors, what is drawn and what can be seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_TO_IDX, COLORS
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Floor, Wall, WorldObj
from minigrid.utils.rendering import (
    downsample,
    fill_coords,
    point_in_rect,
    point_in_triangle,
    rotate_fn,
)

from sally_anne.core.errors import BenchmarkError
from sally_anne.data.gridtom.maps import (
    COLUMNS,
    DOOR_MARKS,
    ROOM_MARKS,
    ROWS,
    STEPS,
    WALL,
    Cell,
    Layout,
    neighbours,
    reachable,
)

COLOURS: tuple[str, ...] = ("red", "green", "blue", "yellow", "purple", "white")

# minigrid knows all of them but white; its renderer and object codes read these tables.
COLORS.setdefault("white", np.array([255, 255, 255]))
COLOR_TO_IDX.setdefault("white", len(COLOR_TO_IDX))

# The floor of a room is its colour, dimmed so that doors and agents stand out; minigrid's own
# factor of 1/2 would make a white room the grey of the walls.
_FLOOR_LIGHT = 0.7


class RoomFloor(Floor):
    """Floor of a coloured room."""

    def render(self, img: np.ndarray) -> None:  # type: ignore[override]
        """Draw the dimmed colour inside the grid lines."""
        fill_coords(img, point_in_rect(0.031, 1, 0.031, 1), COLORS[self.color] * _FLOOR_LIGHT)


@dataclass
class Agent:
    """A triangle that points where the agent faces; ``ground`` lies under it, in rooms."""

    color: str
    cell: Cell
    direction: int
    ground: WorldObj | None = None


# Pixels of a cell's side, and how much finer it is drawn before it is averaged.
TILE, _FINER = 42, 3
# minigrid fills shapes pixel by pixel in Python, 20 ms each. Agents need hundreds of tiles, so what
# lies under them and their outline are drawn once.
_tiles: dict[tuple[object, ...], np.ndarray] = {}


def tile(thing: Agent | WorldObj | None) -> np.ndarray:
    """A cell as ``Grid.render_tile`` draws it, ``[TILE, TILE, 3]``."""
    if not isinstance(thing, Agent):
        return Grid.render_tile(thing, tile_size=TILE)
    ground = thing.ground.encode() if thing.ground else ()
    key = (thing.color, thing.direction, *ground)
    if key not in _tiles:
        image = Grid.render_tile(thing.ground, tile_size=TILE * _FINER, subdivs=1).copy()
        image[_triangle(thing.direction)] = COLORS[thing.color]
        _tiles[key] = downsample(image, _FINER)
    return _tiles[key]


@cache
def _triangle(direction: int) -> np.ndarray:
    """Mask of an agent that faces ``direction``."""
    triangle = point_in_triangle((0.12, 0.19), (0.87, 0.50), (0.12, 0.81))
    turned = rotate_fn(triangle, cx=0.5, cy=0.5, theta=0.5 * math.pi * direction)
    side = TILE * _FINER
    return fill_coords(np.zeros((side, side), dtype=bool), turned, True)


class World:
    """A map with coloured rooms and their doors, and the agents in it by name."""

    def __init__(
        self, layout: Layout, room_colours: tuple[str, ...], agents: Mapping[str, Agent]
    ) -> None:
        used = [*room_colours, *(a.color for a in agents.values())]
        if unknown := sorted(set(used) - set(COLOURS)):
            raise BenchmarkError(f"unknown colour {unknown[0]!r}; known: {', '.join(COLOURS)}")
        if len(set(used)) < len(used):
            raise BenchmarkError(f"rooms and agents must all differ in colour, got {used}")
        self.layout = layout
        self.agents = dict(agents)
        self.grid = Grid(COLUMNS, ROWS)
        self.doors = [Door(colour) for colour in room_colours]
        things: dict[str, WorldObj] = {WALL: Wall()}
        things |= zip(DOOR_MARKS, self.doors, strict=True)
        things |= zip(ROOM_MARKS, map(RoomFloor, room_colours), strict=True)
        for cell in layout.cells():
            self.grid.set(*cell, things.get(layout.mark(cell)))
        for name, agent in self.agents.items():
            if not self._free(agent.cell):
                raise BenchmarkError(f"map {layout.name}: {name} cannot stand on {agent.cell}")
            agent.ground = self.grid.get(*agent.cell)

    def _free(self, cell: Cell) -> bool:
        thing = self.grid.get(*cell)
        return thing is None or thing.can_overlap()

    def step(self, actions: Mapping[str, Actions]) -> None:
        """Let every named agent act at once, in the order given; BenchmarkError if one cannot."""
        for name, action in actions.items():
            agent = self.agents[name]
            dx, dy = STEPS[agent.direction]
            ahead = (agent.cell[0] + dx, agent.cell[1] + dy)
            if action == Actions.left:
                agent.direction = (agent.direction - 1) % 4
            elif action == Actions.right:
                agent.direction = (agent.direction + 1) % 4
            elif action == Actions.forward:
                occupied = any(a.cell == ahead for a in self.agents.values())
                if not self._free(ahead) or occupied:
                    raise BenchmarkError(f"map {self.layout.name}: {name} cannot walk to {ahead}")
                agent.cell, agent.ground = ahead, self.grid.get(*ahead)
            elif action == Actions.toggle:
                door = self.grid.get(*ahead)
                if not isinstance(door, Door):
                    raise BenchmarkError(f"map {self.layout.name}: no door at {ahead} for {name}")
                door.toggle(None, ahead)
            elif action != Actions.done:
                raise BenchmarkError(f"{name}: action {action!r} has no meaning here")

    def seen_by(self, name: str, overlooked: int | None = None) -> frozenset[Cell]:
        """Cells that the agent sees now: all connected to it, with the walls and doors around.

        A closed door is seen from both sides, what lies behind it is not. Of a room that is
        ``overlooked`` neither the door nor what is behind it is seen, be it open or not.
        """
        clear = tuple(door.is_open and i != overlooked for i, door in enumerate(self.doors))
        seen = _visible(self.layout, self.agents[name].cell, clear)
        return seen if overlooked is None else seen - {self.layout.doors[overlooked]}


# A story looks from some twenty cells; the stories of one map look from the same ones.
@lru_cache(maxsize=8192)
def _visible(layout: Layout, standing: Cell, open_doors: tuple[bool, ...]) -> frozenset[Cell]:
    def open_to_view(cell: Cell) -> bool:
        mark = layout.mark(cell)
        if mark in DOOR_MARKS:
            return open_doors[DOOR_MARKS.index(mark)]
        return mark != WALL

    inside = reachable([standing], open_to_view)
    return frozenset(inside | {b for cell in inside for b in neighbours(cell)})
