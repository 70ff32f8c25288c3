"""Frames from disk: numbered PNG files, or the video beside them where there are none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sally_anne.core.errors import ClipError, MediaError
from sally_anne.data.gridtom.render import HEIGHT, WIDTH, Perspective
from sally_anne.data.media import read_frames, timeline_of
from sally_anne.data.pictures import read_picture

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
        """Frames ``ticks`` as ``uint8 [N, 420, 294, 3]``; MediaError names a file."""
        folder = self.folder / PERSPECTIVE_FOLDERS[perspective]
        try:
            names = set(os.listdir(folder))
        except OSError as error:
            raise MediaError(
                f"{folder}: no frames from the {perspective} perspective here "
                f"({error.strerror}); generated stories have all perspectives"
            ) from error
        try:
            if any(name.endswith(".png") for name in names):
                return np.stack([_read_png(folder / f"{tick}.png") for tick in ticks])
            if VIDEO not in names:
                raise MediaError(f"{folder}: has neither PNG frames nor {VIDEO}")
            return _read_video(folder / VIDEO, ticks)
        except ClipError as error:
            raise MediaError(str(error)) from error


def _read_png(path: Path) -> np.ndarray:
    if not path.exists():
        raise MediaError(f"{path}: this frame is missing")
    return _sized(path, read_picture(path))


def _read_video(path: Path, ticks: Sequence[int]) -> np.ndarray:
    timeline = timeline_of(path)
    length = len(timeline.numbers)
    if missing := [tick for tick in sorted(ticks) if tick >= length]:
        raise MediaError(
            f"{path}: frame {missing[0]} lies beyond the video, which ends after {length} frames"
            f"{timeline.damage}"
        )
    places = sorted(set(ticks))
    return _sized(path, read_frames(timeline, places))[np.searchsorted(places, ticks)]


def _sized(path: Path, pixels: np.ndarray) -> np.ndarray:
    height, width = pixels.shape[-3:-1]
    if (width, height) != (WIDTH, HEIGHT):
        raise MediaError(f"{path}: must be {WIDTH} x {HEIGHT}, is {width} x {height}")
    return pixels
