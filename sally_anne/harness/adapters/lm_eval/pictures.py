"""Pictures of an lm-eval request as the frames of one clip.

lm-eval marks each picture by ``<image>`` in the text. The models here were made for films: the
pictures of a request become one clip, which stands where the first of them stood, and the other
marks are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from sally_anne.benchmarks.pictures import check_opened
from sally_anne.core.errors import ClipError, HarnessError
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import reply_prompt

MARK = "<image>"


def clip_mark(loaded: LoadedModel) -> str:
    """What the model's chat template writes for a clip, e.g. ``<video>`` and a line break.

    Raises:
        HarnessError: the template writes it somewhere else than before the text.
    """
    probe = "x"
    without, with_clip = (reply_prompt(loaded, probe, video) for video in (False, True))
    before, _, after = without.rpartition(probe)
    if not (with_clip.startswith(before) and with_clip.endswith(probe + after)):
        raise HarnessError(
            f"the chat template of {loaded.name} does not put a clip right before the text, so "
            "pictures have no place in its prompts"
        )
    return with_clip.removeprefix(before).removesuffix(probe + after)


def place_clip(text: str, mark: str, pictures: int) -> str:
    """The text with the clip's own mark in the place of the pictures' marks.

    Raises:
        HarnessError: there are not as many marks as pictures.
    """
    if (found := text.count(MARK)) != pictures:
        raise HarnessError(
            f"a prompt needs one {MARK} for each of its pictures: it has {found} for {pictures} "
            f"({text[:60]!r} ...); examples of few-shot prompts cannot have pictures"
        )
    return text.replace(MARK, mark, 1).replace(MARK, "")


def checked(visuals: Any) -> tuple[Image.Image, ...]:
    """The pictures of a request.

    Raises:
        HarnessError: they are not pictures of PIL, or of a format or size that is not read.
    """
    found = tuple(visuals) if isinstance(visuals, list | tuple) else (visuals,)
    for picture in found:
        if not isinstance(picture, Image.Image):
            raise HarnessError(
                f"a task's doc_to_image must give PIL pictures, not {type(picture).__name__}"
            )
        try:
            check_opened(picture)
        except ClipError as error:
            raise HarnessError(f"a picture of the task {error}") from error
    return found


def frames(pictures: Sequence[Image.Image]) -> np.ndarray:
    """The clip ``uint8 [F, height, width, 3]``; all frames take the size of the first picture."""
    size = pictures[0].size
    return np.stack(
        [
            np.asarray(picture.convert("RGB") if picture.size == size else _resized(picture, size))
            for picture in pictures
        ]
    )


def _resized(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    return picture.convert("RGB").resize(size, Image.Resampling.BICUBIC)
