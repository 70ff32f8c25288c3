"""What a processor makes of a film: which part of its frames it keeps, and how many tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sally_anne.core.errors import ContextError

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel

# Of the context that a film may fill by default; words and reply have the rest.
FILM_SHARE = 0.75
REMEDY = (
    "show fewer frames (--frames), smaller ones (--max-pixels), or less text (--window, --view)"
)


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


def times_of(frames: int, rate: float) -> dict[str, Any]:
    """When each frame is.

    Clips are frames without times. They are taken to follow one another as frames do that the
    family's own code takes from a film.
    """
    return {
        "total_num_frames": frames,
        "fps": rate,
        "duration": frames / rate,
        "frames_indices": list(range(frames)),
    }


def size_limits(loaded: LoadedModel, frames: int) -> dict[str, int] | None:
    """What the video processor is told of the size of a film's frames; None leaves its settings.

    Args:
        loaded: the model.
        frames: of the film.
    """
    if loaded.family.frame_limit is None:
        return None
    eye, context = loaded.processor.video_processor, context_of(loaded)
    if (given := loaded.changes.get("max_pixels")) is not None:
        pixels = int(given)
    elif context is not None:
        steps = -(-frames // eye.temporal_patch_size)
        tokens = max(1, int(FILM_SHARE * context) // steps)
        pixels = tokens * (eye.patch_size * eye.merge_size) ** 2
    else:
        return None
    limit = loaded.family.frame_limit(frames, pixels)
    if limit >= eye.size.longest_edge:
        return None
    return {"shortest_edge": min(eye.size.shortest_edge, limit), "longest_edge": limit}


def film_tokens(loaded: LoadedModel, shape: tuple[int, int, int]) -> int:
    """Tokens of a film in a prompt, with what its processor writes between frames.

    The processor runs on a film without pixels, so the numbers are its own.

    Args:
        loaded: the model.
        shape: frames, height and width.
    """
    import torch

    if shape in loaded.film_lengths:
        return loaded.film_lengths[shape]
    frames, height, width = shape
    processor = loaded.processor
    eye = processor.video_processor
    high, wide = _canvas(eye, height, width)
    options: dict[str, Any] = {"do_sample_frames": False, "return_tensors": "pt"}
    if limits := size_limits(loaded, frames):
        options["size"] = limits
    empty = torch.empty(frames, 3, high, wide, dtype=torch.uint8, device="meta")
    rate = loaded.family.frame_rate or 1.0
    seen = dict(
        eye(
            videos=[empty],
            video_metadata=[times_of(frames, rate)],
            return_metadata=True,
            **options,
        )
    )
    # Processors ask it for its shape alone.
    seen["pixel_values_videos"] = np.broadcast_to(0.0, tuple(seen["pixel_values_videos"].shape))
    text = processor.replace_video_token(seen, 0)
    found = len(processor.tokenizer(text, add_special_tokens=False)["input_ids"])
    loaded.film_lengths[shape] = found
    return found


def context_of(loaded: LoadedModel) -> int | None:
    """Tokens that the model can read and write together; None if its config does not say."""
    return getattr(loaded.config.get_text_config(), "max_position_embeddings", None)


def check_room(
    loaded: LoadedModel,
    what: str,
    prompt: str,
    shape: tuple[int, int, int] | None,
    reply: int,
    remedy: str = REMEDY,
) -> None:
    """Refuse a prompt that does not fit the model's context with its reply; nothing is decoded.

    Args:
        loaded: the model.
        what: the prompt's name in the message.
        prompt: rendered.
        shape: of its film, frames, height and width; None for text alone.
        reply: tokens that are written after it.
        remedy: what to change.

    Raises:
        ContextError: names the prompt, its tokens, the context and what to change.
    """
    context = context_of(loaded)
    film = 0 if shape is None else film_tokens(loaded, shape)
    # No token is shorter than a byte; most prompts need not be cut to know that they fit.
    if context is None or film + len(prompt.encode()) + reply + 1 <= context:
        return
    words = _words(loaded, prompt) - (film > 0)  # the film's mark is none of them
    if words + film + reply > context:
        raise ContextError(
            f"{what}: {words + film:,} tokens ({film:,} of them frames) and a reply of {reply} are "
            f"more than the {context:,} that {loaded.name} can read; {remedy}"
        )


def _words(loaded: LoadedModel, prompt: str) -> int:
    """Tokens of a prompt with one for its film, as :func:`models.prompts.process` reads it."""
    tokenizer = loaded.processor.tokenizer
    if mark := loaded.family.film_mark:
        prompt = prompt.replace(mark, loaded.processor.video_token)
    first = tokenizer.bos_token
    written = bool(first) and prompt.startswith(first)
    return len(tokenizer(prompt, add_special_tokens=not written)["input_ids"])


def crop_notes(loaded: LoadedModel, sizes: dict[tuple[int, int], int]) -> list[str]:
    """A line if frames would be cropped: of how many films, how much, and what is done.

    Args:
        loaded: the model.
        sizes: number of films by height and width.
    """
    eye = getattr(loaded.processor, "video_processor", None)
    lost = {size: share for size in sizes if eye and (share := cropped_share(eye, *size))}
    if not lost:
        return []
    count, worst = sum(sizes[size] for size in lost), max(lost.values())
    return [
        f"{count} of {sum(sizes.values())} films are not of the shape that {loaded.name} sees: its "
        f"processor would cut off up to {100 * worst:.0f} % of a frame. They are padded first"
    ]
