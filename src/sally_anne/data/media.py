"""Films and pictures: which frames of a window are taken, and their pixels (PyAV, Pillow).

A list of pictures is read like a film.
"""

from __future__ import annotations

import io
import math
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from PIL import Image, ImageFile

from sally_anne.core.errors import MediaError
from sally_anne.data.items import Media, Sampling, Window

# Of a frame as it is given to a model (qwen-vl-utils, VIDEO_MAX_PIXELS): 768 tokens.
FRAME_PIXELS = 768 * 28 * 28
# Times are sums of fractions such as 1/30 s; two closer than this are one.
_SAME = 1e-6
# Containers whose header states the length; others guess it from the rate of bytes.
_SURE = {"mov", "mp4", "matroska", "webm", "avi"}
# Playlists lead to other files and addresses, so they are not among the formats.
SAFE = {
    "protocol_whitelist": "file",
    "format_whitelist": "mov,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,asf,ogg,m4v,h264,hevc,ivf",
}
# PyAV reports damage by FFmpegError, frames without a picture format by ValueError.
UNREADABLE = (av.FFmpegError, OSError, ValueError)
# Pillow reads dozens of formats, and some, such as EPS, by starting other programs.
FORMATS = ("PNG", "JPEG", "WEBP")
# Of one picture or frame as stored: a video in 8K has 33 million.
MOST_PIXELS = 64_000_000


@dataclass(frozen=True, eq=False)
class Timeline:
    """The frames of a film, or pictures, in the order of presentation.

    Attributes:
        path: the file or folder.
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


@dataclass(frozen=True, eq=False)
class Clip:
    """The frames taken of a film: rising ``places`` in its timeline, of a window of seconds.

    Once they are read ``frames`` are ``uint8 [F, height, width, 3]``, RGB, neither rotated nor
    stretched.
    """

    timeline: Timeline
    places: list[int]
    duration: float
    frames: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.uint8))

    @property
    def times(self) -> tuple[float, ...]:
        """When each comes on screen, in seconds; the first may do so before the window begins."""
        return tuple(float(self.timeline.times[place]) for place in self.places)


def read_clip(
    media: Media, window: Window, sampling: Sampling, most_pixels: int | None = FRAME_PIXELS
) -> Clip:
    """Take frames of a window of a film, each scaled down to at most ``most_pixels`` pixels."""
    found = cut(media, window, sampling)
    if media.files:
        return replace(found, frames=_read_pictures(found, media, most_pixels))
    return replace(found, frames=read_frames(found.timeline, found.places, most_pixels))


def shape_of(
    media: Media,
    window: Window,
    sampling: Sampling,
    most_pixels: int | None = FRAME_PIXELS,
    exact: bool = True,
) -> tuple[int, int, int]:
    """Frames, height and width that :func:`read_clip` gives; no frame is decoded.

    Unless ``exact``, the most frames that ``sampling`` allows are counted where it has a limit, and
    only the header is read.
    """
    most = sampling.count or sampling.most
    if media.path is None or exact or most is None:
        most = len(cut(media, window, sampling).places)
    assert media.path is not None  # or there was no cut
    changed = media.path.stat().st_mtime_ns if media.path.exists() else 0
    width, height = fitted(*_size(media, changed), most_pixels)
    return most, height, width


# Many questions are about one film.
@lru_cache(maxsize=1024)
def _size(media: Media, changed: int) -> tuple[int, int]:
    if media.files:
        with _opened_file(media.files[0]) as image:
            return image.size
    assert media.path is not None
    with opened_video(media.path) as (_, stream):
        return stream.codec_context.width, stream.codec_context.height


def cut(media: Media, window: Window, sampling: Sampling) -> Clip:
    """Choose frames of a window by their times of presentation, also where their rate varies.

    A window that ends beyond the film ends with it. ``media.frames`` restricts the choice to frames
    of these numbers.

    Raises:
        MediaError: there is no film, it is damaged or empty, the window begins beyond its end, or
            none of the item's frames lies in it; names file and time.
    """
    if media.path is None:
        raise MediaError(
            f"the video {media.url or 'of this item'} is not here; download it into the data "
            "folder, or use --view text or --view none, which work without videos"
        )
    path, (start, stop) = media.path, window_of(media, window)
    numbers = np.arange(len(media.files))
    timeline = Timeline(path, numbers * 1.0, len(numbers)) if media.files else timeline_of(path)
    end = timeline.end if stop is None else min(stop, timeline.end)
    frames_end = f"the video ends at {timeline.end:.2f} s{timeline.damage}"
    if start >= timeline.end or timeline.damage and end != stop:
        raise MediaError(f"{path}: the window is {start:g} to {stop or end:g} s; {frames_end}")
    if missing := set(media.frames or ()).difference(range(len(timeline.times))):
        raise MediaError(f"{path}: has no frame {min(missing)}; {frames_end}")
    chosen = choose(timeline, start, end, sampling, media.frames)
    if not chosen:
        raise MediaError(f"{path}: no frame of this item is on screen from {start:g} to {end:g} s")
    return Clip(timeline, chosen, end - start)


def window_of(media: Media, window: Window) -> tuple[float, float | None]:
    """Beginning and end of a window in seconds; the end is None for the end of the film."""
    start: float | None = media.start
    end = media.end
    if window == "focused":
        start, end = media.focus, media.end if media.focus_end is None else media.focus_end
    if start is None or not math.isfinite(start) or not start <= (start if end is None else end):
        name = media.path or media.url or "this video"
        raise MediaError(f"{name}: has no {window} window ({start} to {end} s); use --window full")
    return start, end


def choose(
    timeline: Timeline,
    start: float,
    end: float,
    sampling: Sampling,
    allowed: Collection[int] | None = None,
) -> list[int]:
    """Rising places in ``timeline`` of frames from ``start`` to ``end``, of allowed numbers."""
    first, last = _on_screen(timeline.times, np.array([start, end]))
    places = np.arange(first, last + 1)
    if allowed is not None:
        places = places[np.isin(places, np.array(sorted(allowed), dtype=int))]
    if not len(places):
        return []
    times = timeline.times[places]
    chosen = np.arange(len(places))
    if sampling.every is not None:
        kept = [0]
        for place, number in enumerate(places):
            if number - places[kept[-1]] >= sampling.every:
                kept.append(place)
        chosen = np.array(kept)
    elif sampling.rate is not None:
        moments = np.arange(math.floor((end - start) * sampling.rate + _SAME) + 1) / sampling.rate
        chosen = np.unique(_on_screen(times, start + moments))
    most = sampling.count or sampling.most
    if most is not None and len(chosen) > most:
        if allowed is None:
            chosen = np.unique(_on_screen(times, even_times(start, end, most)))
        elif most == 1:
            chosen = np.array([(len(places) - 1) // 2])
        else:
            # MMToM-QA's own evaluation spreads 8 frames in whole steps (testing_gpt.py): 0, 14, ...
            chosen = np.arange(most) * ((len(places) - 1) // (most - 1))
    return places[chosen].tolist()


def _on_screen(times: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Places of the frames on screen at some moments; before the first frame it is that one."""
    return np.maximum(np.searchsorted(times, moments + _SAME, "right") - 1, 0)


def even_times(start: float, end: float, count: int) -> np.ndarray:
    """``count`` equally spaced times ``[count]``, ends included; the middle if it is one."""
    return np.array([(start + end) / 2]) if count == 1 else np.linspace(start, end, count)


def _read_pictures(found: Clip, media: Media, most: int | None) -> np.ndarray:
    paths = [media.files[place] for place in found.places]
    pictures = [read_picture(path, most) for path in paths]
    for path, picture in zip(paths, pictures, strict=True):
        if picture.shape != pictures[0].shape:
            raise MediaError(f"{path}: differs in size from {paths[0].name}; scale them alike")
    return np.stack(pictures)


def timeline_of(path: Path) -> Timeline:
    """The frames of a film, by the stamps of its packets; nothing is decoded."""
    try:
        state = path.stat()
    except OSError as error:
        raise MediaError(f"{path}: this video cannot be read ({error.strerror})") from error
    return _timeline(path, state.st_mtime_ns, state.st_size)


# Questions on one film follow each other.
@lru_cache(maxsize=32)
def _timeline(path: Path, changed: int, size: int) -> Timeline:
    packets: list[tuple[int, int]] = []
    keys: set[int] = set()
    reach, broken, bare = 0.0, "", False
    with opened_video(path) as (container, stream):
        origin = (container.start_time or 0) / 1_000_000
        declared = (container.duration or 0) / 1_000_000
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
    if sure and not broken and declared - reach > 1 + 0.01 * declared:
        broken = f"; it is cut short: its header says {declared:.2f} s. Download it again"
    # Without a key frame before them the first ones cannot be decoded.
    known = sorted(packet for packet in packets if keys and packet[0] >= min(keys))
    if bare or not known or len({stamp for stamp, _ in known}) < len(known):
        raise MediaError(f"{path}: this video has no frames with a time of their own{broken}")
    stamps = np.array([stamp for stamp, _ in known], dtype=np.int64)
    times = stamps * float(base) - origin
    end = float(times[-1]) + (float(known[-1][1] * base) or (1 / float(rate) if rate else 0.0))
    return Timeline(path, times, end, broken, stamps, np.array(sorted(keys)))


class Frames:
    """Frames at ``places``; each is scaled and put in its row as it is decoded."""

    def __init__(self, places: Sequence[int], most: int | None) -> None:
        self.rows = {place: row for row, place in enumerate(places)}
        self.most = most
        self.there: set[int] = set()
        self.pixels: np.ndarray | None = None

    def add(self, place: int, frame: av.VideoFrame) -> None:
        whole = frame.to_ndarray(format="rgb24")
        if self.pixels is None:
            width, height = fitted(frame.width, frame.height, self.most)
            self.pixels = np.empty((len(self.rows), height, width, 3), dtype=np.uint8)
        height, width = self.pixels.shape[1:3]
        if whole.shape[:2] != (height, width):
            # FFmpeg's own scaling darkens by one or two of 255.
            picture = Image.fromarray(whole).resize((width, height), Image.Resampling.BICUBIC)
            whole = np.asarray(picture)
        self.pixels[self.rows[place]] = whole
        self.there.add(place)


def read_frames(timeline: Timeline, places: Sequence[int], most: int | None = None) -> np.ndarray:
    """Frames at rising ``places`` of the timeline, ``uint8 [F, height, width, 3]``.

    All are scaled to the size of the first, which has at most ``most`` pixels. MediaError names the
    time of one that cannot be decoded.
    """
    frames, why = Frames(places, most), "it is damaged there"
    try:
        with opened_video(timeline.path) as (container, stream):
            stream.thread_type = "AUTO"
            _decode(container, stream, timeline, frames)
    except UNREADABLE as error:
        why = str(error)
    if missing := [place for place in places if place not in frames.there]:
        raise MediaError(
            f"{timeline.path}: the frame at {timeline.times[missing[0]]:.2f} s cannot be decoded "
            f"({why}); download the video again"
        )
    assert frames.pixels is not None
    return frames.pixels


def _decode(container: Any, stream: Any, timeline: Timeline, frames: Frames) -> None:
    """Decodes from the key frame before each group of frames that share it."""
    places = {int(timeline.stamps[place]): place for place in frames.rows}
    starts = np.searchsorted(timeline.keys, list(places), "right") - 1
    for start in dict.fromkeys(starts):
        group = {s: p for (s, p), key in zip(places.items(), starts, strict=True) if key == start}
        container.seek(int(timeline.keys[start]), stream=stream, backward=True)
        _decode_from_here(container, stream, group, frames)
    # Some containers land behind the key frame, and frames after some key frames need what was
    # before them.
    if missing := {stamp: p for stamp, p in places.items() if p not in frames.there}:
        with opened_video(timeline.path) as (again, beginning):
            _decode_from_here(again, beginning, missing, frames)


def _decode_from_here(container: Any, stream: Any, group: dict[int, int], frames: Frames) -> None:
    last = max(group)
    try:
        for frame in container.decode(stream):
            if frame.pts in group and not frame.is_corrupt:
                frames.add(group[frame.pts], frame)
            if frame.pts is not None and frame.pts >= last:
                return
    except av.EOFError:
        return


@contextmanager
def opened_video(path: Path, data: bytes | None = None) -> Iterator[tuple[Any, Any]]:
    """The container and its moving pictures, not a cover; ``data`` replaces the file's content.

    MediaError if it cannot be opened as a film, or has sound alone; frames of more than
    :data:`MOST_PIXELS` are not decoded.
    """
    try:
        if data is None:
            check_file(path)
        file = str(path) if data is None else io.BytesIO(data)
        container = av.open(file, metadata_errors="replace", container_options=SAFE)
    except (MediaError, *UNREADABLE) as error:
        raise MediaError(f"{path}: this file cannot be opened as a video ({error})") from error
    with container:
        streams = container.streams.video
        moving = [s for s in streams if not s.disposition & Disposition.attached_pic]
        if not moving:
            raise MediaError(f"{path}: has no video stream, only sound or a cover")
        # A stream of an unknown kind has no codec, and fails when it is decoded.
        if codec := moving[0].codec_context:
            codec.options = {"max_pixels": str(MOST_PIXELS)}
        yield container, moving[0]


def read_picture(path: Path, most: int | None = None) -> np.ndarray:
    """One picture, ``uint8 [height, width, 3]``, scaled down as it is read to ``most`` pixels."""
    with _opened_file(path) as image:
        size = fitted(*image.size, most)
        if size != image.size:
            # A JPEG is decoded at half its size or less where that is enough.
            image.draft("RGB", size)
        picture = image.convert("RGB")
        if size != picture.size:
            picture = picture.resize(size, Image.Resampling.BICUBIC)
        return np.array(picture)


@contextmanager
def _opened_file(path: Path) -> Iterator[Image.Image]:
    try:
        check_file(path)
        with opened_picture(path.read_bytes()) as image:
            yield image
    except (MediaError, OSError) as error:
        raise MediaError(f"{path}: this picture {error}") from error


@contextmanager
def opened_picture(data: bytes) -> Iterator[Image.Image]:
    """A picture by its file's bytes; the header is read at once, pixels on demand.

    MediaError, to be put after a name, for another format, too large a one, or damage.
    """
    # Other libraries tell Pillow, for the whole process, to fill what is missing with grey.
    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            yield image
    # Pillow reports damage by many types: truncation is an OSError, broken chunks are
    # SyntaxErrors, wrong headers ValueErrors, absurd sizes its own exception.
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise MediaError(f"cannot be decoded as {' or '.join(FORMATS)} ({error})") from error
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def check_opened(image: Image.Image) -> None:
    """As :func:`opened_picture`, of a picture that somebody else opened."""
    # "MPO" is a JPEG of several pictures; made ones have no format.
    if image.format not in (*FORMATS, "MPO", None):
        raise MediaError(f"cannot be decoded: it is {image.format}, no {' or '.join(FORMATS)}")


def check_file(path: Path) -> None:
    """Refuse pipes and devices, which may never end; to be put after a name."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise MediaError("cannot be read: it is no regular file")


def fitted(width: int, height: int, most: int | None) -> tuple[int, int]:
    """Width and height scaled down to at most ``most`` pixels; as they are if they have no more."""
    if most is None or width * height <= most:
        return width, height
    scale = math.sqrt(most / (width * height))
    return max(1, int(width * scale)), max(1, int(height * scale))
