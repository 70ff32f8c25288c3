"""Pictures and videos of a story: 294 x 420 RGB through minigrid's tile renderer."""

from __future__ import annotations

import io
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from PIL import Image

from sally_anne.data.gridtom.plot import State, Trace
from sally_anne.data.gridtom.world import COLUMNS, ROWS, TILE, WALL, World, tile

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
    """Frames of a story ``uint8 [N, 420, 294, 3]``, all by default; what is not seen is masked."""
    world = trace.staging.world()
    chosen = range(len(trace.states)) if ticks is None else ticks
    return np.stack([_frame(world, trace.states[t], perspective) for t in chosen])


def key_frames(nodes: tuple[int, int, int, int]) -> tuple[int, ...]:
    """The seven frame numbers shown to models: four nodes and three midpoints (section 3.2)."""
    a, b, c, d = nodes
    return (a, (a + b) // 2, b, (b + c) // 2, c, (c + d) // 2, d)


def _frame(world: World, state: State, perspective: Perspective) -> np.ndarray:
    for door, is_open in zip(world.doors, state.open_doors, strict=True):
        door.is_open = is_open
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
        masked = seen is not None and (x, y) not in seen and world.layout.mark((x, y)) != WALL
        drawn = MASKED if masked else tile(standing.get((x, y)) or world.grid.get(x, y))
        image[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE] = drawn
    return image


FPS = 3
# Z_RLE: the grid repeats each row, so it packs better and faster than full deflate.
_RLE = 3
# Its tables take longer to set up than a frame to convert.
_REFORMATTER = VideoReformatter()


@dataclass(eq=False)
class Shot:
    """One picture in the forms in which it is written."""

    pixels: np.ndarray

    @cached_property
    def png(self) -> bytes:
        """The bytes of a PNG file."""
        buffer = io.BytesIO()
        image = Image.fromarray(self.pixels)
        image.save(buffer, "PNG", compress_level=1, compress_type=_RLE)
        return buffer.getvalue()

    @cached_property
    def yuv(self) -> av.VideoFrame:
        """The picture as the encoder takes it."""
        frame = av.VideoFrame.from_ndarray(self.pixels, format="rgb24")
        return _REFORMATTER.reformat(frame, format="yuv420p")


def shots_of(trace: Trace, perspective: Perspective, known: dict[Hashable, Shot]) -> list[Shot]:
    """One shot a tick; those that look alike are drawn once and kept in ``known``, by story."""
    keys = [_look(state, perspective) for state in trace.states]
    new = {key: tick for tick, key in enumerate(keys) if key not in known}
    if new:
        drawn = render(trace, perspective, new.values())
        known |= {key: Shot(image) for key, image in zip(new, drawn, strict=True)}
    return [known[key] for key in keys]


def _look(state: State, perspective: Perspective) -> Hashable:
    """Equal for states of one story that look alike from this perspective."""
    agents = tuple(state.agents.items())
    if perspective == "omniscient":
        return agents, state.open_doors, None
    seen = state.seen[perspective]
    # A masked agent is not in the picture, wherever it stands.
    return tuple(agent for agent in agents if agent[1][0] in seen), state.open_doors, seen


def write_video(path: Path, shots: Sequence[Shot]) -> None:
    """H.264, whose bytes depend on the pictures alone: one thread, no time stamps or versions."""
    with av.open(str(path), "w", format="mp4", options={"fflags": "+bitexact"}) as container:
        options = {"preset": "ultrafast", "crf": "18", "threads": "1"}
        stream = container.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for tick, shot in enumerate(shots):
            frame = shot.yuv
            frame.pts = tick
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
