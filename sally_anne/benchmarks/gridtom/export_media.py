"""Pictures and videos of a story, each distinct picture drawn and encoded once."""

from __future__ import annotations

import io
from collections.abc import Hashable, Sequence
from functools import cache, cached_property
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from PIL import Image

from sally_anne.benchmarks.gridtom.plot import State, Trace
from sally_anne.benchmarks.gridtom.render import HEIGHT, WIDTH, Perspective, render

FPS = 3
# Z_RLE: the grid repeats each row, so it packs better and faster than full deflate.
_RLE = 3


class Shot:
    """One picture in the forms in which it is written."""

    def __init__(self, pixels: np.ndarray) -> None:
        self.pixels = pixels

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
        return _reformatter().reformat(frame, format="yuv420p")


@cache
def _reformatter() -> VideoReformatter:
    # Its tables take longer to set up than a frame to convert.
    return VideoReformatter()


class Pictures:
    """The pictures of one story; versions and perspectives share those that look alike."""

    def __init__(self) -> None:
        self._shots: dict[Hashable, Shot] = {}

    def of(self, trace: Trace, perspective: Perspective) -> list[Shot]:
        """One shot a tick."""
        keys = [_look(state, perspective) for state in trace.states]
        new = {key: tick for tick, key in enumerate(keys) if key not in self._shots}
        if new:
            drawn = render(trace, perspective, new.values())
            self._shots.update((key, Shot(image)) for key, image in zip(new, drawn, strict=True))
        return [self._shots[key] for key in keys]


def _look(state: State, perspective: Perspective) -> Hashable:
    """Equal for states of one story that look alike from this perspective."""
    agents = tuple(state.agents.items())
    if perspective == "omniscient":
        return agents, state.open_doors, None
    seen = state.seen[perspective]
    # A masked agent is not in the picture, wherever it stands.
    visible = tuple((name, stand) for name, stand in agents if stand[0] in seen)
    return visible, state.open_doors, seen


def write_video(path: Path, shots: Sequence[Shot]) -> None:
    """Write a video of 3 frames a second (294 x 420, H.264).

    The bytes depend on the pictures alone: one thread, no time stamps or version tags.
    """
    with av.open(str(path), "w", format="mp4", options={"fflags": "+bitexact"}) as container:
        options = {"preset": "ultrafast", "crf": "18", "threads": "1"}
        stream = container.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for tick, shot in enumerate(shots):
            frame = shot.yuv
            frame.pts = tick
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
