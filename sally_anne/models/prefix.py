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
from transformers import DynamicCache

from sally_anne.core.errors import ModelError
from sally_anne.models.cache import select

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel


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
        ids: ``[R, T]``, what each column holds.
        mask: ``[R, T]``, 0 where a column is padding.
        following: ``[R]`` rotary position of the token that comes next.
    """

    logits: Tensor
    cache: Any
    ids: Tensor
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
    film = loaded.processor.video_token if loaded.family.frames_seen else None
    first = 1 + common.rfind(film) if film else 0
    for gap in (" ", "\n"):
        end = len(common)
        while (end := common.rfind(gap, first, end)) > 0:
            start = tokenizer(common[:end], add_special_tokens=False)["input_ids"]
            if all(ids[: len(start)] == start and len(ids) - len(start) > 1 for ids in whole):
                return Shared(common[:end], tuple(tuple(ids[len(start) :]) for ids in whole))
    raise ValueError(f"prompts without a common beginning: {prompts[0][:60]!r} ...")


def read(loaded: LoadedModel, inputs: dict[str, Any]) -> State:
    """Let the model read padded beginnings.

    Positions are given, not left to the model: Qwen's models count a clip's tokens in three
    dimensions and keep the difference to the number of tokens as state from one call to the next.

    The cache keeps all tokens of every layer, also of those that look back a certain distance
    only: which tokens they still need differs from ending to ending.

    Args:
        loaded: the model.
        inputs: of ``G`` beginnings with their frames, from :func:`models.prompts.encode`.
    """
    positions, following = _positions(loaded.model, inputs)
    output = loaded.model(
        **inputs,
        position_ids=positions,
        past_key_values=DynamicCache(),
        # One row of logits: all others would cost as much as the model.
        logits_to_keep=1,
        use_cache=True,
    )
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    return State(output.logits[:, -1], output.past_key_values, ids, mask, following)


def go_on(
    loaded: LoadedModel, state: State, rows: Sequence[int], endings: Sequence[Sequence[int]]
) -> State:
    """Run endings on top of beginnings, which stay as they are.

    Args:
        loaded: the model.
        state: ``G`` beginnings.
        rows: for each of ``R`` endings, which beginning it follows.
        endings: their token ids; shorter ones are padded on the left, and the padding masked.

    Raises:
        ModelError: the model looks back a certain distance only, and an ending is so much shorter
            than another that frames would have to be read again.
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
    gaps = width - mask.sum(1)
    if _looks_back_so_far(loaded.model.config) and bool(gaps.any()):
        return _run(loaded.model, *_closed(loaded, state, index, ids, mask, gaps))
    chosen = State(
        state.logits,
        select(state.cache, index),
        state.ids[index],
        state.mask[index],
        state.following[index],
    )
    return _run(loaded.model, chosen, ids, mask)


def step(loaded: LoadedModel, state: State, tokens: Tensor) -> State:
    """Feed one more token ``[R]`` to each row; ``state`` is used up."""
    return _run(loaded.model, state, tokens[:, None], torch.ones_like(tokens[:, None]))


def _looks_back_so_far(config: Any) -> bool:
    """Whether a layer sees only so many columns before its own, padding counted."""
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None)
    if kinds:
        return any(kind != "full_attention" for kind in kinds)
    return getattr(text, "sliding_window", None) is not None


def _closed(
    loaded: LoadedModel, state: State, index: Tensor, ids: Tensor, mask: Tensor, gaps: Tensor
) -> tuple[State, Tensor, Tensor]:
    """Beginnings and endings without padding between them, which would count as distance.

    The last tokens of a beginning move into the gap before its shorter ending, to be read again;
    what is left of the beginning moves to the right.

    Args:
        loaded: the model.
        state: ``G`` beginnings of ``T`` columns.
        index: ``[R]``, the beginning of each row.
        ids, mask: ``[R, W]``, endings padded on the left.
        gaps: ``[R]``, the padding of each.

    Returns:
        The chosen beginnings, and new ids and mask.
    """
    columns = torch.arange(state.mask.shape[1], device=ids.device) - gaps[:, None]
    there, columns = columns >= 0, columns.clamp(min=0)
    beginnings, real = state.ids[index], state.mask[index]
    # [R, W]: the column of the beginning that fills this one of the gap, or one out of reach.
    into = torch.arange(ids.shape[1], device=ids.device) - gaps[:, None]
    fills = (into < 0) & (into >= -beginnings.shape[1])
    source = (into + beginnings.shape[1]).clamp(0, beginnings.shape[1] - 1)
    lent = torch.where(fills, real.gather(1, source), 0)
    ids = torch.where(fills, beginnings.gather(1, source), ids)
    config = loaded.model.config
    for name in ("video_token_id", "image_token_id"):
        if bool(((ids == getattr(config, name, None)) & (lent > 0)).any()):
            raise ModelError(
                f"model {loaded.name!r} looks back a certain distance only, so prompts of one "
                "batch may not differ so much in what follows their frames; use --batch-size 1"
            )
    chosen = State(
        state.logits,
        select(state.cache, index, columns),
        beginnings.gather(1, columns),
        torch.where(there, real.gather(1, columns), 0),
        state.following[index] - lent.sum(1),
    )
    return chosen, ids, mask + lent


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
    seen = torch.cat([state.ids, ids], dim=1)
    return State(output.logits[:, -1], output.past_key_values, seen, whole, following)


def _is_mrope(model: Any) -> bool:
    return hasattr(model.model, "get_rope_index")


def _positions(model: Any, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Rotary positions ``[G, P]`` or ``[3, G, P]`` and the one that follows, ``[G]``."""
    mask = inputs["attention_mask"]
    if _is_mrope(model) and "video_grid_thw" in inputs:
        # One word more says where the text goes on. The model's own difference between positions
        # and tokens would not do: it counts from the highest position, which in a film of more
        # steps than a frame is wide and high is not that of the last word.
        more = torch.ones_like(mask[:, :1])
        positions, _ = model.model.get_rope_index(
            torch.cat([inputs["input_ids"], more], dim=1),
            mm_token_type_ids=torch.cat([inputs["mm_token_type_ids"], 0 * more], dim=1),
            video_grid_thw=inputs["video_grid_thw"],
            attention_mask=torch.cat([mask, more], dim=1),
            **{k: inputs[k] for k in ("second_per_grid_ts",) if k in inputs},
        )
        return positions[..., :-1], positions[0, :, -1]
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    following = mask.sum(1)
    return (positions.expand(3, -1, -1) if _is_mrope(model) else positions), following
