"""Chosen rows of a cache go on as the usual cache does, and leave what they came from alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache

from sally_anne.hooks.geometry import Geometry
from sally_anne.models.checkpoint import limits_of
from sally_anne.models.estimate import row_bytes, row_bytes_by_device
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prefix import IN_PARTS, extend, prefill, select, split_common_prefix
from sally_anne.models.prompts import encode, open_prompt
from tests.models.checkpoints import random_model

# Types whose processors give the frames of each film together.
TOGETHER = ("qwen2-vl", "llava-next-video", "qwen2.5-vl", "qwen3-vl", "qwen2.5-omni", "glm4v")
SAID = "where does the white agent believe the red agent is ?"


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


def films(*rows: str) -> list[np.ndarray]:
    """Of each row its frames, 56 x 56 pixels; a letter is one frame."""
    drawn = np.random.default_rng(0).integers(0, 256, (256, 56, 56, 3), dtype=np.uint8)
    return [drawn[[*row.encode()]] for row in rows]


# Rows, and passes: how many rows each reads, and frames of each row.
ALIKE = (
    (("abcdefgh", "abcdxxxx"), [(1, 4), (2, 4)]),
    (("abcdefgh", "abcdefxx", "abyyyyyy"), [(2, 6), (3, 2)]),
    (("abcdefgh", "abcdefgh"), [(1, 8), (2, 0)]),
    (("abcdefgh", "zzzzzzzz", "zzzzxxxx", "zzzzyyyy", "abcdefgh"), [(3, 4), (5, 4)]),
    # Too little is alike.
    (("abcdefgh", "abcdxxxx", "ijklmnop", "qrstuvwx", "zzzzyyyy"), [(5, 8)]),
)


@pytest.mark.integration
@pytest.mark.parametrize("name", TOGETHER)
def test_frames_that_films_begin_with_are_read_once(
    opened: Callable[[str], LoadedModel], name: str
) -> None:
    """The numbers are those of each row by itself; what goes through the model is counted."""
    loaded, seen = opened(name), []

    def keep(module: object, args: object, given: dict[str, torch.Tensor]) -> None:
        pixels = given.get("pixel_values_videos")
        seen.append((len(given["input_ids"]), 0 if pixels is None else pixels.numel()))

    for rows, passes in ALIKE:
        # Of unequal lengths, so that rows are padded.
        texts = [" ".join([SAID] * (1 + i % 2)) for i in range(len(rows))]
        cuts = [split_common_prefix(loaded, [open_prompt(loaded, text, True)]) for text in texts]
        begun, ends = [cut.beginning for cut in cuts], [cut.endings[0] for cut in cuts]
        inputs = encode(loaded, begun, films(*rows))
        seen.clear()
        hook = loaded.model.register_forward_pre_hook(keep, with_kwargs=True)
        with torch.no_grad():
            state = prefill(loaded, inputs)
            hook.remove()
            found = extend(loaded, state, range(len(rows)), ends).logits
            for row, film in enumerate(films(*rows)):
                alone = prefill(loaded, encode(loaded, [begun[row]], [film]))
                own = extend(loaded, alone, [0], [ends[row]]).logits[0]
                torch.testing.assert_close(found[row], own, atol=2e-5, rtol=1e-4)
        frame = inputs["pixel_values_videos"].numel() // (8 * len(rows))
        assert seen == [(count, count * frames * frame) for count, frames in passes]


@pytest.mark.integration
def test_frames_are_read_together_where_each_changes_the_others(
    opened: Callable[[str], LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of types without a row of their own this is found when they are opened."""
    loaded = opened("glm4v")
    assert not loaded.limits and not limits_of(loaded)
    tower = loaded.model.model.visual.blocks[0]
    own = tower.forward
    monkeypatch.setattr(tower, "forward", lambda x, *a, **how: own(x + x.mean(0), *a, **how))
    assert [*limits_of(loaded)] == [IN_PARTS]


@pytest.mark.integration
def test_films_behind_other_words_are_read_whole(opened: Callable[[str], LoadedModel]) -> None:
    loaded, passes = opened("qwen2-vl"), []
    chats = [
        [{"role": "system", "content": said}, {"role": "user", "content": SAID}]
        for said in ("the red agent", "the blue agent")
    ]
    texts = [open_prompt(loaded, chat, True) for chat in chats]
    hook = loaded.model.register_forward_pre_hook(lambda *given: passes.append(given))
    with torch.no_grad():
        prefill(loaded, encode(loaded, texts, films("abcd", "abcd")))
    hook.remove()
    assert len(passes) == 1
