"""A video file: when each of its frames is shown, and the pixels of some of them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from PIL import Image

from sally_anne.core.errors import ClipError
from sally_anne.data.pictures import MOST_PIXELS, Timeline, check_file, check_pixels, fitted

# Containers whose header says how long the video is; others guess it from the rate of bytes.
_SURE = ("mov", "mp4", "matroska", "webm", "avi")
# PyAV reports damage by FFmpegError, frames without a picture format by ValueError.
_UNREADABLE = (av.FFmpegError, OSError, ValueError)
# Playlists lead to other files and addresses: only what holds its pictures itself is opened.
SAFE = {
    "protocol_whitelist": "file",
    "format_whitelist": "mov,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,asf,ogg,m4v,h264,hevc,ivf",
}


def timeline_of(path: Path) -> Timeline:
    """The frames of a video; reads the packets without decoding them where they are stamped."""
    try:
        state = path.stat()
    except OSError as error:
        raise ClipError(f"{path}: this video cannot be read ({error.strerror})") from error
    return _timeline(path, state.st_mtime_ns, state.st_size)


# Questions of one video follow each other.
@lru_cache(maxsize=32)
def _timeline(path: Path, changed: int, size: int) -> Timeline:
    stamps: list[int | None] = []
    lasting: list[int] = []
    keys: list[int] = []
    reach, broken = 0.0, ""
    with opened_video(path) as (container, stream):
        origin = (container.start_time or 0) / 1_000_000
        declared = (container.duration or 0) / 1_000_000
        sure = any(name in container.format.name.split(",") for name in _SURE)
        try:
            for packet in container.demux(stream, *container.streams.audio):
                if not packet.size or packet.is_corrupt:
                    continue
                stamp, last = packet.pts, packet.duration or 0
                if stamp is not None and packet.time_base is not None:
                    reach = max(reach, float((stamp + last) * packet.time_base) - origin)
                if packet.stream is not stream:
                    continue
                if packet.is_keyframe and stamp is not None:
                    keys.append(stamp)
                if not packet.is_discard:
                    stamps.append(stamp)
                    lasting.append(last)
        except _UNREADABLE as error:
            broken = f"; it is damaged there ({error})"
        base, rate = stream.time_base, stream.average_rate or stream.guessed_rate
        if container.format.name == "avi" and rate:
            # Its length is guessed from what is left of the file; its number of frames is not.
            declared = max(declared, stream.frames / float(rate))
    if None in stamps or len(set(stamps)) < len(stamps) or base is None or (stamps and not keys):
        return _counted(path)
    if sure and not broken and declared - reach > 1 + 0.01 * declared:
        broken = f"; it is cut short: its header says {declared:.2f} s. Download it again"
    whole = np.array(stamps, dtype=np.int64)
    # Without a key frame before them the first ones cannot be decoded.
    known = whole >= min(keys, default=0)
    if not known.any():
        raise ClipError(f"{path}: this video has no frames{broken}")
    whole, durations = whole[known], np.array(lasting, dtype=np.int64)[known]
    order = np.argsort(whole)
    whole = whole[order]
    times = whole * float(base) - origin
    last_one = float(durations[order[-1]] * base) or (1 / float(rate) if rate else 0.0)
    return Timeline(
        path=path,
        times=times,
        numbers=np.arange(len(times)),
        end=float(times[-1]) + last_one,
        damage=broken,
        stamps=whole,
        keys=np.array(sorted(set(keys)), dtype=np.int64),
    )


def _counted(path: Path) -> Timeline:
    """Decodes the whole video, for files whose packets are not stamped."""
    times: list[float | None] = []
    broken = ""
    with opened_video(path) as (container, stream):
        rate = float(stream.average_rate or stream.guessed_rate or 0)
        try:
            times.extend(frame.time for frame in container.decode(stream))
        except _UNREADABLE as error:
            broken = f"; it is damaged there ({error})"
    if not times:
        raise ClipError(f"{path}: this video has no frames{broken}")
    known = np.array([time for time in times if time is not None])
    if len(known) == len(times) and (np.diff(known) > 0).all():
        found = known - known[0]
    elif rate > 0:
        found = np.arange(len(times)) / rate
    else:
        raise ClipError(f"{path}: neither frames nor header say when frames are shown")
    gap = 1 / rate if rate > 0 else float(found[-1] - found[-2]) if len(found) > 1 else 0.0
    return Timeline(path, found, np.arange(len(found)), float(found[-1]) + gap, broken)


def read_frames(timeline: Timeline, places: Sequence[int], most: int | None = None) -> np.ndarray:
    """Frames at rising ``places`` of the timeline, ``uint8 [F, height, width, 3]``.

    Frames of another size than the first are scaled to it. Those of more than ``most`` pixels are
    scaled down one by one as they are decoded, so that no video lies in memory in its full size.
    ClipError names the time of one that cannot be decoded.
    """
    found, why = Frames(places, most), "it is damaged there"
    try:
        with opened_video(timeline.path) as (container, stream):
            stream.thread_type = "AUTO"
            if timeline.stamps is None:
                decode_counting(container, stream, found)
            else:
                _decode_stamped(container, stream, timeline, found)
    except ClipError:
        raise
    except _UNREADABLE as error:
        why = str(error)
    if missing := [place for place in places if place not in found.there]:
        raise ClipError(
            f"{timeline.path}: the frame at {timeline.times[missing[0]]:.2f} s cannot be decoded "
            f"({why}); download the video again"
        )
    assert found.pixels is not None
    return found.pixels


class Frames:
    """Frames at ``places``, each scaled and laid where it belongs as it comes."""

    def __init__(self, places: Sequence[int], most: int | None) -> None:
        self.rows = {place: row for row, place in enumerate(places)}
        self.most = most
        self.there: set[int] = set()
        self.pixels: np.ndarray | None = None

    def add(self, place: int, frame: av.VideoFrame) -> None:
        if self.pixels is None:
            check_pixels(frame.width, frame.height)
            width, height = fitted(frame.width, frame.height, self.most)
            self.pixels = np.empty((len(self.rows), height, width, 3), dtype=np.uint8)
        height, width = self.pixels.shape[1:3]
        whole = frame.to_ndarray(format="rgb24")
        if whole.shape[:2] != (height, width):
            # FFmpeg's own scaling darkens by one or two of 255.
            picture = Image.fromarray(whole).resize((width, height), Image.Resampling.BICUBIC)
            whole = np.asarray(picture)
        self.pixels[self.rows[place]] = whole
        self.there.add(place)


def decode_counting(container: Any, stream: Any, found: Frames) -> None:
    """Decode from the beginning, taking a frame's number for its place."""
    for number, frame in enumerate(container.decode(stream)):
        if number in found.rows:
            found.add(number, frame)
        if len(found.there) == len(found.rows):
            return


def _decode_stamped(container: Any, stream: Any, timeline: Timeline, found: Frames) -> None:
    """Decodes from the key frame before each group of frames that share it."""
    assert timeline.stamps is not None and timeline.keys is not None
    groups: dict[int, dict[int, int]] = {}
    for place in found.rows:
        stamp = int(timeline.stamps[place])
        key = int(np.searchsorted(timeline.keys, stamp, "right")) - 1
        groups.setdefault(key, {})[stamp] = place
    for key, wanted in groups.items():
        # Some containers land behind the key frame, and frames after some key frames need what was
        # before them: go further back, then.
        for start in dict.fromkeys((key, max(key - 1, 0))):
            container.seek(int(timeline.keys[start]), stream=stream, backward=True)
            _decode_from_here(container, stream, wanted, found)
            if all(place in found.there for place in wanted.values()):
                break
        else:
            with opened_video(timeline.path) as (again, beginning):
                _decode_from_here(again, beginning, wanted, found)
            if any(place not in found.there for place in wanted.values()):
                return


def _decode_from_here(container: Any, stream: Any, wanted: dict[int, int], found: Frames) -> None:
    last = max(wanted)
    try:
        for frame in container.decode(stream):
            if frame.pts in wanted and not frame.is_corrupt:
                found.add(wanted[frame.pts], frame)
            if frame.pts is not None and frame.pts >= last:
                return
    except av.EOFError:
        return


@contextmanager
def opened_video(path: Path, data: bytes | None = None) -> Iterator[tuple[Any, Any]]:
    """The container and its moving pictures, not a cover; ``data`` is what the file would hold.

    Raises:
        ClipError: it is no file of a video, cannot be opened, has sound alone, or frames of more
            than :data:`sally_anne.data.pictures.MOST_PIXELS` pixels.
    """
    try:
        if data is None:
            check_file(path)
        file = str(path) if data is None else io.BytesIO(data)
        container = av.open(file, metadata_errors="replace", container_options=SAFE)
    except ClipError as error:
        raise ClipError(f"{path}: this video {error}") from error
    except _UNREADABLE as error:
        raise ClipError(f"{path}: this file cannot be opened as a video ({error})") from error
    with container:
        streams = container.streams.video
        moving = [s for s in streams if not s.disposition & Disposition.attached_pic]
        if not moving:
            raise ClipError(f"{path}: has no video stream, only sound or a cover")
        # A stream of an unknown kind has no codec, and fails when it is decoded.
        if codec := moving[0].codec_context:
            try:
                check_pixels(codec.width, codec.height)
            except ClipError as error:
                raise ClipError(f"{path}: a frame of this video {error}") from error
            # Also for frames of which the header does not say how large they are.
            codec.options = {"max_pixels": str(MOST_PIXELS)}
        yield container, moving[0]
