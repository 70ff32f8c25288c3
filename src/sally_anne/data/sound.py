"""The sound of a film or a sound file, as samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np

from sally_anne.core.errors import ClipError
from sally_anne.data.media import SAFE, UNREADABLE
from sally_anne.data.pictures import check_file

# Samples a second, as Whisper, WavLM and Qwen's models with sound take them.
RATE = 16_000
SOUNDS = (".wav", ".mp3", ".flac", ".m4a", ".ogg", ".opus")
_SAFE = SAFE | {"format_whitelist": SAFE["format_whitelist"] + ",wav,mp3,flac,aac"}


def read_sound(path: Path, start: float = 0.0, end: float | None = None) -> np.ndarray:
    """The mean channel of a file's first sound, from ``start`` to ``end`` seconds: ``float32 [S]``.

    At :data:`RATE`, from -1 to 1; times are from the file's beginning, and a sound that begins
    later is silent until then. ClipError if there is none or it cannot be decoded.
    """
    blocks: list[tuple[int, np.ndarray]] = []
    last = None if end is None else round(end * RATE)
    place: int | None = None

    def take(frames: list[Any]) -> None:
        nonlocal place
        for frame in frames:
            assert place is not None
            # FFmpeg's own mix of two channels is louder than either.
            block = frame.to_ndarray().mean(0)
            blocks.append((place, block))
            place += len(block)

    with _opened_sound(path) as container:
        if not container.streams.audio:
            raise ClipError(f"{path}: has no sound")
        origin = (container.start_time or 0) / 1_000_000
        resampler = av.AudioResampler(format="fltp", rate=RATE)
        for frame in container.decode(container.streams.audio[0]):
            if place is None:
                place = round(((frame.time or 0.0) - origin) * RATE)
            take(resampler.resample(frame))
            if last is not None and place >= last:
                break
        if place is not None:
            take(resampler.resample(None))
    if not blocks:
        raise ClipError(f"{path}: its sound is empty")
    length = blocks[-1][0] + len(blocks[-1][1])
    sound = np.zeros(max(length, 0), dtype=np.float32)
    for begin, block in blocks:
        kept = block[max(-begin, 0) :]
        sound[max(begin, 0) : max(begin, 0) + len(kept)] = kept
    part = sound[round(start * RATE) : last]
    if not len(part):
        raise ClipError(f"{path}: its sound ends at {length / RATE:.2f} s, before {start:g} s")
    return part


def seconds_of(path: Path) -> float | None:
    """How long a file's first sound is by its header, 0 where it is unknown; None without sound."""
    return _seconds(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=1024)
def _seconds(path: Path, changed: int) -> float | None:
    with _opened_sound(path) as container:
        for stream in container.streams.audio[:1]:
            if stream.duration is not None and stream.time_base is not None:
                return float(stream.duration * stream.time_base)
            return (container.duration or 0) / 1_000_000
    return None


@contextmanager
def _opened_sound(path: Path) -> Iterator[Any]:
    try:
        check_file(path)
        with av.open(str(path), metadata_errors="replace", container_options=_SAFE) as found:
            yield found
    except ClipError as error:
        named = str(error).startswith(str(path))
        raise ClipError(str(error) if named else f"{path}: {error}") from error
    except UNREADABLE as error:
        raise ClipError(f"{path}: its sound cannot be decoded ({error})") from error
