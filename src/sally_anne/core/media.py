"""Pictures and films in files, and given in Python, as every viewer shows them (PyAV, Pillow)."""

from __future__ import annotations

import io
import math
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from av.video.reformatter import VideoReformatter
from PIL import ExifTags, Image, ImageFile, ImageOps, UnidentifiedImageError

from sally_anne.core.errors import MediaError
from sally_anne.core.files import LFS, POINTER

_REFORMATTER = VideoReformatter()
# Of a video of which nobody has chosen frames.
FRAMES = 8
# Of a frame as it is given to a model (qwen-vl-utils, VIDEO_MAX_PIXELS): 768 tokens.
FRAME_PIXELS = 768 * 28 * 28
# Times are sums of fractions such as 1/30 s; two closer than this are one.
SAME = 1e-6
# Containers whose header states the length; others guess it from the rate of bytes.
_SURE = {"mov", "mp4", "matroska", "webm", "avi"}
# Playlists lead to other files and addresses, so they are not among the formats.
SAFE = {
    "protocol_whitelist": "file",
    "format_whitelist": "mov,matroska,webm,avi,gif,mpegts,mpeg,mpegvideo,flv,asf,ogg,m4v,h264,"
    "hevc,ivf",
}
# PyAV reports damage by FFmpegError, frames without a picture format by ValueError.
UNREADABLE = (av.FFmpegError, OSError, ValueError)
# Pillow reads dozens of formats, and some, such as EPS, by starting other programs.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "TGA", "JPEG2000", "AVIF")
# Of one picture or frame as stored: a video in 8K has 33 million.
MOST_PIXELS = 64_000_000


@dataclass(frozen=True, eq=False)
class Timeline:
    """The frames of a film, or pictures, in the order of presentation.

    Attributes:
        times: when each comes on screen ``[N]``, in seconds from the beginning; rising.
        end: when the last one goes, in seconds.
        damage: how the file is damaged, to append to a message; empty if it is whole.
        stamps: presentation stamps in units of the stream ``[N]``, of a film alone.
        keys: stamps of its key frames, rising.
    """

    path: Path
    times: np.ndarray
    end: float
    damage: str = ""
    stamps: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    keys: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def on_screen(times: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Places of the frames on screen at some moments; before the first frame it is that one."""
    return np.maximum(np.searchsorted(times, moments + SAME, "right") - 1, 0)


def even_times(start: float, end: float, count: int) -> np.ndarray:
    """``count`` equally spaced times ``[count]``, ends included; the middle if it is one."""
    return np.array([(start + end) / 2]) if count == 1 else np.linspace(start, end, count)


def timeline_of(path: Path) -> Timeline:
    """The frames of a film, by the stamps of its packets; nothing is decoded."""
    try:
        state = path.stat()
    except OSError as error:
        raise MediaError(f"{path}: this video cannot be read ({error.strerror})") from error
    return _timeline(path, state.st_mtime_ns, state.st_size)


# A film is asked for its size, planned into a batch and read: its packets are gone through once.
@lru_cache(maxsize=1024)
def _timeline(path: Path, changed: int, size: int) -> Timeline:
    packets: list[tuple[int, int]] = []
    keys: set[int] = set()
    reach, broken, bare = 0.0, "", False
    with _opened_video(path) as (container, stream):
        origin, declared = ((n or 0) / 1e6 for n in (container.start_time, container.duration))
        sure = bool(_SURE & set(container.format.name.split(",")))
        try:
            for packet in container.demux(stream, *container.streams.audio):
                stamp, lasting = packet.pts, packet.duration or 0
                if not packet.size or packet.is_corrupt:
                    continue
                if stamp is None:
                    bare |= packet.stream is stream
                    continue
                reach = max(reach, float((stamp + lasting) * packet.time_base) - origin)
                if packet.stream is stream and packet.is_keyframe:
                    keys.add(stamp)
                if packet.stream is stream and not packet.is_discard:
                    packets.append((stamp, lasting))
        except UNREADABLE as error:
            broken = f"; it is damaged there ({error})"
        base, rate = stream.time_base, stream.average_rate or stream.guessed_rate
        if container.format.name == "avi" and rate:
            # Its length is guessed from what is left of the file; its number of frames is not.
            declared = max(declared, stream.frames / float(rate))
    # Some count the length from a beginning of their own.
    if sure and not broken and declared - reach - max(origin, 0) > 1 + 0.01 * declared:
        broken = f"; it is cut short: its header says {declared:.2f} s. Download it again"
    # Without a key frame before them the first ones cannot be decoded.
    known = sorted(packet for packet in packets if keys and packet[0] >= min(keys))
    if bare or not known or len({stamp for stamp, _ in known}) < len(known):
        raise MediaError(f"{path}: this video has no frames with a time of their own{broken}")
    stamps = np.array([stamp for stamp, _ in known], dtype=np.int64)
    times = stamps * float(base) - origin
    end = float(times[-1]) + (float(known[-1][1] * base) or (1 / float(rate) if rate else 0.0))
    return Timeline(path, times, end, broken, stamps, np.array(sorted(keys)))


def _turns(frame: av.VideoFrame) -> int:
    """How often a frame is turned by 90 degrees, against the clock, before it is shown."""
    return round(getattr(frame, "rotation", 0) / 90) % 4


def _shown_size(frame: av.VideoFrame, ratio: Any) -> tuple[int, int]:
    """Width and height with square pixels, as turned."""
    size = max(1, round(frame.width * (ratio or 1))), frame.height
    return size[::-1] if _turns(frame) % 2 else size


def size_of_film(path: Path) -> tuple[int, int]:
    """Width and height of a film as it is shown; its first frame is decoded."""
    with _opened_video(path) as (container, stream):
        try:
            frame = next(container.decode(stream))
        except (StopIteration, *UNREADABLE):
            return stream.codec_context.width, stream.codec_context.height
        return _shown_size(frame, stream.sample_aspect_ratio)


def read_frames(timeline: Timeline, places: Sequence[int], most: int | None = None) -> np.ndarray:
    """Frames at rising ``places`` of the timeline, ``uint8 [F, height, width, 3]``.

    All have the size of the first, of at most ``most`` pixels; MediaError names a lost one.
    """
    stamped = {int(timeline.stamps[place]): place for place in places}
    found: dict[int, np.ndarray] = {}
    why = "it is damaged there"

    def decode(container: Any, stream: Any, stamps: Collection[int]) -> None:
        with suppress(av.EOFError):
            for frame in container.decode(stream):
                if frame.pts in stamps and not frame.is_corrupt:
                    size = fitted(*_shown_size(frame, stream.sample_aspect_ratio), most)
                    if found:
                        size = next(iter(found.values())).shape[1::-1]
                    found[stamped[frame.pts]] = _pixels(frame, size)
                if frame.pts is not None and frame.pts >= max(stamps):
                    return

    try:
        with _opened_video(timeline.path) as (container, stream):
            stream.thread_type = "AUTO"
            # Frames that share the key frame before them are decoded from there.
            after = partial(np.searchsorted, timeline.keys, side="right")
            for key, stamps in groupby(stamped, after):
                container.seek(int(timeline.keys[key - 1]), stream=stream, backward=True)
                decode(container, stream, list(stamps))
        # Some containers land behind the key frame, or need what was before it.
        if missing := [stamp for stamp, place in stamped.items() if place not in found]:
            with _opened_video(timeline.path) as (container, stream):
                decode(container, stream, missing)
    except UNREADABLE as error:
        why = str(error)
    if lost := [place for place in places if place not in found]:
        lacking = f"the frame at {timeline.times[lost[0]]:.2f} s cannot be decoded ({why})"
        raise MediaError(f"{timeline.path}: {lacking}; download the video again")
    return np.stack([found[place] for place in places])


def _pixels(frame: av.VideoFrame, size: Any) -> np.ndarray:
    # As viewers do, FFmpeg's 2 (it is not said) is taken for 1 (BT.709) from 720 rows on. FFmpeg
    # takes all for 5 (BT.601), unless both sides are named.
    modern = frame.colorspace == 1 or (frame.colorspace == 2 and frame.height >= 720)
    if modern and not frame.format.is_rgb:
        frame = _REFORMATTER.reformat(frame, format="rgb24", src_colorspace=1, dst_colorspace=5)
    return _scaled(np.rot90(frame.to_ndarray(format="rgb24"), _turns(frame)), size)


def _scaled(pixels: np.ndarray, size: Any) -> np.ndarray:
    """Pixels at a width and height; FFmpeg's own scaling darkens by one or two of 255."""
    if pixels.shape[1::-1] == size:
        return pixels
    return np.array(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))


@contextmanager
def _opened_video(path: Path) -> Iterator[tuple[Any, Any]]:
    """The container and its moving pictures, not a cover; MediaError if there are none."""
    try:
        check_file(path)
        container = open_container(path)
    except (MediaError, *UNREADABLE) as error:
        why = f"({error}); formats that are read: {SAFE['format_whitelist'].replace(',', ', ')}"
        raise MediaError(f"{path}: this file cannot be opened as a video {why}") from error
    with container:
        streams = container.streams.video
        moving = [s for s in streams if not s.disposition & Disposition.attached_pic]
        if not moving:
            raise MediaError(f"{path}: has no video stream, only sound or a cover")
        # A stream of an unknown kind has no codec, and fails when it is decoded.
        if codec := moving[0].codec_context:
            codec.options = {"max_pixels": str(MOST_PIXELS)}
        yield container, moving[0]


def open_container(file: Path | io.BytesIO, more: str = "") -> Any:
    """A file's streams, of :data:`SAFE` formats and ``more``."""
    safe = SAFE | {"format_whitelist": SAFE["format_whitelist"] + more}
    # FFmpeg takes clip:1.mp4 for a protocol.
    name = file if isinstance(file, io.BytesIO) else os.path.abspath(file)
    # Newer versions have no such argument, and replace what they cannot read by themselves.
    older = int(av.__version__.split(".")[0]) < 19
    how: dict[str, Any] = {"metadata_errors": "replace"} if older else {}
    return av.open(name, container_options=safe, **how)


def read_picture(path: Path, most: int | None = None) -> np.ndarray:
    """One picture, ``uint8 [height, width, 3]``, scaled down as it is read to ``most`` pixels."""
    with _opened_file(path) as image:
        size = fitted(*_turned(image), most)
        if size != _turned(image):
            # A JPEG is decoded at half its size or less where that is enough.
            image.draft("RGB", size if _turned(image) == image.size else size[::-1])
        return _scaled(as_shown(image), size)


def size_of_picture(path: Path) -> tuple[int, int]:
    """Width and height of a picture as it is shown; only its header is read."""
    with _opened_file(path) as image:
        return _turned(image)


def _turned(image: Image.Image) -> tuple[int, int]:
    """Width and height once a picture is turned as its EXIF says."""
    sideways = image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
    return image.size[::-1] if sideways else image.size


@contextmanager
def _opened_file(path: Path) -> Iterator[Image.Image]:
    try:
        check_file(path)
        with opened_picture(path.read_bytes()) as image:
            yield image
    except (OSError, MediaError) as error:
        why = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else error
        raise MediaError(f"{path}: this picture {why}") from error


@contextmanager
def opened_picture(data: bytes) -> Iterator[Image.Image]:
    """A picture by its file's bytes: header at once, pixels on demand; MediaError if damaged."""
    # Other libraries tell Pillow, for the whole process, to fill what is missing with grey.
    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            yield image
    except MediaError:
        raise
    # Pillow reports damage by many types: truncation is an OSError, broken chunks are
    # SyntaxErrors, wrong headers ValueErrors, absurd sizes its own exception.
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        why = f"cannot be decoded ({error})"
        if isinstance(error, UnidentifiedImageError):
            why = "is damaged, or of another format"
        raise MediaError(f"{why}; formats: {', '.join(FORMATS)}") from error
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def check_file(path: Path) -> None:
    """Refuse pipes and devices, which may never end, and pointers; to be put after a name."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise MediaError("cannot be read: it is no regular file")
    with path.open("rb") as file:
        if file.read(len(LFS)) == LFS:
            raise MediaError(f"cannot be read: it {POINTER}")


def fitted(width: int, height: int, most: int | None) -> tuple[int, int]:
    """Width and height scaled down to at most ``most`` pixels; as they are if they have no more."""
    if most is None or width * height <= most:
        return width, height
    scale = math.sqrt(most / (width * height))
    return max(1, int(width * scale)), max(1, int(height * scale))


def frames_of(images: Sequence[Any] | None = None, video: Any = None) -> np.ndarray | None:
    """Pictures or a video as one clip ``uint8 [T, H, W, 3]``; None for neither.

    Pictures are of one size: paths, of PIL, or arrays or tensors ``[H, W, 3]`` (or ``[3, H, W]``),
    ``uint8``, or floats from 0 to 1. A video is frames ``[T, H, W, 3]``, a list of such pictures,
    or a path, of which :data:`FRAMES` are taken, spread evenly. MediaError for anything else.
    """
    if images is not None and video is not None:
        raise MediaError("images and a video: give one of them")
    given = [images] if isinstance(images, str | Path) else images if video is None else video
    if given is None:
        return None
    try:
        if isinstance(given, str | Path):
            timeline = timeline_of(Path(given))
            if timeline.damage:
                raise MediaError(f"{given}: ends at {timeline.end:.2f} s{timeline.damage}")
            places = np.arange(len(timeline.times))
            if len(places) > FRAMES:
                moments = even_times(0, timeline.end, FRAMES)
                places = np.unique(on_screen(timeline.times, moments))
            return read_frames(timeline, places.tolist(), FRAME_PIXELS)
        return np.stack([pixels_of(one) for one in given])
    except MediaError:
        raise
    # Each decoder reports damage by types of its own.
    except (OSError, ValueError, TypeError, LookupError) as error:
        name = given if isinstance(given, str | Path) else "pictures"
        raise MediaError(f"{name}: cannot be read as a clip: {error}") from error


def pixels_of(one: Any) -> np.ndarray:
    """One picture as ``uint8 [H, W, 3]``, of what :func:`frames_of` takes; else a MediaError."""
    if isinstance(one, (str, Path)):
        return read_picture(Path(one))
    if isinstance(one, Image.Image):
        return as_shown(one)
    if hasattr(one, "detach"):  # a tensor; numpy has no bfloat16
        one = (one.float() if one.is_floating_point() else one).detach().cpu()
    pixels = np.asarray(one)
    if pixels.ndim == 3 and pixels.shape[-1] != 3 and pixels.shape[0] == 3:
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.dtype.kind == "f" and pixels.size and pixels.min() >= 0 and pixels.max() <= 1:
        pixels = np.rint(255 * pixels).astype(np.uint8)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[-1] != 3 or not pixels.size:
        what = f"{pixels.dtype} {list(pixels.shape)}"
        raise MediaError(f"a picture is uint8 [H, W, 3], or floats from 0 to 1; this is {what}")
    return pixels


def as_shown(picture: Image.Image) -> np.ndarray:
    """A picture as every viewer shows it, ``uint8 [H, W, 3]``: turned, on white, in 8 bits.

    MediaError for one that does not say what is white, and for several in one file.
    """
    # "MPO" is a JPEG that comes with smaller ones, or with one for the other eye.
    if (count := getattr(picture, "n_frames", 1)) > 1 and picture.format != "MPO":
        raise MediaError(f"holds {count} pictures: give one of them, or a GIF as a video")
    vague = picture.mode == "I" and picture.format not in ("PNG", "PPM")
    if vague or picture.mode in ("F", "La"):
        raise MediaError(f"mode {picture.mode} does not say what is white: give it as RGB")
    picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I"):
        deep = np.asarray(picture).astype(np.float64)
        picture = Image.fromarray(np.rint(deep / 257).clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        ground = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(ground, picture.convert("RGBA"))
    return np.asarray(picture.convert("RGB"))
