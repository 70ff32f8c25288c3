"""Chosen rows of a cache go on as the usual cache does, and leave what they came from alone."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache

from sally_anne.hooks.geometry import Geometry
from sally_anne.models.decoding import select
from sally_anne.models.estimate import row_bytes, row_bytes_by_device
from tests.models.checkpoints import random_model


def filled(rng: torch.Generator, rows: int, tokens: int, layers: int = 2) -> DynamicCache:
    cache = DynamicCache()
    for layer in range(layers):
        cache.update(*torch.randn(2, rows, 2, tokens, 3, generator=rng), layer)
    return cache


@settings(deadline=None, max_examples=60)
@given(
    index=st.lists(st.integers(0, 2), min_size=1, max_size=5),
    steps=st.lists(st.integers(1, 5), max_size=5),
    again=st.lists(st.integers(0, 0), min_size=1, max_size=3),
)
def test_equals_the_usual_cache(index: list[int], steps: list[int], again: list[int]) -> None:
    rng = torch.Generator().manual_seed(0)
    start = filled(rng, 3, 7)
    before = [layer.keys.clone() for layer in start.layers]
    usual = DynamicCache()
    for number, layer in enumerate(start.layers):
        usual.update(layer.keys[index], layer.values[index], number)
    rows = select(start, torch.tensor(index))
    for n in steps:
        for layer in range(2):
            new = torch.randn(2, len(index), 2, n, 3, generator=rng)
            expected = usual.update(*new, layer)
            found = rows.update(*new, layer)
            assert all(torch.equal(f, e) for f, e in zip(found, expected, strict=True))
    assert rows.get_seq_length() == usual.get_seq_length()
    # Rows of such a cache can be chosen again; going on from them does not change it.
    kept = [layer.keys.clone() for layer in rows.layers]
    chosen = select(rows, torch.tensor(again))
    chosen.update(*torch.randn(2, len(again), 2, 1, 3, generator=rng), 0)
    assert all(torch.equal(r.keys, k) for r, k in zip(rows.layers, kept, strict=True))
    assert all(torch.equal(s.keys, b) for s, b in zip(start.layers, before, strict=True))


def test_bytes_of_a_row_are_those_of_its_tensors() -> None:
    model = random_model("llama").to(torch.bfloat16)
    rows, tokens = 2, 7
    ids = torch.ones(rows, tokens, dtype=torch.long)
    with torch.no_grad():
        layers = model(ids, use_cache=True).past_key_values.layers
    found = sum(t.numel() * t.itemsize for layer in layers for t in (layer.keys, layer.values))
    assert row_bytes_by_device(model, tokens) == {torch.device("cpu"): found // rows}


def test_sixty_four_rows_of_llava_7b_take_44_gb() -> None:
    llava = Geometry(32, 32, 128, 4096, 32, (), ())
    assert 64 * row_bytes(llava, 1340, 2) == 44_962_938_880
