"""Whether a model has room for what it is asked, known before it is asked anything."""

from __future__ import annotations

from collections.abc import Sequence

from sally_anne.core.errors import BenchmarkError, ContextError
from sally_anne.harness.items import FRAMES_MARK, Item
from sally_anne.models.films import check_room, crop_notes
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import reply_prompt

# What a frame's time takes in a note at most, and the words around the times.
_NOTE_OF_A_FRAME, _NOTE = "0000.00 seconds, ", 200 * " "


def check_items(loaded: LoadedModel, items: Sequence[Item], reply: int) -> list[str]:
    """Refuse items that do not fit the model's context; no frame is decoded.

    Damaged films are left to be named where they are read.

    Args:
        loaded: the model.
        items: what it will be asked.
        reply: tokens of a reply.

    Returns:
        What to tell the user, a line each: that frames are padded, and how many films.

    Raises:
        ContextError: names the item, its tokens, the context and what to change.
    """
    sizes: dict[tuple[int, int], int] = {}
    for item in items:
        if item.clip is not None and item.shape is None:
            continue
        try:
            shape = item.shape(False) if item.shape else None
        except BenchmarkError:
            continue
        if shape is not None:
            sizes[shape[1:]] = sizes.get(shape[1:], 0) + 1
        note = "" if item.note is None or shape is None else _NOTE + _NOTE_OF_A_FRAME * shape[0]
        try:
            _check(loaded, item, item.text.replace(FRAMES_MARK, note), shape, reply)
        except ContextError:
            # There may be fewer frames in the film, and shorter notes.
            try:
                shape = item.shape(True) if item.shape else None
                note = item.note() if item.note else ""
            except BenchmarkError:
                continue
            _check(loaded, item, item.text.replace(FRAMES_MARK, note), shape, reply)
    return crop_notes(loaded, sizes)


def _check(
    loaded: LoadedModel, item: Item, text: str, shape: tuple[int, int, int] | None, reply: int
) -> None:
    prompt = reply_prompt(loaded, text, shape is not None)
    check_room(loaded, f"item {item.item_id}", prompt, shape, reply)
