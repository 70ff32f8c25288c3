"""What a processor makes of a video: which part of its frames it keeps, and how many tokens."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from sally_anne.core.errors import ContextError, MediaError, ModelError, first_line
from sally_anne.core.processes import is_out_of_memory
from sally_anne.models.families import check_senses
from sally_anne.models.processor import RAW, eye_of, raw_ids

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel

# Its name has to hold `flash`, by which towers know that frames need not come one by one.
FRAMES_AT_ONCE = "sally_anne_flash_frames"
# Of each prompt the pieces of its sound.
Sounds = Sequence[Sequence[np.ndarray]] | None
# Video processors whose longest edge limits the pixels of each frame, and of all frames together.
EACH, TOGETHER = "Qwen2VLVideoProcessor", "Qwen3VLVideoProcessor"
REMEDY = "show less text, or fewer or smaller frames (--max-pixels, --frames, --window, --view)"


def crops(eye: Any) -> bool:
    """Whether a processor of frames scales them and cuts out their middle."""
    # LLaVA-NeXT's cuts a picture into tiles, of which it crops nothing.
    tiles = getattr(type(eye), "image_grid_pinpoints", None)
    return bool(getattr(eye, "do_center_crop", None) and eye.do_resize and not tiles)


def pad_for_crop(clip: np.ndarray, eye: Any) -> np.ndarray:
    """Frames with margins of the mean colour for a processor to cut off (LLaVA: expand2square)."""
    if not crops(eye):
        return clip
    height, width = clip.shape[1:3]
    cut = (eye.size.shortest_edge or eye.size.height) / eye.crop_size.height
    side = math.ceil(max(height, width) * max(1.0, cut))
    if height == width == side:
        return clip
    mean = np.rint(255 * np.asarray(eye.image_mean)).astype(np.uint8)
    padded = np.broadcast_to(mean, (len(clip), side, side, 3)).copy()
    top, left = (side - height) // 2, (side - width) // 2
    padded[:, top : top + height, left : left + width] = clip
    return padded


def limited(eye: Any) -> str | None:
    """Which of :data:`EACH` and :data:`TOGETHER` limits the size of frames, if one does."""
    names = {kind.__name__ for kind in type(eye).__mro__}
    return next((name for name in (EACH, TOGETHER) if name in names), None)


def size_limits(loaded: LoadedModel, frames: int) -> dict[str, int] | None:
    """The video processor's limits on the size of a clip's frames; None leaves its settings."""
    eye, context = eye_of(loaded), context_of(loaded)
    given, kind = loaded.changes.get("max_pixels"), limited(eye)
    if kind is None or (given is None and context is None):
        return None
    steps = -(-frames // eye.temporal_patch_size)
    # Words and reply have a quarter of the context.
    tokens = max(1, int(0.75 * (context or 0)) // steps)
    pixels = int(given or tokens * (eye.patch_size * eye.merge_size) ** 2)
    limit = pixels if kind == EACH else frames * pixels
    if limit >= eye.size.longest_edge:
        return None
    return {"shortest_edge": min(eye.size.shortest_edge, limit), "longest_edge": limit}


def processed(
    loaded: LoadedModel, prompts: Sequence[str], clips: Sequence[Any] | None, sounds: Sounds = None
) -> Any:
    """What the processor makes of rendered chats; see :func:`sally_anne.models.prompts.process`."""
    _check_places(loaded, prompts, clips is not None, sounds)
    arguments: dict[str, Any] = {"text": [*prompts], "return_tensors": "pt", "padding": True}
    if clips is not None:
        arguments |= _shown(loaded, prompts, clips)
    if sounds is not None:
        arguments["audio"] = [piece for pieces in sounds for piece in pieces]
        arguments["sampling_rate"] = loaded.processor.feature_extractor.sampling_rate
    first_token = loaded.processor.tokenizer.bos_token
    if first_token and all(p.startswith(first_token) for p in prompts):
        arguments["add_special_tokens"] = False  # or there would be two
    try:
        inputs = loaded.processor(**arguments)
    # Processors take what they do not know for errors of any kind.
    except Exception as error:
        if clips is None or is_out_of_memory(error):
            raise
        size = " x ".join(map(str, clips[0].shape[2:0:-1]))
        why = f"cannot be shown to {loaded.name}: {first_line(error)}"
        raise MediaError(f"frames of {size} pixels {why}") from error
    if clips is not None and loaded.showing.kind == "video":
        _check_kept(loaded, inputs, [len(clip) for clip in clips])
        inputs.pop("video_metadata", None)
    return inputs


def _shown(loaded: LoadedModel, texts: Sequence[str], clips: Sequence[Any]) -> dict[str, Any]:
    """The processor's arguments for clips, and for texts with as many marks as it wants."""
    check_senses(loaded, videos=True)
    (kind, mark, between, _), eye = loaded.showing, eye_of(loaded)
    shaped = clips if "crop" in loaded.changes else [pad_for_crop(clip, eye) for clip in clips]
    if kind == "image":
        many = [between.join([mark] * len(clip)) for clip in clips]
        texts = [text.replace(mark, own) for text, own in zip(texts, many, strict=True)]
        return {"images": [list(clip) for clip in shaped], "text": texts}
    # Two a second makers' own code takes of a video, where the processor does not say it.
    rate = getattr(eye, "fps", None) or 2.0
    times = []  # of frames, one after another
    for count in map(len, clips):
        indices = {"total_num_frames": count, "frames_indices": list(range(count))}
        times.append({"fps": rate, "duration": count / rate, **indices})
    texts = [text.replace(mark, loaded.processor.video_token) for text in texts]
    arguments: dict[str, Any] = {"videos": list(shaped), "text": texts, "video_metadata": times}
    limits = [size_limits(loaded, len(clip)) for clip in clips]
    if any(each != limits[0] for each in limits):
        why = "differ in length, so their frames would have other sizes than alone"
        raise ModelError(f"{loaded.name}: clips of one batch {why}; use --batch-size 1")
    size = {} if limits[0] is None else {"size": limits[0]}
    # Some write times by what their video processor returns of them.
    return arguments | size | {"do_sample_frames": False, "return_metadata": True}


def _check_places(loaded: LoadedModel, prompts: Sequence[str], shown: bool, sounds: Sounds) -> None:
    """Each prompt has one place for its clip, and as many as it has pieces of sound."""
    for kind in ("video", "image", "audio"):
        mark = str(getattr(loaded.processor, f"{kind}_token", None) or "")
        for number, prompt in enumerate(prompts if mark else ()):
            expected = int(shown and kind == loaded.showing.kind)
            if kind == "audio" and sounds is not None:
                expected = len(sounds[number])
            if (found := prompt.count(mark)) != expected:
                why = f"holds {found} and comes with {expected} clips or pieces; write it otherwise"
                what = f"{loaded.name} reads {mark!r} as a place of frames or sound"
                raise ModelError(f"{what}: the prompt {prompt[:60]!r} ... {why}")


def _check_kept(loaded: LoadedModel, inputs: Mapping[str, Any], lengths: list[int]) -> None:
    """Refuse a processor that dropped or resampled frames of clips of these ``lengths``."""
    # Clips are padded to whole temporal patches.
    patch = getattr(eye_of(loaded), "temporal_patch_size", None) or 1
    wanted = [math.ceil(frames / patch) * patch for frames in lengths]
    grids = inputs.get("video_grid_thw", inputs.get("video_grids"))
    pixels = inputs.get("pixel_values_videos", inputs.get("pixel_values"))
    if grids is not None:
        kept = [int(steps) * patch for steps in grids[:, 0]]
        if patch > 1 and int(grids[:, 0].sum()) in (sum(lengths), sum(wanted)):
            kept = wanted  # some count frames, and pool them later
    elif pixels.ndim == 5:  # clips that are filled up to the longest
        kept, wanted = [pixels.shape[1]], [max(wanted)]
    else:  # the frames of all clips one after another
        kept, wanted = [len(pixels)], [sum(wanted)]
    if kept != wanted:
        why = f"kept {kept} frames of {wanted}: its settings resample them (do_sample_frames)"
        raise ModelError(f"the processor of {loaded.family.name} {why}")


def video_size(loaded: LoadedModel, shape: tuple[int, ...]) -> tuple[int, int]:
    """Tokens of a clip (frames, height, width), with what is written between frames, and patches.

    They are the processor's own: of a clip without pixels, or of frames with nothing in common.
    """
    if shape in loaded.video_sizes:
        return loaded.video_sizes[shape]
    mark = loaded.showing.mark
    clip: Any = torch.empty(*shape, 3, dtype=torch.uint8, device="meta")
    if limited(eye_of(loaded)) is None:
        clip = np.zeros((*shape, 3), dtype=np.uint8)
        clip[::2] = 255
    inputs = processed(loaded, [mark], [clip])
    tokens = int(inputs["attention_mask"].sum()) - words_of(loaded, mark, True)
    pixels = next(inputs[key] for key in inputs if key.startswith("pixel_values"))
    patches = math.prod(pixels.shape[:-1])  # cut already
    if pixels.ndim > 3:
        side = side_of(getattr(loaded.config, "vision_config", None))
        *clip, _, high, wide = pixels.shape
        patches = math.prod(clip) * (high // side) * (wide // side)
    return loaded.video_sizes.setdefault(shape, (tokens, patches))


def side_of(tower: Any) -> int:
    """Pixels of a patch's side, of a vision tower's config."""
    side = getattr(tower, "patch_size", None) or 14
    return side if isinstance(side, int) else side[0]


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
    sound_tokens: int = 0,
) -> None:
    """Refuse a prompt that does not fit the model's context with its reply; nothing is decoded.

    ``what`` names it, ``shape`` is frames, height and width of its clip, ``sound_tokens`` counts
    those of its sound beyond their marks.
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
        more = f"are more than the {context:,} that {loaded.name} can read; {remedy}"
        raise ContextError(f"{what}: {counted} {more}")


def words_of(loaded: LoadedModel, prompt: str | tuple[int, ...], video: bool) -> int:
    """Tokens of a prompt as ``prompts.process`` reads it; the mark of its video is none of them."""
    if isinstance(prompt, tuple):
        return len(prompt)
    if loaded.prompt == RAW:
        return len(raw_ids(loaded, prompt))
    tokenizer = loaded.processor.tokenizer
    if loaded.showing.kind == "video":
        prompt = prompt.replace(loaded.showing.mark, loaded.processor.video_token)
    written = prompt.startswith(tokenizer.bos_token or "\0")
    return len(tokenizer(prompt, add_special_tokens=not written)["input_ids"]) - video


def rotary(model: Any, positions: Tensor) -> Tensor:
    """Positions ``[R, T]`` of words, as a model takes them."""
    index = getattr(getattr(model, "model", None), "get_rope_index", None)
    return positions if index is None else positions.expand(3, -1, -1)


def positions_of(model: Any, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Rotary positions ``[G, P]`` or ``[3, G, P]`` and the one that follows, ``[G]``."""
    index = getattr(getattr(model, "model", None), "get_rope_index", None)
    mask = inputs["attention_mask"]
    if index is not None and any(key.startswith("pixel_values") for key in inputs):
        # One word more says where the text goes on. The model's own difference would not do: it
        # counts from the highest position, which in a long video is not that of the last word.
        more = torch.ones_like(mask[:, :1])
        known = {k: inputs[k] for k in inspect.signature(index).parameters if k in inputs}
        known |= {k: torch.cat([known[k], more], dim=1) for k in ("input_ids", "attention_mask")}
        if "mm_token_type_ids" in known:
            known["mm_token_type_ids"] = torch.cat([inputs["mm_token_type_ids"], 0 * more], dim=1)
        # Qwen2.5-Omni has names of its own, and counts what it hears as well.
        if "video_second_per_grid" in inputs:
            known["second_per_grids"] = inputs["video_second_per_grid"]
        if "feature_attention_mask" in inputs:
            known["audio_seqlens"] = inputs["feature_attention_mask"].sum(1)
        positions, _ = index(**known)
        return positions[..., :-1], positions[0, :, -1]
    return rotary(model, (mask.cumsum(1) - 1).clamp(min=0)), mask.sum(1)


class _Patches(nn.Conv3d):
    """A convolution of one window a row, done as the matrix product that it is: faster on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        if input.shape[2:] != self.kernel_size:
            return super().forward(input)
        return linear(input.flatten(1), self.weight.flatten(1), self.bias)[..., None, None, None]


def patches_as_product(model: Any) -> None:
    """Have towers that embed patches of films by a convolution do it by a matrix product."""
    for module in model.modules():
        if type(module) is nn.Conv3d and module.groups == 1 and not any(module.padding):
            module.__class__ = _Patches


def frames_at_once(model: Any) -> None:
    """Have towers that read frames one by one (``cu_seqlens``) read all in one step a layer."""
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
