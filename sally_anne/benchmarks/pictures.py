"""A folder of numbered pictures, read like a film."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from sally_anne.benchmarks.film import Timeline
from sally_anne.benchmarks.picture_file import fitted, opened
from sally_anne.core.errors import ClipError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def timeline_of_pictures(folder: Path, length: float | None, pattern: str = "*") -> Timeline:
    """The pictures of a folder, evenly over ``length`` seconds, or one a second.

    Args:
        folder: holds them, perhaps among others.
        length: of the film in seconds, if it is known.
        pattern: of the names of those that count.

    Raises:
        ClipError: no folder, no pictures, or names without numbers or with one number twice.
    """
    numbers = np.array(sorted(_numbered(folder, pattern)), dtype=np.int64)
    gap = length / len(numbers) if length else 1.0
    return Timeline(folder, np.arange(len(numbers)) * gap, numbers, len(numbers) * gap)


def read_pictures(
    timeline: Timeline, places: Sequence[int], pattern: str = "*", most: int | None = None
) -> np.ndarray:
    """Pictures at ``places`` of the timeline, ``uint8 [F, height, width, 3]``.

    Args:
        timeline: of the folder.
        places: which.
        pattern: of the names of those that count.
        most: pixels a picture; larger ones are scaled down as they are read.

    Raises:
        ClipError: a picture is damaged or of another size than the first; names the file.
    """
    files = _numbered(timeline.path, pattern)
    found: list[np.ndarray] = []
    for place in places:
        path = files[int(timeline.numbers[place])]
        picture = _read(path, most)
        if found and picture.shape != found[0].shape:
            shapes = [f"{shape[1]} x {shape[0]}" for shape in (picture.shape, found[0].shape)]
            raise ClipError(f"{path}: is {shapes[0]}, the pictures before it are {shapes[1]}")
        found.append(picture)
    return np.stack(found)


def size_of_pictures(folder: Path, pattern: str = "*") -> tuple[int, int]:
    """Width and height of a folder's first picture; its pixels are not read.

    Raises:
        ClipError: there are no pictures, or the first is damaged; names the file.
    """
    files = _numbered(folder, pattern)
    path = files[min(files)]
    try:
        with opened(path) as image:
            return image.size
    except (ClipError, OSError) as error:
        raise ClipError(f"{path}: this picture {error}") from error


def _numbered(folder: Path, pattern: str) -> dict[int, Path]:
    """Pictures by number: the last number in the names that differs in all of them."""
    try:
        files = sorted(
            p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.match(pattern)
        )
    except OSError as error:
        raise ClipError(
            f"{folder}: this folder of pictures cannot be read ({error.strerror})"
        ) from error
    if not files:
        raise ClipError(f"{folder}: has no pictures ({', '.join(SUFFIXES)})")
    rows = [[int(digits) for digits in re.findall(r"[0-9]{1,18}", file.stem)] for file in files]
    if unnumbered := [file.name for file, row in zip(files, rows, strict=True) if not row]:
        raise ClipError(f"{folder}: the picture {unnumbered[0]} has no number in its name")
    for place in range(1, min(map(len, rows)) + 1):
        numbers = [row[-place] for row in rows]
        if len(set(numbers)) == len(numbers):
            return dict(zip(numbers, files, strict=True))
    raise ClipError(f"{folder}: several pictures share a number, one of them is {files[0].name}")


def _read(path: Path, most: int | None) -> np.ndarray:
    try:
        with opened(path) as image:
            size = fitted(*image.size, most)
            if size != image.size:
                # A JPEG is decoded at half its size or less where that is enough.
                image.draft("RGB", size)
            picture = image.convert("RGB")
            if size != picture.size:
                picture = picture.resize(size, Image.Resampling.BICUBIC)
            return np.array(picture)
    except (ClipError, OSError) as error:
        raise ClipError(f"{path}: this picture {error}") from error
