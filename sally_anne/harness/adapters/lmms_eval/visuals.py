"""What lmms-eval shows a model, as one clip of frames."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sally_anne.benchmarks.clips import read_clip
from sally_anne.benchmarks.items import Media, Sampling
from sally_anne.benchmarks.pictures import check_opened
from sally_anne.core.errors import ClipError, HarnessError


def clip_of(visuals: Any, max_frames: int) -> np.ndarray | None:
    """The frames of a document.

    Args:
        visuals: what a task's ``doc_to_visual`` gives: a list with the path of one film, with one
            list of frames, or with frames themselves; frames are pictures or ``uint8 [height,
            width, 3]``. A picture that stands alone is a clip of one frame.
        max_frames: of a film so many frames are taken, spread evenly over it. Frames that a task
            has chosen itself are taken as they are.

    Returns:
        ``uint8 [F, height, width, 3]``; None if there is nothing to see.

    Raises:
        HarnessError: sound, several films, films beside pictures, or frames of different sizes.
        ClipError: the film cannot be read.
    """
    shown = list(visuals) if isinstance(visuals, (list, tuple)) else [visuals]
    shown = [one for one in shown if one is not None]
    if len(shown) == 1:
        if isinstance(shown[0], (str, Path)):
            return _film(Path(shown[0]), max_frames)
        if isinstance(shown[0], (list, tuple)) or _is_array(shown[0], 4):
            shown = list(shown[0])
    return _stacked(shown) if shown else None


def _film(path: Path, max_frames: int) -> np.ndarray:
    return read_clip(Media(path=path), "full", Sampling(count=max_frames)).frames


def _stacked(shown: Sequence[Any]) -> np.ndarray:
    frames = [_frame(one) for one in shown]
    sizes = list(dict.fromkeys(f"{f.shape[1]}x{f.shape[0]}" for f in frames))
    if len(sizes) > 1:
        raise HarnessError(
            f"pictures of different sizes ({', '.join(sizes)}) are not frames of one clip; this "
            "model is shown one clip a question"
        )
    return np.stack(frames)


def _frame(one: Any) -> np.ndarray:
    if isinstance(one, Image.Image):
        try:
            check_opened(one)
        except ClipError as error:
            raise HarnessError(f"a picture of the task {error}") from error
        return np.asarray(one.convert("RGB"))
    if _is_array(one, 3):
        return one
    what = f"the film {one}" if isinstance(one, (str, Path)) else f"a {type(one).__name__}"
    raise HarnessError(
        f"cannot show {what}: a question has one film, or pictures that are its frames"
    )


def _is_array(one: Any, dimensions: int) -> bool:
    return (
        isinstance(one, np.ndarray)
        and one.ndim == dimensions
        and one.dtype == np.uint8
        and one.shape[-1] == 3
    )
