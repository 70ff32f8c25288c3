"""Pictures: one, whole or not at all; and many in order, read like a video."""

from __future__ import annotations

import io
import math
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile

from sally_anne.core.errors import ClipError
from sally_anne.data.items import Media

# Pillow reads dozens of formats, and some, such as EPS, by starting other programs.
FORMATS = ("PNG", "JPEG", "WEBP")
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
MOST_BYTES = 64 << 20
# Of one picture or frame: a video in 8K has 33 million.
MOST_PIXELS = 64_000_000


@contextmanager
def opened(source: Path | bytes) -> Iterator[Image.Image]:
    """A picture in a file or its bytes, whose header has been read; its pixels come when asked for.

    Raises:
        FileNotFoundError: there is no such file.
        ClipError: what is wrong, to be put after the name: no file, another format, larger than
            :data:`MOST_BYTES` or :data:`MOST_PIXELS`, damaged, or cut short.
    """
    # Other libraries tell Pillow, for the whole process, to fill what is missing with grey.
    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        if isinstance(source, Path):
            check_file(source)
        size = source.stat().st_size if isinstance(source, Path) else len(source)
        if size > MOST_BYTES:
            raise ClipError(f"is too large: {size} bytes, at most {MOST_BYTES} are read")
        data = source.read_bytes() if isinstance(source, Path) else source
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            check_pixels(image.width, image.height)
            yield image
    except (FileNotFoundError, ClipError):
        raise
    except Image.UnidentifiedImageError as error:
        raise ClipError(f"cannot be decoded: it is no {' or '.join(FORMATS)}") from error
    # Pillow reports damage by many types: truncation is an OSError, broken chunks are
    # SyntaxErrors, wrong headers ValueErrors, absurd sizes its own exception.
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise ClipError(f"cannot be decoded ({error})") from error
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def check_opened(image: Image.Image) -> None:
    """As :func:`opened`, of a picture that somebody else opened and whose pixels may be unread."""
    # "MPO" is a JPEG of several pictures; made ones have no format.
    if image.format not in (*FORMATS, "MPO", None):
        raise ClipError(f"cannot be decoded: it is {image.format}, no {' or '.join(FORMATS)}")
    check_pixels(image.width, image.height)


def check_file(path: Path) -> None:
    """Refuse pipes and devices, to be put after the name: reading them may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ClipError("cannot be read: it is no regular file")


def check_pixels(width: int, height: int) -> None:
    """Refuse a picture or frame that is too large, to be put after the name."""
    if width * height > MOST_PIXELS:
        raise ClipError(f"is too large: {width} x {height}, at most {MOST_PIXELS} pixels are read")


def fitted(width: int, height: int, most: int | None) -> tuple[int, int]:
    """Width and height scaled down to at most ``most`` pixels; as they are if they have no more."""
    if most is None or width * height <= most:
        return width, height
    scale = math.sqrt(most / (width * height))
    return max(1, int(width * scale)), max(1, int(height * scale))


@dataclass(frozen=True, eq=False)
class Timeline:
    """The frames of a video, or pictures, in the order in which they are shown.

    Attributes:
        path: the file or folder.
        times: when each comes on screen ``[N]``, in seconds from the beginning; rising.
        numbers: of the frames ``[N]``: 0, 1, 2 ... in a video, as named in a folder; rising.
        end: when the last one goes, in seconds.
        damage: how the file is damaged, to be put after a message; empty if it is whole.
        stamps: presentation stamps in units of the stream ``[N]``; None where frames are found by
            counting alone.
        keys: stamps of the key frames, rising.
    """

    path: Path
    times: np.ndarray
    numbers: np.ndarray
    end: float
    damage: str = ""
    stamps: np.ndarray | None = None
    keys: np.ndarray | None = None


def timeline_of_pictures(media: Media) -> Timeline:
    """Pictures, evenly over ``media.length`` seconds, or one a second."""
    numbers = np.array(sorted(_numbered(media)), dtype=np.int64)
    gap = media.length / len(numbers) if media.length else 1.0
    assert media.path is not None
    return Timeline(media.path, np.arange(len(numbers)) * gap, numbers, len(numbers) * gap)


def read_pictures(
    timeline: Timeline, places: Sequence[int], media: Media, most: int | None = None
) -> np.ndarray:
    """Pictures at ``places`` of their timeline, ``uint8 [F, height, width, 3]``.

    Those of more than ``most`` pixels are scaled down; ClipError names one of another size than the
    first.
    """
    files = _numbered(media)
    found: list[np.ndarray] = []
    for place in places:
        path = files[int(timeline.numbers[place])]
        picture = read_picture(path, most)
        if found and picture.shape != found[0].shape:
            shapes = [f"{shape[1]} x {shape[0]}" for shape in (picture.shape, found[0].shape)]
            raise ClipError(f"{path}: is {shapes[0]}, the pictures before it are {shapes[1]}")
        found.append(picture)
    return np.stack(found)


def size_of_pictures(media: Media) -> tuple[int, int]:
    """Width and height of the first picture; its pixels are not read."""
    files = _numbered(media)
    with _named(files[min(files)]) as image:
        return image.size


@contextmanager
def _named(path: Path) -> Iterator[Image.Image]:
    try:
        with opened(path) as image:
            yield image
    except (ClipError, OSError) as error:
        raise ClipError(f"{path}: this picture {error}") from error


def _numbered(media: Media) -> dict[int, Path]:
    """Pictures by number: the last number in the names that differs in all of them."""
    if media.files:
        return dict(enumerate(media.files))
    folder = media.path
    assert folder is not None
    try:
        files = sorted(
            p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.match(media.pictures)
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


def read_picture(path: Path, most: int | None = None) -> np.ndarray:
    """One picture, ``uint8 [height, width, 3]``, scaled down as it is read to ``most`` pixels."""
    with _named(path) as image:
        size = fitted(*image.size, most)
        if size != image.size:
            # A JPEG is decoded at half its size or less where that is enough.
            image.draft("RGB", size)
        picture = image.convert("RGB")
        if size != picture.size:
            picture = picture.resize(size, Image.Resampling.BICUBIC)
        return np.array(picture)
