"""Frames of a video: which ones, at what times, cut out with PyAV."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sally_anne.core.errors import ClipError
from sally_anne.data.items import Media, Sampling, Window
from sally_anne.data.pictures import (
    Timeline,
    fitted,
    read_pictures,
    size_of_pictures,
    timeline_of_pictures,
)
from sally_anne.data.video import opened_video, read_frames, timeline_of

# Times are sums of fractions such as 1/30 s; two closer than this are one.
_SAME = 1e-6
# Of a frame: what the makers of Qwen2-VL give one at most (qwen-vl-utils, VIDEO_MAX_PIXELS), 768
# tokens; the other families' processors scale to less. 64 frames are 116 MB, of 1080p 398 MB.
MOST_PIXELS = 768 * 28 * 28


@dataclass(frozen=True, eq=False)
class Cut:
    """Which frames of a video are taken: rising ``places``, of a window of so many seconds."""

    timeline: Timeline
    places: list[int]
    duration: float

    @property
    def times(self) -> tuple[float, ...]:
        """When each comes on screen, in seconds from the video's beginning.

        The first may lie before the window, if it is on screen when that begins.
        """
        return tuple(float(self.timeline.times[place]) for place in self.places)


@dataclass(frozen=True, eq=False)
class Clip(Cut):
    """And the ``frames``: ``uint8 [F, height, width, 3]``, RGB, neither rotated nor stretched."""

    frames: np.ndarray


def read_clip(
    media: Media, window: Window, sampling: Sampling, most_pixels: int | None = MOST_PIXELS
) -> Clip:
    """Cut a window out of a video and take frames of it, with at most ``most_pixels`` pixels."""
    found = cut(media, window, sampling)
    if media.kind == "frames":
        frames = read_pictures(found.timeline, found.places, media, most_pixels)
    else:
        frames = read_frames(found.timeline, found.places, most_pixels)
    return Clip(found.timeline, found.places, found.duration, frames)


def shape_of(
    media: Media,
    window: Window,
    sampling: Sampling,
    most_pixels: int | None = MOST_PIXELS,
    exact: bool = True,
) -> tuple[int, int, int]:
    """Frames, height and width that :func:`read_clip` gives; no frame is decoded.

    Unless ``exact``, the number of frames is the most that ``sampling`` takes, where it says one,
    and no more than the video's header is read.
    """
    most = sampling.count or sampling.most
    if media.path is None or exact or most is None:
        most = len(cut(media, window, sampling).places)
    assert media.path is not None  # or there was no cut
    changed = media.path.stat().st_mtime_ns if media.path.exists() else 0
    width, height = fitted(*_size(media, changed), most_pixels)
    return most, height, width


# Many questions are about one video.
@lru_cache(maxsize=1024)
def _size(media: Media, changed: int) -> tuple[int, int]:
    if media.kind == "frames":
        return size_of_pictures(media)
    assert media.path is not None
    with opened_video(media.path) as (_, stream):
        return stream.codec_context.width, stream.codec_context.height


def cut(media: Media, window: Window, sampling: Sampling) -> Cut:
    """Choose frames of a window of a video.

    Frames are chosen by their time of presentation, also where their rate varies; only the
    stretches from the key frame before each of them are decoded. A window that ends beyond the
    video ends with it. ``media.frames`` restricts the choice to frames of these numbers; a count is
    spread over these alone, in whole steps. In a folder of pictures frame n is the picture numbered
    n, and pictures follow each other evenly over ``media.length``, or one a second where that is
    not known.

    Raises:
        ClipError: there is no video, it is damaged or has no pictures, the window begins beyond
            its end, or none of the item's frames lies in it; names file and time.
    """
    if media.path is None:
        raise ClipError(
            f"the video {media.url or 'of this item'} is not here; download it into the data "
            "folder, or use --view text or --view none, which work without videos"
        )
    path, (start, asked) = media.path, window_of(media, window)
    timeline = timeline_of_pictures(media) if media.kind == "frames" else timeline_of(path)
    if start >= timeline.end:
        raise ClipError(
            f"{path}: the window begins at {start:g} s, but the video ends at {timeline.end:.2f} s"
            f"{timeline.damage}"
        )
    end = timeline.end if asked is None else min(asked, timeline.end)
    if timeline.damage and end != asked:
        raise ClipError(
            f"{path}: the window goes to {'its end' if asked is None else f'{asked:g} s'}, but the "
            f"frames stop at {timeline.end:.2f} s{timeline.damage}"
        )
    if media.frames is not None and (missing := set(media.frames) - set(timeline.numbers.tolist())):
        raise ClipError(
            f"{path}: has no frame {min(missing)}; the last one is "
            f"{timeline.numbers[-1]}{timeline.damage}"
        )
    chosen = choose(timeline, start, end, sampling, media.frames)
    if not chosen:
        raise ClipError(
            f"{path}: none of the frames of this item is on screen from {start:g} to {end:g} s"
        )
    return Cut(timeline, chosen, end - start)


def window_of(media: Media, window: Window) -> tuple[float, float | None]:
    """Beginning and end of a window in seconds; the end is None for the end of the video."""
    start: float | None = media.start
    end = media.end
    if window == "focused":
        start, end = media.focus, media.end if media.focus_end is None else media.focus_end
    name = media.path or media.url or "this video"
    if start is None:
        raise ClipError(f"{name}: has no focused window; use --window full")
    if not (math.isfinite(start) and (end is None or math.isfinite(end))):
        raise ClipError(f"{name}: the window {start} to {end} s is not finite")
    if end is not None and end < start:
        raise ClipError(f"{name}: the window ends at {end:g} s, before its start {start:g} s")
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
        places = places[np.isin(timeline.numbers[places], np.array(sorted(allowed), dtype=int))]
    if not len(places):
        return []
    most = sampling.count
    if most is None:
        if sampling.every is not None:
            chosen = _every(timeline.numbers[places], sampling.every)
        else:
            assert sampling.rate is not None
            chosen = _steady(timeline.times[places], start, end, sampling.rate)
        most = sampling.most
        if most is None or len(chosen) <= most:
            return places[chosen].tolist()
    if len(places) > most and allowed is not None:
        places = places[_whole_steps(len(places), most)]
    elif len(places) > most:
        looked = even_times(start, end, most)
        places = places[np.unique(_on_screen(timeline.times[places], looked))]
    return places.tolist()


def _whole_steps(total: int, count: int) -> np.ndarray:
    """``count`` of ``total`` places ``[count]``, as far apart as whole steps from 0 can be.

    MMToM-QA's own evaluation spreads 8 frames so (``testing_gpt.py``): to frame 100 0, 14, ... 98.
    """
    if count == 1:
        return np.array([(total - 1) // 2])
    return np.arange(count) * ((total - 1) // (count - 1))


def _on_screen(times: np.ndarray, looked: np.ndarray) -> np.ndarray:
    """Places of the frames on screen at some moments; before the first frame it is that one."""
    return np.maximum(np.searchsorted(times, looked + _SAME, "right") - 1, 0)


def even_times(start: float, end: float, count: int) -> np.ndarray:
    """``count`` equally spaced times ``[count]``, ends included; the middle if it is one."""
    if count == 1:
        return np.array([(start + end) / 2])
    return np.linspace(start, end, count)


def _every(numbers: np.ndarray, every: int) -> np.ndarray:
    """Each at least ``every`` frames after the one before."""
    chosen = [0]
    for place, number in enumerate(numbers):
        if number - numbers[chosen[-1]] >= every:
            chosen.append(place)
    return np.array(chosen)


def _steady(times: np.ndarray, start: float, end: float, rate: float) -> np.ndarray:
    """Frames on screen at ``start``, ``start + 1 / rate`` and so on up to ``end``."""
    # before[i]: how many of these moments lie before frame i comes on screen.
    before = np.maximum(np.ceil((times - start) * rate - _SAME), 0)
    before[0] = 0
    total = math.floor((end - start) * rate + _SAME) + 1
    after = np.minimum(np.append(before[1:], total), total)
    return np.flatnonzero(after > before)
