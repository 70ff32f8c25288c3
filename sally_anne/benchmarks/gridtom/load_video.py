"""Frames from disk: numbered PNG files, or the video beside them where there are none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from sally_anne.benchmarks.gridtom.render import HEIGHT, WIDTH, Perspective
from sally_anne.benchmarks.pictures import opened
from sally_anne.benchmarks.video import opened_video
from sally_anne.core.errors import ClipError, MediaError

PERSPECTIVE_FOLDERS: dict[Perspective, str] = {
    "omniscient": "full",
    "protagonist": "protagonist_pov",
    "participant": "participant_pov",
}
VIDEO = "fps3.mp4"


@dataclass(frozen=True)
class FolderVideo:
    """Frames of one version, whose ``folder`` has one for each perspective."""

    folder: Path

    def frames(self, perspective: Perspective, ticks: Sequence[int]) -> np.ndarray:
        """Frames ``ticks`` as ``uint8 [N, 420, 294, 3]``.

        Raises:
            MediaError: a file is missing, truncated or of the wrong size.
        """
        folder = self.folder / PERSPECTIVE_FOLDERS[perspective]
        try:
            names = set(os.listdir(folder))
        except OSError as error:
            raise MediaError(
                f"{folder}: no frames from the {perspective} perspective here "
                f"({error.strerror}); generated stories have all perspectives"
            ) from error
        if any(name.endswith(".png") for name in names):
            return np.stack([_read_png(folder / f"{tick}.png") for tick in ticks])
        if VIDEO not in names:
            raise MediaError(f"{folder}: has neither PNG frames nor {VIDEO}")
        return _read_video(folder / VIDEO, ticks)


def _read_png(path: Path) -> np.ndarray:
    try:
        with opened(path) as image:
            _check_size(path, image.width, image.height)
            return np.array(image.convert("RGB"))
    except FileNotFoundError as error:
        raise MediaError(f"{path}: this frame is missing") from error
    except ClipError as error:
        raise MediaError(f"{path}: this frame {error}") from error


def _read_video(path: Path, ticks: Sequence[int]) -> np.ndarray:
    """Frame n is the n-th decoded frame."""
    found: dict[int, np.ndarray] = {}
    decoded = 0
    try:
        with opened_video(path) as (container, stream):
            for number, frame in enumerate(container.decode(stream)):
                decoded = number + 1
                if number in ticks:
                    _check_size(path, frame.width, frame.height)
                    found[number] = frame.to_ndarray(format="rgb24")
                if number == max(ticks):
                    break
    except ClipError as error:
        raise MediaError(str(error)) from error
    except (av.FFmpegError, OSError) as error:
        raise MediaError(
            f"{path}: this video cannot be decoded after {decoded} frames ({error})"
        ) from error
    if missing := [tick for tick in sorted(ticks) if tick not in found]:
        raise MediaError(
            f"{path}: frame {missing[0]} lies beyond the video, which ends after {decoded} frames"
        )
    return np.stack([found[tick] for tick in ticks])


def _check_size(path: Path, width: int, height: int) -> None:
    if (width, height) != (WIDTH, HEIGHT):
        raise MediaError(f"{path}: must be {WIDTH} x {HEIGHT}, is {width} x {height}")
