from __future__ import annotations

from functools import partial
from types import FunctionType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sally_anne.core.errors import HookError
from sally_anne.hooks.positions import (
    POSITIONS,
    Pass,
    PassTracker,
    fresh_index,
    position_mask,
    real_columns,
)

lengths = st.lists(st.integers(1, 7), min_size=1, max_size=5)
sides = st.sampled_from(["left", "right"])


def make_pass(mask: object, n_query: int, n_cached: int, batch: int) -> Pass:
    return Pass(real_columns(mask, n_query, n_cached, batch), 0 if n_cached else n_query)


def padded_mask(row_lengths: list[int], side: str) -> torch.Tensor:
    width = max(row_lengths)
    mask = torch.zeros(len(row_lengths), width, dtype=torch.long)
    for row, length in enumerate(row_lengths):
        mask[row, :length] = 1
    return mask.flip(1) if side == "left" else mask


def last_real(row_lengths: list[int], side: str) -> list[int]:
    width = max(row_lengths)
    return [width - 1 if side == "left" else length - 1 for length in row_lengths]


class Cache:
    def __init__(self, length: int) -> None:
        self.length = length

    def get_seq_length(self) -> int:
        return self.length


class Model(nn.Module):
    def forward(self, input_ids=None, attention_mask=None, past_key_values=None, **kwargs):
        raise AssertionError("never run")


def as_transformers(function: FunctionType) -> FunctionType:
    """The same, as if it stood where `generate` stands."""
    there = {"__name__": "transformers.generation.utils"}
    return FunctionType(function.__code__, there, function.__name__)


@as_transformers
def generate(run):
    return run()


@as_transformers
def _prefill(run):
    return run()


@settings(deadline=None)
@given(lengths, sides)
def test_prefill(row_lengths, side):
    mask = padded_mask(row_lengths, side)
    at = make_pass(mask, mask.shape[1], 0, batch=len(row_lengths))
    last = last_real(row_lengths, side)
    for spec in ("last_prompt", "last_prompt+generated"):
        found = position_mask(spec, at)
        assert [row.nonzero().flatten().tolist() for row in found] == [[c] for c in last]
        index, valid = fresh_index(spec, at)
        assert index.tolist() == [[c] for c in last] and valid.all()
    assert not position_mask("generated", at).any()
    assert fresh_index("generated", at)[0].shape == (len(row_lengths), 0)
    assert torch.equal(position_mask("all", at), mask.bool())
    index, valid = fresh_index("all", at)
    assert torch.equal(valid, mask.bool())
    assert index.tolist() == [list(range(mask.shape[1]))] * len(row_lengths)


@settings(deadline=None)
@given(lengths, sides, st.integers(1, 4))
def test_uncached_passes_mark_what_cached_passes_mark(row_lengths, side, steps):
    """Without a cache, the mask of the last pass is the sum of the masks of all cached passes."""
    prompt = padded_mask(row_lengths, side)
    batch, width = prompt.shape
    ids = torch.arange(batch * (width + steps)).reshape(batch, -1)
    mask = torch.cat([prompt, torch.ones(batch, steps, dtype=torch.long)], dim=1)
    for spec in POSITIONS:
        cached, uncached = PassTracker(spec), PassTracker(spec)
        marks, fresh = [], []
        for end in range(width, width + steps + 1):
            start = 0 if end == width else end - 1
            kwargs = {
                "input_ids": ids[:, start:end],
                "attention_mask": mask[:, :end],
                # Before transformers 5.24, and since.
                ("cache", "past_key_values")[end % 2]: Cache(start) if start else None,
            }
            at = cached.follow(Model(), (), kwargs)
            assert at.new_sequence == (end == width)
            marks.append(position_mask(spec, at))
            fresh.append(start + fresh_index(spec, at)[0])

            kwargs = {"attention_mask": mask[:, :end], "use_cache": False}
            at = generate(partial(uncached.follow, Model(), (ids[:, :end],), kwargs))
            assert at.new_sequence == (end == width)
            assert torch.equal(fresh_index(spec, at)[0], fresh[-1])
            assert torch.equal(position_mask(spec, at), torch.cat(marks, dim=1))


def test_second_prompt_is_no_continuation():
    """In `generate` without a cache one token more is a generated one; elsewhere it is unclear."""
    tracker = PassTracker("last_prompt")
    ids = torch.tensor([[5, 6, 7]])
    tracker.follow(Model(), (ids[:, :2],), {})
    assert tracker.follow(Model(), (ids,), {}).n_prompt == 3

    def without_cache(columns: int) -> Pass:
        return tracker.follow(Model(), (ids[:, :columns],), {"use_cache": False})

    without_cache(2)
    assert generate(lambda: without_cache(3)).n_prompt == 2
    tracker.reset()
    assert generate(lambda: without_cache(3)).n_prompt == 3
    without_cache(2)
    assert generate(lambda: _prefill(lambda: without_cache(3))).n_prompt == 3
    without_cache(2)
    with pytest.raises(HookError, match="new block"):
        without_cache(3)


def test_a_cache_that_was_cut_back_is_under_way():
    """Guessed tokens were dropped from it; a new cache of the same length is a new prompt."""
    ids, cache = torch.zeros(1, 4), Cache(0)
    for spec in POSITIONS:
        tracker = PassTracker(spec)
        tracker.follow(Model(), (ids,), {"past_key_values": cache})
        assert tracker.follow(Model(), (ids,), {"past_key_values": Cache(3)}).n_prompt == 4
        cut = Cache(0)
        tracker.follow(Model(), (ids,), {"past_key_values": cut})
        cut.length = 2
        if spec == "all":
            assert tracker.follow(Model(), (ids,), {"past_key_values": cut}).real.shape[1] == 4
            continue
        with pytest.raises(HookError, match="2 cached ones"):
            tracker.follow(Model(), (ids,), {"past_key_values": cut})


def test_who_sees_whom_tells_padding_by_what_does_not_see_itself():
    whom = torch.full((1, 1, 3, 5), float("-inf"))
    whom[0, 0, 0, 2] = whom[0, 0, 2, [0, 4]] = 0
    assert real_columns(whom, 3, 2, 1).tolist() == [[True, False, True]]
