"""Pictures are read whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from PIL import ImageFile


@contextmanager
def whole_pictures() -> Iterator[None]:
    """In the block a truncated picture is an error.

    Other libraries tell Pillow, for the whole process, to fill what is missing with grey.
    """
    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before
