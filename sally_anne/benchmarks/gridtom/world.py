"""The grid world: its colours, agents and doors, what is drawn and what can be seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, lru_cache

import numpy as np
from minigrid.core import constants
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_TO_IDX, COLORS, OBJECT_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Floor, Wall, WorldObj
from minigrid.utils.rendering import (
    downsample,
    fill_coords,
    point_in_rect,
    point_in_triangle,
    rotate_fn,
)

from sally_anne.benchmarks.gridtom.maps import (
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
from sally_anne.core.errors import BenchmarkError

COLOURS: tuple[str, ...] = ("red", "green", "blue", "yellow", "purple", "white")

# minigrid knows all of them but white; its renderer and object codes read these tables.
if "white" not in constants.COLORS:
    constants.COLORS["white"] = np.array([255, 255, 255])
    constants.COLOR_TO_IDX["white"] = len(constants.COLOR_TO_IDX)
    constants.IDX_TO_COLOR[constants.COLOR_TO_IDX["white"]] = "white"
    constants.COLOR_NAMES.append("white")
    constants.COLOR_NAMES.sort()


# The floor of a room is its colour, dimmed so that doors and agents stand out; minigrid's own
# factor of 1/2 would make a white room the grey of the walls.
_FLOOR_LIGHT = 0.7


class RoomFloor(Floor):
    """Floor of a coloured room."""

    def render(self, img: np.ndarray) -> None:  # type: ignore[override]
        """Draw the dimmed colour inside the grid lines."""
        fill_coords(img, point_in_rect(0.031, 1, 0.031, 1), COLORS[self.color] * _FLOOR_LIGHT)


class Agent(WorldObj):
    """A triangle of one colour that points where the agent faces.

    ``ground`` is what lies under it (None in the corridor) and is drawn first.
    """

    def __init__(self, color: str, cell: Cell, direction: int) -> None:
        super().__init__("agent", color)
        self.cell = cell
        self.direction = direction
        self.ground: WorldObj | None = None

    def encode(self) -> tuple[int, ...]:  # type: ignore[override]
        """Object, colour and direction codes, then the ground's: minigrid's tile-cache key."""
        ground = self.ground.encode() if self.ground else ()
        return (OBJECT_TO_IDX["agent"], COLOR_TO_IDX[self.color], self.direction, *ground)

    def render(self, img: np.ndarray) -> None:  # type: ignore[override]
        """Draw the ground, then the triangle."""
        if self.ground:
            self.ground.render(img)
        img[_triangle(img.shape[0], self.direction)] = COLORS[self.color]


# minigrid fills shapes pixel by pixel in Python, 20 ms each. Agents need hundreds of tiles, so what
# lies under them and their outline are drawn once.
_tiles: dict[tuple[int, ...], np.ndarray] = {}
_grounds: dict[tuple[int, ...], np.ndarray] = {}
_FINER = 3


def tile(thing: WorldObj | None, size: int) -> np.ndarray:
    """A cell as ``Grid.render_tile`` draws it, ``[size, size, 3]``."""
    if not isinstance(thing, Agent):
        return Grid.render_tile(thing, tile_size=size)
    key = (size, *thing.encode())
    if key not in _tiles:
        image = _ground(thing.ground, size).copy()
        image[_triangle(size * _FINER, thing.direction)] = COLORS[thing.color]
        _tiles[key] = downsample(image, _FINER)
    return _tiles[key]


def _ground(thing: WorldObj | None, size: int) -> np.ndarray:
    """An empty cell or its floor, not yet averaged over finer pixels."""
    key = (size, *(thing.encode() if thing else ()))
    if key not in _grounds:
        image = np.zeros((size * _FINER, size * _FINER, 3), dtype=np.uint8)
        for line in ((0, 0.031, 0, 1), (0, 1, 0, 0.031)):
            fill_coords(image, point_in_rect(*line), (100, 100, 100))
        if thing:
            thing.render(image)
        _grounds[key] = image
    return _grounds[key]


@cache
def _triangle(size: int, direction: int) -> np.ndarray:
    """Mask ``bool [size, size]`` of an agent that faces ``direction``."""
    triangle = point_in_triangle((0.12, 0.19), (0.87, 0.50), (0.12, 0.81))
    turned = rotate_fn(triangle, cx=0.5, cy=0.5, theta=0.5 * math.pi * direction)
    drawn = fill_coords(np.zeros((size, size, 3), dtype=np.uint8), turned, (1, 1, 1))
    return drawn[:, :, 0].astype(bool)


class World:
    """A map with coloured rooms and the agents in it.

    Args:
        layout: the map.
        room_colours: colour of rooms 1, 2 and 3.
        agents: name -> agent.

    Raises:
        BenchmarkError: unknown or repeated colour, or an agent on a cell it cannot stand on.
    """

    def __init__(
        self, layout: Layout, room_colours: tuple[str, ...], agents: Mapping[str, Agent]
    ) -> None:
        used = [*room_colours, *(a.color for a in agents.values())]
        if unknown := sorted(set(used) - set(COLOURS)):
            known = ", ".join(COLOURS)
            raise BenchmarkError(f"unknown colour {unknown[0]!r}; known: {known}")
        if len(set(used)) < len(used):
            raise BenchmarkError(f"rooms and agents must all differ in colour, got {used}")
        self.layout = layout
        self.agents = dict(agents)
        self.grid = Grid(COLUMNS, ROWS)
        for cell in layout.cells():
            self.grid.set(*cell, self._furnish(cell, room_colours))
        for name, agent in self.agents.items():
            if not self._free(agent.cell):
                raise BenchmarkError(f"map {layout.name}: {name} cannot stand on {agent.cell}")
            agent.ground = self.grid.get(*agent.cell)

    def _furnish(self, cell: Cell, room_colours: tuple[str, ...]) -> WorldObj | None:
        mark = self.layout.mark(cell)
        if mark in ROOM_MARKS:
            return RoomFloor(room_colours[ROOM_MARKS.index(mark)])
        if mark in DOOR_MARKS:
            return Door(room_colours[DOOR_MARKS.index(mark)])
        return Wall() if mark == WALL else None

    def door(self, room: int) -> Door:
        """The door of room ``room``."""
        door = self.grid.get(*self.layout.doors[room])
        assert isinstance(door, Door)
        return door

    def _free(self, cell: Cell) -> bool:
        thing = self.grid.get(*cell)
        return thing is None or thing.can_overlap()

    def step(self, actions: Mapping[str, Actions]) -> None:
        """Let every named agent act at once, in the order given.

        Raises:
            BenchmarkError: an agent would walk into something, or toggles where no door is.
        """
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

        A closed door is seen from both sides, what lies behind it is not.

        Args:
            name: the agent's.
            overlooked: a room at which it does not look: neither its door nor what is behind it is
                seen, whether the door is open or not.
        """
        rooms = range(len(self.layout.doors))
        doors = tuple(self.door(room).is_open and room != overlooked for room in rooms)
        seen = _visible(self.layout, self.agents[name].cell, doors)
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
