"""Pictures: one of three formats, read whole or not at all."""

from __future__ import annotations

import io
import math
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile

from sally_anne.core.errors import MediaError

# Pillow reads dozens of formats, and some, such as EPS, by starting other programs.
FORMATS = ("PNG", "JPEG", "WEBP")
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
MOST_BYTES = 64 << 20
# Of one picture or frame as stored: a video in 8K has 33 million.
MOST_PIXELS = 64_000_000


@contextmanager
def opened(source: Path | bytes) -> Iterator[Image.Image]:
    """A picture in a file or its bytes; the header is read at once, pixels on demand.

    Raises:
        FileNotFoundError: there is no such file.
        MediaError: another format, too large, damaged or cut short; to be put after a name.
    """
    # Other libraries tell Pillow, for the whole process, to fill what is missing with grey.
    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        if isinstance(source, Path):
            check_file(source)
        size = source.stat().st_size if isinstance(source, Path) else len(source)
        if size > MOST_BYTES:
            raise MediaError(f"is too large: {size} bytes, at most {MOST_BYTES} are read")
        data = source.read_bytes() if isinstance(source, Path) else source
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            check_pixels(image.width, image.height)
            yield image
    except (FileNotFoundError, MediaError):
        raise
    # Pillow reports damage by many types: truncation is an OSError, broken chunks are
    # SyntaxErrors, wrong headers ValueErrors, absurd sizes its own exception.
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise MediaError(f"cannot be decoded as {' or '.join(FORMATS)} ({error})") from error
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def check_opened(image: Image.Image) -> None:
    """As :func:`opened`, of a picture that somebody else opened and whose pixels may be unread."""
    # "MPO" is a JPEG of several pictures; made ones have no format.
    if image.format not in (*FORMATS, "MPO", None):
        raise MediaError(f"cannot be decoded: it is {image.format}, no {' or '.join(FORMATS)}")
    check_pixels(image.width, image.height)


def check_file(path: Path) -> None:
    """Refuse pipes and devices, which may never end; to be put after a name."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise MediaError("cannot be read: it is no regular file")


def check_pixels(width: int, height: int) -> None:
    """Refuse a picture or frame that is too large; to be put after a name."""
    if width * height > MOST_PIXELS:
        raise MediaError(f"is too large: {width} x {height}, at most {MOST_PIXELS} pixels are read")


def fitted(width: int, height: int, most: int | None) -> tuple[int, int]:
    """Width and height scaled down to at most ``most`` pixels; as they are if they have no more."""
    if most is None or width * height <= most:
        return width, height
    scale = math.sqrt(most / (width * height))
    return max(1, int(width * scale)), max(1, int(height * scale))


def read_picture(path: Path, most: int | None = None) -> np.ndarray:
    """One picture, ``uint8 [height, width, 3]``, scaled down as it is read to ``most`` pixels."""
    with named(path) as image:
        size = fitted(*image.size, most)
        if size != image.size:
            # A JPEG is decoded at half its size or less where that is enough.
            image.draft("RGB", size)
        picture = image.convert("RGB")
        if size != picture.size:
            picture = picture.resize(size, Image.Resampling.BICUBIC)
        return np.array(picture)


@contextmanager
def named(path: Path) -> Iterator[Image.Image]:
    try:
        with opened(path) as image:
            yield image
    except (MediaError, OSError) as error:
        raise MediaError(f"{path}: this picture {error}") from error
