"""Pictures and films of a chat message as frames; and frames as a film that keeps every bit."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
from PIL import Image

from sally_anne.benchmarks.clips import MOST_PIXELS
from sally_anne.benchmarks.pictures import check_file, opened
from sally_anne.benchmarks.video import Frames, decode_counting, opened_video
from sally_anne.core.errors import ClipError, HarnessError

# More frames than this are hardly meant to go to a model as they are.
MOST_FRAMES = 128


def picture(reference: str) -> np.ndarray:
    """A picture as ``uint8 [1, height, width, 3]``.

    Args:
        reference: data URI or path.

    Raises:
        HarnessError: it cannot be read.
    """
    data = _bytes(reference, "picture")
    try:
        with opened(data) as image:
            return np.asarray(image.convert("RGB"))[None].copy()
    except ClipError as error:
        raise HarnessError(f"picture {_short(reference)}: not readable, it {error}") from error


def film(reference: str, frames: int | None = None) -> np.ndarray:
    """A film as ``uint8 [F, height, width, 3]``, scaled as films of benchmarks are.

    Args:
        reference: data URI or path.
        frames: so many of its frames, spread evenly, the first and the last among them; all of a
            film that has fewer. None takes all frames.

    Raises:
        HarnessError: it cannot be read, or has more than :data:`MOST_FRAMES` frames and ``frames``
            does not choose among them.
    """
    data, name = _bytes(reference, "film"), Path(_short(reference))
    try:
        with opened_video(name, data) as (container, stream):
            count = sum(1 for _ in container.decode(stream))
        kept = Frames(sorted(_chosen(reference, count, frames)), MOST_PIXELS)
        with opened_video(name, data) as (container, stream):
            decode_counting(container, stream, kept)
        assert kept.pixels is not None
        return kept.pixels
    except (av.FFmpegError, ValueError) as error:
        if isinstance(error, HarnessError):
            raise
        raise HarnessError(f"film {_short(reference)}: not readable ({error})") from error


def film_uri(frames: np.ndarray) -> str:
    """Frames ``uint8 [F, height, width, 3]`` as a data URI from which :func:`film` gets every bit.

    A QuickTime film whose frames are PNG pictures, one a second.
    """
    file = io.BytesIO()
    with av.open(file, "w", format="mov") as container:
        stream = container.add_stream("png", rate=1)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "rgb24"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, "rgb24")))
        container.mux(stream.encode())
    return _uri("video/quicktime", file.getvalue())


def picture_uris(frames: np.ndarray) -> list[str]:
    """Frames ``uint8 [F, height, width, 3]`` as data URIs of PNG pictures."""
    found = []
    for frame in frames:
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "PNG")
        found.append(_uri("image/png", file.getvalue()))
    return found


def as_clip(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Pictures ``[1, height, width, 3]`` as frames of one clip.

    Raises:
        HarnessError: their sizes differ.
    """
    sizes = sorted({p.shape[2:0:-1] for p in pictures})
    if len(sizes) > 1:
        shown = " and ".join(f"{width} x {height}" for width, height in sizes)
        raise HarnessError(f"pictures are frames of one clip and must be of one size, got {shown}")
    return np.concatenate(list(pictures))


def _chosen(reference: str, count: int, frames: int | None) -> frozenset[int]:
    if not count:
        raise HarnessError(f"film {_short(reference)}: it has no frames")
    if frames is None and count > MOST_FRAMES:
        raise HarnessError(
            f"film {_short(reference)}: {count} frames; say with -M frames=8 how many to take, "
            "spread evenly"
        )
    if frames is None or frames >= count:
        return frozenset(range(count))
    return frozenset(np.linspace(0, count - 1, frames).round().astype(int).tolist())


def _bytes(reference: str, what: str) -> bytes:
    if not reference.startswith("data:"):
        if "://" in reference:
            raise HarnessError(
                f"{what} {_short(reference)}: give a file or a data URI; nothing is downloaded here"
            )
        try:
            check_file(Path(reference))
            return Path(reference).read_bytes()
        except (OSError, ValueError) as error:
            raise HarnessError(f"{what} {_short(reference)}: not readable ({error})") from error
    head, comma, payload = reference.partition(",")
    if not comma or not head.endswith(";base64"):
        raise HarnessError(f"{what} {_short(reference)}: its data URI is not in base64")
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error as error:
        raise HarnessError(f"{what} {_short(reference)}: broken base64 ({error})") from error


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _short(reference: str) -> str:
    return repr(reference if len(reference) <= 60 else f"{reference[:40]}...")
