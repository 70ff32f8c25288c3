"""Films, or lists of pictures: which frames of a window are taken, and their pixels."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from sally_anne.core import media as film
from sally_anne.core.errors import MediaError
from sally_anne.data.items import Media, Sampling, Window


@dataclass(frozen=True, eq=False)
class Clip:
    """Rising ``places`` in a timeline, of so many seconds, ``frames`` ``[F, height, width, 3]``."""

    timeline: film.Timeline
    places: list[int]
    duration: float
    frames: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.uint8))

    @property
    def times(self) -> tuple[float, ...]:
        """When each comes on screen, in seconds; the first may do so before the window begins."""
        return tuple(float(self.timeline.times[place]) for place in self.places)


def read_clip(
    media: Media, window: Window, sampling: Sampling, most_pixels: int | None = film.FRAME_PIXELS
) -> Clip:
    """Take frames of a window of a film, each scaled down to at most ``most_pixels`` pixels."""
    found = cut(media, window, sampling)
    if media.files:
        paths = [media.files[place] for place in found.places]
        pictures = [film.read_picture(path, most_pixels) for path in paths]
        for path, picture in zip(paths, pictures, strict=True):
            if picture.shape != pictures[0].shape:
                raise MediaError(f"{path}: differs in size from {paths[0].name}; scale them alike")
        return replace(found, frames=np.stack(pictures))
    return replace(found, frames=film.read_frames(found.timeline, found.places, most_pixels))


def shape_of(
    media: Media,
    window: Window,
    sampling: Sampling,
    most_pixels: int | None = film.FRAME_PIXELS,
    exact: bool = True,
) -> tuple[int, int, int]:
    """Shape of what :func:`read_clip` gives, undecoded; unless ``exact`` the most there may be."""
    most = sampling.count or sampling.most
    if media.path is None or exact or most is None:
        most = len(cut(media, window, sampling).places)
    assert media.path is not None  # or there was no cut
    changed = media.path.stat().st_mtime_ns if media.path.exists() else 0
    width, height = film.fitted(*_size(media, changed), most_pixels)
    return most, height, width


# Many questions are about one film.
@lru_cache(maxsize=1024)
def _size(media: Media, changed: int) -> tuple[int, int]:
    if media.files:
        return film.size_of_picture(media.files[0])
    assert media.path is not None
    return film.size_of_film(media.path)


def cut(media: Media, window: Window, sampling: Sampling) -> Clip:
    """Choose frames of a window by their times of presentation, also where their rate varies.

    MediaError names file and time where there is no film, it is damaged, or nothing is to be taken.
    """
    if media.path is None:
        raise MediaError(
            f"the video {media.url or 'of this item'} is not here; download it into the data "
            "folder, or use --view text or --view none, which work without videos"
        )
    path, (start, stop) = media.path, window_of(media, window)
    pictures = film.Timeline(path, np.arange(len(media.files)) * 1.0, len(media.files))
    timeline = pictures if media.files else film.timeline_of(path)
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
    """Beginning and end of a window in seconds; None for the end of the film."""
    start: float | None = media.start
    end = media.end
    if window == "focused":
        start, end = media.focus, media.end if media.focus_end is None else media.focus_end
    if start is None or not math.isfinite(start) or not start <= (start if end is None else end):
        name = media.path or media.url or "this video"
        raise MediaError(f"{name}: has no {window} window ({start} to {end} s); use --window full")
    return start, end


def choose(
    timeline: film.Timeline,
    start: float,
    end: float,
    sampling: Sampling,
    allowed: Collection[int] | None = None,
) -> list[int]:
    """Rising places in ``timeline`` of frames from ``start`` to ``end``, of allowed numbers."""
    first, last = film.on_screen(timeline.times, np.array([start, end]))
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
        count = math.floor((end - start) * sampling.rate + film.SAME) + 1
        chosen = np.unique(film.on_screen(times, start + np.arange(count) / sampling.rate))
    most = sampling.count or sampling.most
    if most is not None and len(chosen) > most:
        if allowed is None:
            chosen = np.unique(film.on_screen(times, film.even_times(start, end, most)))
        elif most == 1:
            chosen = np.array([(len(places) - 1) // 2])
        else:
            # MMToM-QA's own evaluation spreads 8 frames in whole steps (testing_gpt.py): 0, 14, ...
            chosen = np.arange(most) * ((len(places) - 1) // (most - 1))
    return places[chosen].tolist()
