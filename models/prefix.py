"""Prompts with a common beginning: it goes through the model once, and each prompt goes on from it.

Statements about one story share frames and caption, which are nearly all of their tokens.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models.cache import select

if TYPE_CHECKING:
    from models.loading import LoadedModel


@dataclass(frozen=True)
class Shared:
    """A group of prompts, cut where they part.

    Attributes:
        beginning: the text that all begin with.
        endings: token ids of what follows, one list a prompt; at least two tokens each.
    """

    beginning: str
    endings: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class State:
    """What a model has read so far, row by row.

    Attributes:
        logits: ``[R, V]`` after the last token of each row.
        cache: keys and values of ``R`` rows.
        mask: ``[R, T]``, 0 where a column is padding.
        following: ``[R]`` rotary position of the token that comes next.
    """

    logits: Tensor
    cache: Any
    mask: Tensor
    following: Tensor


def share(loaded: LoadedModel, prompts: Sequence[str]) -> Shared:
    """Cut prompts after their longest common beginning that ends before a space (else a new line).

    A tokenizer may join letters across the cut; then an earlier one is taken. Endings keep two
    tokens at least, so that they are told from a generated token.

    Args:
        loaded: whose tokenizer reads them.
        prompts: rendered prompts.

    Raises:
        ValueError: there is no place to cut.
    """
    tokenizer = loaded.processor.tokenizer
    whole = [tokenizer(p, add_special_tokens=False)["input_ids"] for p in prompts]
    common = os.path.commonprefix(list(prompts))
    if len(set(prompts)) == 1:
        common = common[:-1]
    # Never before the frames: they belong to the beginning.
    first = 1 + common.rfind(loaded.processor.video_token)
    for gap in (" ", "\n"):
        end = len(common)
        while (end := common.rfind(gap, first, end)) > 0:
            start = tokenizer(common[:end], add_special_tokens=False)["input_ids"]
            if all(ids[: len(start)] == start and len(ids) - len(start) > 1 for ids in whole):
                return Shared(common[:end], tuple(tuple(ids[len(start) :]) for ids in whole))
    raise ValueError(f"prompts without a common beginning: {prompts[0][:60]!r} ...")


def read(loaded: LoadedModel, inputs: dict[str, Any]) -> State:
    """Let the model read padded beginnings.

    Positions are given, not left to the model: Qwen2-VL counts a clip's tokens in three dimensions
    and keeps the difference to the number of tokens as state from one call to the next.

    Args:
        loaded: the model.
        inputs: of ``G`` beginnings with their frames, from :func:`models.prompts.encode`.
    """
    positions, following = _positions(loaded.model, inputs)
    # One row of logits: all others would cost as much as the model.
    output = loaded.model(**inputs, position_ids=positions, logits_to_keep=1, use_cache=True)
    mask = inputs["attention_mask"]
    return State(output.logits[:, -1], output.past_key_values, mask, following)


def go_on(
    loaded: LoadedModel, state: State, rows: Sequence[int], endings: Sequence[Sequence[int]]
) -> State:
    """Run endings on top of beginnings, which stay as they are.

    Args:
        loaded: the model.
        state: ``G`` beginnings.
        rows: for each of ``R`` endings, which beginning it follows.
        endings: their token ids; shorter ones are padded on the left, and the padding masked.
    """
    device = state.mask.device
    index = torch.tensor(list(rows), device=device)
    width = max(len(e) for e in endings)
    pad = loaded.processor.tokenizer.pad_token_id
    ids = torch.full((len(rows), width), pad, device=device)
    mask = torch.zeros_like(ids)
    for i, ending in enumerate(endings):
        ids[i, width - len(ending) :] = torch.tensor(list(ending), device=device)
        mask[i, width - len(ending) :] = 1
    chosen = State(
        state.logits, select(state.cache, index), state.mask[index], state.following[index]
    )
    return _run(loaded.model, chosen, ids, mask)


def step(loaded: LoadedModel, state: State, tokens: Tensor) -> State:
    """Feed one more token ``[R]`` to each row; ``state`` is used up."""
    return _run(loaded.model, state, tokens[:, None], torch.ones_like(tokens[:, None]))


def _run(model: Any, state: State, ids: Tensor, mask: Tensor) -> State:
    positions = state.following[:, None] + (mask.cumsum(1) - 1).clamp(min=0)
    whole = torch.cat([state.mask, mask], dim=1)
    output = model(
        input_ids=ids,
        attention_mask=whole,
        position_ids=positions.expand(3, -1, -1) if _is_mrope(model) else positions,
        past_key_values=state.cache,
        logits_to_keep=1,
        use_cache=True,
    )
    following = state.following + mask.sum(1)
    return State(output.logits[:, -1], output.past_key_values, whole, following)


def _is_mrope(model: Any) -> bool:
    return hasattr(model.model, "get_rope_index")


def _positions(model: Any, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Rotary positions ``[G, P]`` or ``[3, G, P]`` and the one that follows, ``[G]``."""
    mask = inputs["attention_mask"]
    if _is_mrope(model) and "video_grid_thw" in inputs:
        positions, deltas = model.model.get_rope_index(
            inputs["input_ids"],
            mm_token_type_ids=inputs["mm_token_type_ids"],
            video_grid_thw=inputs["video_grid_thw"],
            attention_mask=mask,
        )
        return positions, mask.sum(1) + deltas[:, 0]
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    following = mask.sum(1)
    return (positions.expand(3, -1, -1) if _is_mrope(model) else positions), following
