"""What is heard in a film or a sound file, as samples."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np

from sally_anne.core.errors import ClipError
from sally_anne.data.pictures import check_file
from sally_anne.data.video import SAFE

# A second of what Whisper, WavLM and Qwen's models that hear read.
RATE = 16_000
SOUNDS = (".wav", ".mp3", ".flac", ".m4a", ".ogg", ".opus")
_SAFE = SAFE | {"format_whitelist": SAFE["format_whitelist"] + ",wav,mp3,flac,aac"}


def read_sound(path: Path, start: float = 0.0, end: float | None = None) -> np.ndarray:
    """The mean channel of a file's first sound, from ``start`` to ``end`` seconds: ``float32 [S]``.

    At :data:`RATE`, from -1 to 1; times are from the file's beginning, where a sound that begins
    later is silent. ClipError if it has none, or cannot be decoded.
    """
    blocks: list[tuple[int, np.ndarray]] = []
    last = None if end is None else round(end * RATE)
    try:
        check_file(path)
        with av.open(str(path), metadata_errors="replace", container_options=_SAFE) as container:
            if not container.streams.audio:
                raise ClipError("has no sound")
            origin = (container.start_time or 0) / 1_000_000
            resampler = av.AudioResampler(format="fltp", rate=RATE)
            place = None
            for frame in container.decode(container.streams.audio[0]):
                if place is None:
                    place = round(((frame.time or 0.0) - origin) * RATE)
                place = _take(blocks, place, resampler.resample(frame))
                if last is not None and place >= last:
                    break
            if place is not None:
                _take(blocks, place, resampler.resample(None))
    except ClipError as error:
        raise ClipError(f"{path}: {error}") from error
    except (av.FFmpegError, OSError, ValueError) as error:
        raise ClipError(f"{path}: its sound cannot be decoded ({error})") from error
    if not blocks:
        raise ClipError(f"{path}: its sound is empty")
    length = blocks[-1][0] + len(blocks[-1][1])
    sound = np.zeros(max(length, 0), dtype=np.float32)
    for begin, block in blocks:
        kept = block[max(-begin, 0) :]
        sound[max(begin, 0) : max(begin, 0) + len(kept)] = kept
    cut = sound[round(start * RATE) : last]
    if not len(cut):
        raise ClipError(f"{path}: its sound ends at {length / RATE:.2f} s, before {start:g} s")
    return cut


def seconds_of(path: Path) -> float | None:
    """How long a file's first sound is as its header says, 0 where it does not; None without one.

    ClipError if the file cannot be opened.
    """
    changed = path.stat().st_mtime_ns if path.exists() else 0
    return _seconds(path, changed)


# Many questions are about one film.
@lru_cache(maxsize=1024)
def _seconds(path: Path, changed: int) -> float | None:
    try:
        check_file(path)
        with av.open(str(path), metadata_errors="replace", container_options=_SAFE) as container:
            found = None
            for stream in container.streams.audio[:1]:
                found = (container.duration or 0) / 1_000_000
                if stream.duration is not None and stream.time_base is not None:
                    found = float(stream.duration * stream.time_base)
    except ClipError as error:
        raise ClipError(f"{path}: {error}") from error
    except (av.FFmpegError, OSError, ValueError) as error:
        raise ClipError(f"{path}: its sound cannot be opened ({error})") from error
    return found


def _take(blocks: list[tuple[int, np.ndarray]], place: int, frames: list[Any]) -> int:
    for frame in frames:
        # FFmpeg's own mix of two channels is louder than either.
        block = frame.to_ndarray().mean(0)
        blocks.append((place, block))
        place += len(block)
    return place
