"""Prompts with frames for the tiny random models: ids and pixels as their processors make them."""

from __future__ import annotations

import torch
from torch import Tensor

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
