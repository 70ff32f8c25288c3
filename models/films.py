"""What a processor makes of a film: which part of its frames it keeps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def pad_for_crop(clip: np.ndarray, eye: Any) -> np.ndarray:
    """Frames with margins, so that a processor that cuts out their middle cuts off margins alone.

    The margins have the mean colour that the processor subtracts, as LLaVA's own code pads
    pictures (``expand2square``).

    Args:
        clip: ``uint8 [F, height, width, 3]``.
        eye: a video processor.

    Returns:
        The same frames in the middle of larger ones; ``clip`` itself where nothing is cut off.
    """
    height, width = clip.shape[1:3]
    high, wide = _canvas(eye, height, width)
    if (high, wide) == (height, width):
        return clip
    colour = np.rint(255 * np.asarray(eye.image_mean)).astype(np.uint8)
    padded = np.empty((len(clip), high, wide, 3), dtype=np.uint8)
    padded[:] = colour
    top, left = (high - height) // 2, (wide - width) // 2
    padded[:, top : top + height, left : left + width] = clip
    return padded


def cropped_share(eye: Any, height: int, width: int) -> float:
    """The share of a frame's area that a video processor would cut off, if it were not padded."""
    high, wide = _canvas(eye, height, width)
    if (high, wide) == (height, width):
        return 0.0
    resized = _resized(eye, height, width)
    kept = [min(1.0, crop / size) for crop, size in zip(_crop(eye), resized, strict=True)]
    return 1 - kept[0] * kept[1]


def _canvas(eye: Any, height: int, width: int) -> tuple[int, int]:
    """Height and width to which frames must be padded before they are scaled and cropped."""
    if not (getattr(eye, "do_center_crop", None) and eye.do_resize):
        return height, width
    resized, crop = _resized(eye, height, width), _crop(eye)
    if all(round(size) <= most for size, most in zip(resized, crop, strict=True)):
        return height, width
    if side := eye.size.shortest_edge:
        square = max(height * max(1, side / crop[0]), width * max(1, side / crop[1]))
        return math.ceil(square), math.ceil(square)
    return (
        math.ceil(height * max(1, resized[0] / crop[0])),
        math.ceil(width * max(1, resized[1] / crop[1])),
    )


def _resized(eye: Any, height: int, width: int) -> tuple[float, float]:
    if side := eye.size.shortest_edge:
        return height * side / min(height, width), width * side / min(height, width)
    return eye.size.height, eye.size.width


def _crop(eye: Any) -> tuple[int, int]:
    return eye.crop_size.height, eye.crop_size.width
