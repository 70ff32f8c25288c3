"""What a processor makes of a video: which part of its frames it keeps, and how many tokens."""

from __future__ import annotations

import inspect
import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from sally_anne.core.errors import ContextError, MediaError
from sally_anne.models.families import OpenModel
from sally_anne.models.processor import RAW, raw_ids

# Its name has to hold `flash`, by which towers know that frames need not come one by one.
FRAMES_AT_ONCE = "sally_anne_flash_frames"
# Of the context that a video may fill by default; words and reply have the rest.
VIDEO_SHARE = 0.75
REMEDY = (
    "show smaller frames (--max-pixels), fewer, or less text (in an evaluation by --frames, "
    "--window and --view)"
)


def crops(eye: Any) -> bool:
    """Whether a video processor scales frames and cuts out their middle."""
    return bool(getattr(eye, "do_center_crop", None) and eye.do_resize)


def pad_for_crop(clip: np.ndarray, eye: Any) -> np.ndarray:
    """Frames with margins, so that a video processor that cuts out their middle cuts off no more.

    The margins have the mean colour that the processor subtracts, as LLaVA's own code pads
    pictures (``expand2square``); ``clip [F, height, width, 3]`` itself if nothing is cut off.
    """
    height, width = clip.shape[1:3]
    high, wide = _canvas(eye, height, width)
    if (high, wide) == (height, width):
        return clip
    mean = np.rint(255 * np.asarray(eye.image_mean)).astype(np.uint8)
    padded = np.broadcast_to(mean, (len(clip), high, wide, 3)).copy()
    top, left = (high - height) // 2, (wide - width) // 2
    padded[:, top : top + height, left : left + width] = clip
    return padded


def _canvas(eye: Any, height: int, width: int) -> tuple[int, int]:
    """Height and width to which frames must be padded before they are scaled and cropped."""
    if not crops(eye):
        return height, width
    cut = (eye.size.shortest_edge or eye.size.height) / eye.crop_size.height
    side = math.ceil(max(height, width) * max(1.0, cut))
    return side, side


def times_of(frames: int, rate: float) -> dict[str, Any]:
    """When each frame is, as a video processor takes it: one after another, ``rate`` a second."""
    times = {"total_num_frames": frames, "fps": rate, "duration": frames / rate}
    return times | {"frames_indices": list(range(frames))}


def size_limits(loaded: OpenModel, frames: int) -> dict[str, int] | None:
    """The video processor's limits on the size of a clip's frames; None leaves its settings."""
    if loaded.family.frame_limit is None:
        return None
    eye, context = loaded.processor.video_processor, context_of(loaded)
    given = loaded.changes.get("max_pixels")
    if given is None and context is None:
        return None
    steps = -(-frames // eye.temporal_patch_size)
    tokens = max(1, int(VIDEO_SHARE * (context or 0)) // steps)
    pixels = int(given or tokens * (eye.patch_size * eye.merge_size) ** 2)
    limit = loaded.family.frame_limit(frames, pixels)
    if limit >= eye.size.longest_edge:
        return None
    return {"shortest_edge": min(eye.size.shortest_edge, limit), "longest_edge": limit}


def video_size(loaded: OpenModel, shape: tuple[int, ...]) -> tuple[int, int]:
    """Tokens of a clip (frames, height, width), with what is written between frames, and patches.

    The processor runs on a clip without pixels, so the numbers are its own.
    """
    if shape in loaded.video_sizes:
        return loaded.video_sizes[shape]
    frames, height, width = shape
    processor, eye = loaded.processor, loaded.processor.video_processor
    options: dict[str, Any] = {"do_sample_frames": False, "return_tensors": "pt"}
    if limits := size_limits(loaded, frames):
        options["size"] = limits
    canvas = (height, width) if "crop" in loaded.changes else _canvas(eye, height, width)
    empty = torch.empty(frames, 3, *canvas, dtype=torch.uint8, device="meta")
    times = times_of(frames, loaded.family.frame_rate or 1.0)
    try:
        found = dict(eye(videos=[empty], video_metadata=[times], return_metadata=True, **options))
    except ValueError as error:
        raise MediaError(
            f"frames of {width} x {height} pixels cannot be shown to {loaded.name}: {error}"
        ) from error
    # Processors ask it for its shape alone.
    pixels = found["pixel_values_videos"] = np.broadcast_to(0.0, found["pixel_values_videos"].shape)
    # The last is asked for by Qwen2.5-Omni, which may put a film's sound among its frames.
    text = processor.replace_video_token(found, 0, load_audio_from_video=False)
    tokens = len(processor.tokenizer(text, add_special_tokens=False)["input_ids"])
    patches = len(pixels)  # cut already, a row a patch
    if pixels.ndim > 2:
        side = side_of(loaded.config.vision_config)
        *clip, _, high, wide = pixels.shape
        patches = math.prod(clip) * (high // side) * (wide // side)
    return loaded.video_sizes.setdefault(shape, (tokens, patches))


def side_of(tower: Any) -> int:
    """Pixels of a patch's side, of a vision tower's config."""
    return tower.patch_size if isinstance(tower.patch_size, int) else tower.patch_size[0]


def context_of(loaded: OpenModel) -> int | None:
    """Tokens that the model can read and write together; None if its config does not say."""
    return getattr(loaded.config.get_text_config(), "max_position_embeddings", None)


def check_room(
    loaded: OpenModel,
    what: str,
    prompt: str,
    shape: tuple[int, int, int] | None,
    reply: int,
    remedy: str = REMEDY,
    sound_tokens: int = 0,
) -> None:
    """Refuse a prompt that does not fit the model's context with its reply; nothing is decoded.

    ``what`` names the rendered prompt, ``shape`` is frames, height and width of its clip,
    ``sound_tokens`` counts those of its sound beyond their marks, ``reply`` what is written.
    """
    context = context_of(loaded)
    try:
        video = sound_tokens if shape is None else sound_tokens + video_size(loaded, shape)[0]
    except MediaError as error:
        raise MediaError(f"{what}: {error}") from error
    # No token is shorter than a byte; most prompts need not be cut to know that they fit.
    if context is None or video + len(prompt.encode()) + reply + 1 <= context:
        return
    words = words_of(loaded, prompt, shape is not None)
    if words + video + reply > context:
        counted = f"{words + video:,} tokens"
        counted += f" ({video:,} of them frames or sound)" if video else ""
        counted += f" and a reply of {reply}" if reply else ""
        raise ContextError(
            f"{what}: {counted} are more than the {context:,} that {loaded.name} can read; {remedy}"
        )


def words_of(loaded: OpenModel, prompt: str | tuple[int, ...], video: bool) -> int:
    """Tokens of a prompt as ``prompts.process`` reads it; the mark of its video is none of them."""
    if isinstance(prompt, tuple):
        return len(prompt)
    if loaded.prompt == RAW:
        return len(raw_ids(loaded, prompt))
    tokenizer = loaded.processor.tokenizer
    if mark := loaded.family.video_mark:
        prompt = prompt.replace(mark, loaded.processor.video_token)
    first = tokenizer.bos_token
    written = bool(first) and prompt.startswith(first)
    return len(tokenizer(prompt, add_special_tokens=not written)["input_ids"]) - video


def crop_notes(loaded: OpenModel, sizes: dict[tuple[int, int], int]) -> list[str]:
    """A line if frames are, or would be cropped; ``sizes`` counts videos by height and width."""
    eye = getattr(loaded.processor, "video_processor", None)
    canvas = {size: _canvas(eye, *size) for size in sizes}
    lost = {size: 1 - math.prod(size) / math.prod(c) for size, c in canvas.items() if c != size}
    if not lost:
        return []
    count, worst = sum(sizes[size] for size in lost), max(lost.values())
    cut = "cuts off" if (crop := "crop" in loaded.changes) else "would cut off"
    then = "(--crop)" if crop else "They are padded first"
    return [
        f"{count} of {sum(sizes.values())} videos are not of the shape that {loaded.name} sees: "
        f"its processor {cut} up to {100 * worst:.0f} % of a frame. {then}"
    ]


def _is_mrope(model: Any) -> bool:
    return hasattr(getattr(model, "model", None), "get_rope_index")


def rotary(model: Any, positions: Tensor) -> Tensor:
    """Positions ``[R, T]`` of words, as a model takes them."""
    return positions.expand(3, -1, -1) if _is_mrope(model) else positions


def positions_of(model: Any, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Rotary positions ``[G, P]`` or ``[3, G, P]`` and the one that follows, ``[G]``."""
    mask = inputs["attention_mask"]
    if _is_mrope(model) and "video_grid_thw" in inputs:
        # One word more says where the text goes on. The model's own difference would not do: it
        # counts from the highest position, which in a long video is not that of the last word.
        more = torch.ones_like(mask[:, :1])
        known = {k: inputs[k] for k in ("second_per_grid_ts",) if k in inputs}
        if "mm_token_type_ids" in inputs:
            known["mm_token_type_ids"] = torch.cat([inputs["mm_token_type_ids"], 0 * more], dim=1)
        # Qwen2.5-Omni has names of its own, and counts what it hears as well.
        if "video_second_per_grid" in inputs:
            known["second_per_grids"] = inputs["video_second_per_grid"]
        if "feature_attention_mask" in inputs:
            known["audio_seqlens"] = inputs["feature_attention_mask"].sum(1)
        positions, _ = model.model.get_rope_index(
            torch.cat([inputs["input_ids"], more], dim=1),
            video_grid_thw=inputs["video_grid_thw"],
            attention_mask=torch.cat([mask, more], dim=1),
            **known,
        )
        return positions[..., :-1], positions[0, :, -1]
    return rotary(model, (mask.cumsum(1) - 1).clamp(min=0)), mask.sum(1)


def frames_at_once(model: Any) -> None:
    """Have a tower that attends within each frame read all frames in one step of each layer.

    Towers that know where a frame ends (``cu_seqlens``) otherwise take the frames of a batch one by
    one, layer by layer, for which an accelerator waits.
    """
    ALL_ATTENTION_FUNCTIONS.register(FRAMES_AT_ONCE, _attend_within)
    others = model.config, model.config.get_text_config()
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        if getattr(config, "_attn_implementation", None) != "sdpa" or config in others:
            continue
        if "cu_seqlens" in inspect.signature(module.forward).parameters:
            config._attn_implementation = FRAMES_AT_ONCE


def _attend_within(
    module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **how: Any
) -> tuple[Tensor, None]:
    """Attention ``[1, T, H, D]`` of ``[1, H, T, D]`` within parts that end at ``cu_seq_lens_q``."""
    ends, longest = how["cu_seq_lens_q"], int(how["max_length_q"])
    count, (_, heads, tokens, width) = len(ends) - 1, query.shape
    if count * longest == tokens:  # all are equally long
        shape = heads, count, longest, width
        split = [[one[0].view(shape).transpose(0, 1)] for one in (query, key, value)]
    else:
        lengths = (ends[1:] - ends[:-1]).tolist()
        split = [list(one.split(lengths, 2)) for one in (query, key, value)]
    attend = partial(scaled_dot_product_attention, scale=how["scaling"])
    found = list(map(attend, *split))
    return torch.cat([one.transpose(1, 2).flatten(0, 1) for one in found])[None], None
