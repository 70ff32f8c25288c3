"""Prompts of the tiny models, with frames as their processors make them, and a small edit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from sally_anne.hooks.geometry import HEAD_OUT, find_geometry, slice_width
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import encode, reply_prompt

TINY = ["tiny-qwen2-vl", "tiny-llava-next-video"]
PROMPTS = [[5, 9, 7, 3, 8, 2], [4, 11, 6], [30, 2, 17, 21, 9]]
QUESTIONS = ["The ball is in the red room. Where is the ball?", "Where is Ann?"]


def asked(loaded: LoadedModel, video: bool) -> dict[str, Tensor]:
    """Two questions of unequal length, padded on the left, each about frames of its own."""
    noise = np.random.default_rng(0)
    clips = [noise.integers(0, 255, (2, 84, 84, 3), dtype=np.uint8) for _ in QUESTIONS]
    prompts = [reply_prompt(loaded, question, video) for question in QUESTIONS]
    return encode(loaded, prompts, clips if video else None)


def delta_for(model: nn.Module, site: str = HEAD_OUT, rows: int | None = None) -> Tensor:
    """`[L, H, W]` or `[rows, L, H, W]`: two heads of the first layer, one of the last."""
    found = find_geometry(model)
    shape = [] if rows is None else [rows]
    shape += [found.n_layers, found.n_heads, slice_width(found, site)]
    made = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    delta = torch.zeros(shape)
    for layer, head in ((0, 1), (0, 3), (found.n_layers - 1, 2)):
        delta[..., layer, head, :] = made[..., layer, head, :]
    return delta


def batch_of(prompts: Sequence[Sequence[int]], side: str = "left") -> dict[str, Tensor]:
    """Ids and mask of prompts of the tiny random models, padded on one side."""
    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        place = slice(0, len(prompt)) if side == "right" else slice(width - len(prompt), width)
        ids[row, place] = torch.tensor(prompt)
        mask[row, place] = 1
    return {"input_ids": ids, "attention_mask": mask}


# Of the tiny models: what stands for an image or a film, and what stands around it.
IMAGE, FILM, START, END = 60, 61, 62, 63
_TEXTS = ([5, 9, 7, 3, 8, 2], [4, 11, 6])
_MROPE = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
WATCHING = (*_MROPE, "llava_next_video", "llava_onevision", "internvl", "gemma3")


def watched(name: str, seed: int = 1) -> dict[str, Tensor]:
    """Two prompts of unequal length, padded on the left, each with four frames (two in Gemma 3).

    Args:
        name: of WATCHING.
        seed: of the pixels.
    """
    frames = _frames(name)
    prompts = [[*frames, *text] for text in _TEXTS]
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    inputs = {"input_ids": ids, "attention_mask": mask}
    random = torch.Generator().manual_seed(seed)
    if name in _MROPE:
        # Two steps of two frames, 4 x 4 patches each, of which 2 x 2 are one token.
        inputs["video_grid_thw"] = torch.tensor([[2, 4, 4]] * 2)
        inputs["pixel_values_videos"] = torch.randn(2 * 32, 3 * 2 * 4 * 4, generator=random)
        inputs["mm_token_type_ids"] = 2 * (ids == FILM).int()
        if name == "qwen2_5_vl":
            inputs["second_per_grid_ts"] = torch.tensor([1.0, 0.5])
    elif name.startswith("llava"):
        inputs["pixel_values_videos"] = torch.randn(2, 4, 3, 16, 16, generator=random)
    else:
        count = 2 if name == "gemma3" else 4
        inputs["pixel_values"] = torch.randn(2 * count, 3, 16, 16, generator=random)
        if name == "gemma3":
            inputs["token_type_ids"] = (ids == IMAGE).int()
    return inputs


def _frames(name: str) -> list[int]:
    if name == "qwen3_vl":
        # A time stands before each step.
        return [5, START, *[FILM] * 4, END, 9, START, *[FILM] * 4, END]
    if name in _MROPE:
        return [START, *[FILM] * 8, END]
    if name == "llava_next_video":
        return [FILM] * 16
    if name == "llava_onevision":
        return [FILM] * 17  # a new line at the end
    pictures = 2 if name == "gemma3" else 4
    return [t for _ in range(pictures) for t in (START, *[IMAGE] * 4, END)]
