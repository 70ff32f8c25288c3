"""Pictures and videos of a story: 294 x 420 RGB through minigrid's tile renderer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import av
import numpy as np
from minigrid.core.constants import COLOR_TO_IDX, COLORS
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Floor, Wall, WorldObj
from minigrid.utils import rendering
from PIL import Image

from sally_anne.data.gridtom import plot
from sally_anne.data.gridtom.plot import Perspective, Trace

# Pixels of a cell's side, and how much finer an agent's is drawn before it is averaged.
TILE, _FINER = 42, 3
WIDTH, HEIGHT = plot.COLUMNS * TILE, plot.ROWS * TILE
FPS = 3
# What models are shown of a story: its seven key frames.
CLIP_SHAPE = (7, HEIGHT, WIDTH)
# What an agent cannot see: darker than the walls, lighter than the corridor, without grid lines.
MASKED = (50, 50, 50)
# Z_RLE: the grid repeats each row, so it packs better and faster than full deflate.
_RLE = 3
# The floor of a room is its colour, dimmed so that doors and agents stand out; minigrid's own
# factor of 1/2 would make a white room the grey of the walls.
_FLOOR_LIGHT = 0.7

# minigrid knows all colours but white; its renderer and object codes read these tables.
COLORS.setdefault("white", np.array([255, 255, 255]))
COLOR_TO_IDX.setdefault("white", len(COLOR_TO_IDX))


class RoomFloor(Floor):
    """Floor of a coloured room, dimmed inside the grid lines."""

    def render(self, img: np.ndarray) -> None:  # type: ignore[override]
        rendering.fill_coords(
            img, rendering.point_in_rect(0.031, 1, 0.031, 1), COLORS[self.color] * _FLOOR_LIGHT
        )


# minigrid fills shapes pixel by pixel in Python, 20 ms each.
@cache
def tile(
    mark: str, colour: str = "", is_open: bool = False, agent: tuple[str, int] | None = None
) -> np.ndarray:
    """A cell ``uint8 [TILE, TILE, 3]`` by its mark on the map, an agent's colour and direction."""
    ground: WorldObj | None = Wall() if mark == plot.WALL else None
    if mark in plot.DOOR_MARKS:
        ground = Door(colour, is_open)
    elif mark in plot.ROOM_MARKS:
        ground = RoomFloor(colour)
    image = Grid.render_tile(ground, tile_size=TILE * _FINER, subdivs=1)
    if agent is not None:
        image = np.where(_triangle(agent[1])[..., None], COLORS[agent[0]], image)
    return rendering.downsample(image, _FINER).astype(np.uint8)


@cache
def _triangle(direction: int) -> np.ndarray:
    """Where an agent is drawn in its cell, bool ``[side, side]`` before it is averaged."""
    triangle = rendering.point_in_triangle((0.12, 0.19), (0.87, 0.50), (0.12, 0.81))
    turned = rendering.rotate_fn(triangle, cx=0.5, cy=0.5, theta=0.5 * math.pi * direction)
    return rendering.fill_coords(np.zeros((TILE * _FINER,) * 2, dtype=bool), turned, True)


def render(
    trace: Trace, perspective: Perspective = "omniscient", ticks: Iterable[int] | None = None
) -> np.ndarray:
    """Frames of a story ``uint8 [N, 420, 294, 3]``, all by default; what is not seen is masked."""
    chosen = range(len(trace.states)) if ticks is None else ticks
    return np.stack([_frame(trace, trace.states[t], perspective) for t in chosen])


def key_frames(nodes: plot.Nodes) -> tuple[int, ...]:
    """The seven frame numbers shown to models: four nodes and three midpoints (section 3.2)."""
    a, b, c, d = nodes
    return (a, (a + b) // 2, b, (b + c) // 2, c, (c + d) // 2, d)


def _frame(trace: Trace, state: plot.State, perspective: Perspective) -> np.ndarray:
    layout, rooms = trace.story.layout, trace.story.rooms
    poses = zip(trace.story.cast, state.agents.values(), strict=False)
    agents = {cell: (colour, direction) for colour, (cell, direction) in poses}
    seen = None if perspective == "omniscient" else state.seen[perspective]
    image = np.empty((HEIGHT, WIDTH, 3), dtype=np.uint8)
    for (x, y), mark, room in layout.parts:
        coloured = () if room is None else (rooms[room], state.open_doors[room])
        # Walls never move and stay drawn; they carry no information about the story.
        masked = seen is not None and (x, y) not in seen and mark != plot.WALL
        drawn = MASKED if masked else tile(mark, *coloured, agent=agents.get((x, y)))
        image[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE] = drawn
    return image


def write_pictures(folder: Path, frames: np.ndarray) -> None:
    """One PNG a tick."""
    for tick, pixels in enumerate(frames):
        picture = Image.fromarray(pixels)
        picture.save(folder / f"{tick}.png", compress_level=1, compress_type=_RLE)


def write_video(path: Path, frames: np.ndarray) -> None:
    """H.264, whose bytes depend on the pictures alone: one thread, no time stamps or versions."""
    with av.open(str(path), "w", format="mp4", options={"fflags": "+bitexact"}) as container:
        options = {"preset": "ultrafast", "crf": "18", "threads": "1"}
        stream = container.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for tick, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts = tick
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
