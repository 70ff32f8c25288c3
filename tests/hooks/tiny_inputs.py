"""Prompts of the tiny models, with frames as their processors make them, and a small edit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sally_anne.hooks.geometry import HEAD_OUT, find_geometry, o_projs, slice_width
from sally_anne.hooks.vector import SteeringVector
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


def vector_on(model: nn.Module, heads: Any, sigma: Any, seed: int, **more: Any) -> SteeringVector:
    """Of random directions, on these heads of a model."""
    found = find_geometry(model)
    theta = torch.randn(len(heads), found.head_dim, generator=torch.Generator().manual_seed(seed))
    theta, widths = theta / theta.norm(dim=1, keepdim=True), torch.tensor(sigma)
    return SteeringVector(heads, theta, widths, found.n_layers, found.n_heads, **more)


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


@contextmanager
def added(model: nn.Module, delta: Tensor, columns: Any) -> Iterator[None]:
    """`delta [L, H, D]` added at these columns of each pass, by hooks of the tests' own."""

    def adding(step: Tensor) -> Any:
        def add(module: nn.Module, args: Any) -> Any:
            z = args[0].clone()
            z[:, columns] += step
            return (z, *args[1:])

        return add

    pairs = zip(o_projs(model), delta, strict=True)
    handles = [o_proj.register_forward_pre_hook(adding(d.flatten())) for o_proj, d in pairs]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def columns_of(positions: str, prompt: int, whole: int) -> list[int]:
    """Those that are named of `whole` tokens, the first of which are the prompt."""
    start = {"generated": prompt, "all": 0}.get(positions, prompt - 1)
    return list(range(start, prompt if positions == "last_prompt" else whole))


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
