"""Which tokens count: one spec that serves capture and steering.

It is applied to a `Pass`, which `PassTracker` makes from the attention mask and the length of the
cache, so that it holds with padding on either side, with a KV cache and without.
"""

from __future__ import annotations

import inspect
import sys
import traceback
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sally_anne.core.errors import HookError

LAST_PROMPT = "last_prompt"
GENERATED = "generated"
LAST_PROMPT_GENERATED = "last_prompt+generated"
ALL = "all"
POSITIONS = (LAST_PROMPT, GENERATED, LAST_PROMPT_GENERATED, ALL)


@dataclass(frozen=True)
class Pass:
    """One forward pass over T columns."""

    real: Tensor  # [B, T] bool, the columns that are not padding
    n_prompt: int  # leading columns that are prompt: 0 in cached decoding, T in a prefill
    n_seen: int = 0  # those that an earlier pass has shown: in generation without a cache alone
    new_sequence: bool = True  # it begins a sequence
    n_cached: int = 0  # columns before these in a cache


def check_spec(spec: str) -> str:
    """Return `spec` unchanged. Raises HookError if it is none of POSITIONS."""
    if spec not in POSITIONS:
        raise HookError(f"unknown positions {spec!r}: choose one of {', '.join(POSITIONS)}.")
    return spec


def real_columns(
    attention_mask: Any, n_query: int, n_cached: int, batch: int, device: torch.device | str = "cpu"
) -> Tensor:
    """Which of `n_query` columns after `n_cached` cached ones are not padding, `[B, T]` bool.

    `attention_mask` is `[B, n_cached + n_query]`, None where nothing is padding, or additive,
    `[B, 1, n_query, n_cached + n_query]`, where a column that does not see itself is padding.
    """
    if isinstance(attention_mask, dict):  # a mask a kind of layer, which see as much of themselves
        attention_mask = next(iter(attention_mask.values()))
    if attention_mask is None:
        return torch.ones(batch, n_query, dtype=torch.bool, device=device)
    shape, columns = tuple(getattr(attention_mask, "shape", ())), n_cached + n_query
    if shape == (batch, 1, n_query, columns) and attention_mask.is_floating_point():
        return attention_mask[:, 0, :, n_cached:].diagonal(dim1=-2, dim2=-1) == 0
    if shape != (batch, columns):
        raise HookError(
            f"the attention mask is a {type(attention_mask).__name__} {list(shape)}, not {batch} "
            f"rows x ({n_cached} cached + {n_query} new) tokens: take the default dynamic cache."
        )
    return attention_mask[:, n_cached:].bool()


def position_mask(spec: str, at: Pass) -> Tensor:
    """The columns of a pass that `spec` means, `[B, T]` bool.

    In generation without a cache a generated token stays in the mask in every later pass, so that
    whatever is done at these positions gives the same result as with a cache.
    """
    if spec == ALL:
        return at.real
    mask = torch.zeros_like(at.real)
    if spec != LAST_PROMPT:
        mask[:, at.n_prompt :] = at.real[:, at.n_prompt :]
    if spec != GENERATED and at.n_prompt:
        mask.scatter_(1, _last_prompt_column(at)[:, None], True)
    return mask


def fresh_index(spec: str, at: Pass) -> tuple[Tensor, Tensor]:
    """The columns that `spec` means and no earlier pass has shown.

    Gives their numbers within this pass, `[B, P]`, where P may be 0, and which of them are no
    padding, bool `[B, P]` (with `all` only, as their count differs from row to row).
    """
    columns = torch.arange(at.real.shape[1], device=at.real.device).expand(len(at.real), -1)
    if spec == ALL:
        return columns[:, at.n_seen :], at.real[:, at.n_seen :]
    parts = []
    if spec != GENERATED and at.n_prompt and not at.n_seen:
        parts.append(_last_prompt_column(at)[:, None])
    if spec != LAST_PROMPT:
        parts.append(columns[:, max(at.n_prompt, at.n_seen) :])
    index = torch.cat(parts, dim=1) if parts else columns[:, :0]
    return index, torch.ones_like(index, dtype=torch.bool)


def _last_prompt_column(at: Pass) -> Tensor:
    """`[B]`: the last column of the prompt that is not padding."""
    columns = torch.arange(at.n_prompt, device=at.real.device)
    last = torch.where(at.real[:, : at.n_prompt], columns, -1).amax(dim=1)
    if not last.is_meta and bool((last < 0).any()):
        row = int((last < 0).nonzero()[0])
        raise HookError(f"row {row} of the batch has no prompt: its mask is all padding.")
    return last


class PassTracker:
    """Follows the forward passes of one model and separates prompt from generated tokens.

    Without cached tokens a pass is a prompt. Only `generate(use_cache=False)` repeats the ids of
    the pass before plus one generated token; a caller's own loop that looks like it is refused.

    A pass of one token on top of a cache is a generated token. A pass of several is the rest of a
    prompt whose beginning was cached beforehand; on top of a cache that this tracker has followed
    already it is a prompt in chunks or the check of guessed tokens, which cannot be distinguished.
    Assisted decoding is refused from its first pass on. Outside of `generate`, a prompt of which
    all but one token was cached beforehand reads as a generated token.

    `rows_may_move` takes beam search, which moves rows between beams: without a cache a sequence
    is recognised by its prompt alone. Else it is refused with generated positions.
    """

    def __init__(self, spec: str, rows_may_move: bool = False) -> None:
        self.spec, self.rows_may_move = check_spec(spec), rows_may_move
        self.reset()

    def reset(self) -> None:
        """Forget the sequence so far."""
        self._n_prompt = 0
        self._n_total: int | None = None
        self._ids: Tensor | None = None
        # Not the cache itself: it holds much memory.
        self._cache: Any = lambda: None

    def follow(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pass:
        """The pass that `model(*args, **kwargs)` is about to run."""
        inputs = kwargs
        if args:
            inputs = inspect.signature(model.forward).bind_partial(*args).arguments | kwargs
        ids, embeds = inputs.get("input_ids"), inputs.get("inputs_embeds")
        tokens = ids if ids is not None else embeds
        if tokens is None:
            raise HookError("the forward pass has neither input_ids nor inputs_embeds.")
        batch, n_query = tokens.shape[:2]
        cache = cache_in(inputs)
        n_cached = int(cache.get_seq_length()) if cache is not None else 0
        caller = _generating()
        if "_assisted_decoding" in caller:
            raise HookError("assisted decoding drops tokens it guessed: generate without it.")
        if "_beam_search" in caller and GENERATED in self.spec and not self.rows_may_move:
            raise HookError("beam search would mix generated positions: use num_beams=1.")
        before, self._ids = self._ids, None
        if n_cached:
            n_prompt = n_query if n_query > 1 or "_prefill" in caller else 0
            n_seen, begins = 0, self._n_total != n_cached
            if n_prompt and self.spec != ALL and (not begins or self._cache() is cache):
                raise HookError(
                    f"positions {self.spec!r}: {n_query} tokens follow {n_cached} cached ones of a "
                    "sequence under way: a prompt in chunks (prefill_chunk_size), or assisted "
                    "decoding. Turn that off, copy the cache, or take positions 'all'."
                )
        else:
            self._ids = ids if inputs.get("use_cache") is False else None
            begins = "_prefill" in caller or not self._one_token_more(before)
            if begins:
                self._n_prompt = n_query
            elif "generate" not in caller and self.spec != ALL:
                raise HookError(
                    f"positions {self.spec!r}: a pass repeats the last tokens and one more without "
                    "a cache: call model.generate, keep a cache, or open a new block."
                )
            n_prompt, n_seen = self._n_prompt, 0 if begins else n_query - 1
        mask = inputs.get("attention_mask")
        real = real_columns(mask, n_query, n_cached, batch, tokens.device)
        self._n_total = n_cached + n_query
        self._cache = weakref.ref(cache) if cache is not None else lambda: None
        return Pass(real, n_prompt, n_seen, begins, n_cached)

    def _one_token_more(self, before: Tensor | None) -> bool:
        """Whether the ids are `before`, or its prompt alone if rows may move, and one more."""
        now, kept = self._ids, self._n_prompt if self.rows_may_move else None
        if before is None or now is None or now.is_meta:
            return False
        longer = now.shape == (before.shape[0], before.shape[1] + 1)
        return longer and torch.equal(now[:, :-1][:, :kept], before[:, :kept])


def _generating() -> set[str]:
    """The functions of transformers' `generate` that are calling this pass, if any."""
    return {
        frame.f_code.co_name
        for frame, _ in traceback.walk_stack(sys._getframe(1))
        if frame.f_globals.get("__name__") == "transformers.generation.utils"
    }


def cache_in(inputs: Mapping[str, Any]) -> Any:
    """The cache among a pass's named arguments, if any; transformers renamed it in 5.24."""
    cache = inputs.get("cache")
    return inputs.get("past_key_values") if cache is None else cache
