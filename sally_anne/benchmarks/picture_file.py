"""One picture, from anywhere: of a known format, of a bearable size, whole or not at all."""

from __future__ import annotations

import io
import math
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageFile

from sally_anne.core.errors import ClipError

# Pillow reads dozens of formats, and some, such as EPS, by starting other programs.
FORMATS = ("PNG", "JPEG", "WEBP")
MOST_BYTES = 64 << 20
# Of one picture or frame: a film in 8K has 33 million.
MOST_PIXELS = 64_000_000


@contextmanager
def opened(source: Path | bytes) -> Iterator[Image.Image]:
    """A picture whose header has been read; its pixels come when they are asked for.

    Args:
        source: a file, or what it would hold.

    Raises:
        FileNotFoundError: there is no such file.
        ClipError: what is wrong, to be put after the name: no file, another format, larger than
            :data:`MOST_BYTES` or :data:`MOST_PIXELS`, damaged, or cut short.
    """
    # Other libraries tell Pillow, for the whole process, to fill what is missing with grey.
    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        data = source if isinstance(source, bytes) else _contents(source)
        check_bytes(len(data))
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
    """The same of a picture that somebody else has opened and whose pixels may not be read yet.

    Raises:
        ClipError: as :func:`opened`.
    """
    # "MPO" is a JPEG of several pictures; made ones have no format.
    if image.format not in (*FORMATS, "MPO", None):
        raise ClipError(f"cannot be decoded: it is {image.format}, no {' or '.join(FORMATS)}")
    check_pixels(image.width, image.height)


def check_file(path: Path) -> None:
    """Pipes and devices are not opened: reading them may never end.

    Raises:
        OSError: there is nothing of that name.
        ClipError: it is no file, to be put after the name.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ClipError("cannot be read: it is no regular file")


def check_bytes(size: int) -> None:
    """Refuse a file that is too large, to be put after the name."""
    if size > MOST_BYTES:
        raise ClipError(f"is too large: {size} bytes, at most {MOST_BYTES} are read")


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


def _contents(path: Path) -> bytes:
    check_file(path)
    check_bytes(path.stat().st_size)
    return path.read_bytes()
