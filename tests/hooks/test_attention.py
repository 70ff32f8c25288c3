"""Where heads look is what step-by-step attention says of the read row, and changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sally_anne.core.errors import HookError
from sally_anne.hooks.capture import Capture, Looks
from sally_anne.hooks.edit import Redirect
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.positions import POSITIONS
from sally_anne.models.loading import load_model
from sally_anne.models.prefix import extend, prefill
from tests.hooks.test_edit import every_hook, generation, logits_of, some_heads
from tests.hooks.test_every_type import build as of_type
from tests.hooks.tiny_inputs import PROMPTS, TINY, asked, batch_of

pytestmark = pytest.mark.integration


def rows(model: Any, inputs: Any) -> Tensor:
    """By transformers: `[B, L, H, T]` of each row's last real token, from whole matrices."""
    way = model.config.get_text_config()._attn_implementation
    model.set_attn_implementation("eager")
    full = torch.stack(model(**inputs, output_attentions=True).attentions, 1)
    model.set_attn_implementation(way)
    at = inputs["attention_mask"].cumsum(1).argmax(1)
    return full[torch.arange(len(at)), :, :, at]


@pytest.mark.parametrize("name", ["llama", "gemma3-text", "mistral", "qwen3"])
@pytest.mark.parametrize("way", ["sdpa", "eager"])
@torch.no_grad()
def test_decoders(build, name, way):
    """With padding on either side, windows that are shorter than prompts, and one on its own."""
    model = build(name, way)
    long = [list(range(2, 30)), list(range(7, 17))]
    sides = [batch_of(PROMPTS, side) for side in ("left", "right")]
    for inputs in (*sides, batch_of(long), batch_of(long[:1])):
        with Capture(model) as capture:
            plain, z = model(**inputs).logits, capture.take()
            with Looks(model) as looks:
                assert torch.equal(model(**inputs).logits, plain)
                assert torch.equal(capture.take(), z)
                found = looks.take()[:, 0]
            assert torch.equal(model(**inputs).logits, plain)
        with Capture(model) as capture:
            torch.testing.assert_close(found, rows(model, inputs), atol=1e-5, rtol=0)
            # Heads put out the same whichever way they attend.
            torch.testing.assert_close(capture.take(), z, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", TINY)
@torch.no_grad()
def test_films_and_shared_beginnings(name):
    loaded = load_model(name)
    inputs = asked(loaded, True)
    with Looks(loaded.model) as looks:
        loaded.model(**inputs)
        found = looks.take()[:, 0]
    torch.testing.assert_close(found, rows(loaded.model, inputs), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:3]))
    assert not found.movedim(-1, 1)[inputs["attention_mask"] == 0].any()
    endings, begun = [[20, 33, 19], [40, 41], [30, 22, 25, 31]], [0, 0, 1]
    state = prefill(loaded, inputs)
    with Looks(loaded.model) as looks:
        columns = extend(loaded, state, begun, endings)
        found = looks.take()[:, 0]
    for row, ending in enumerate(endings):
        one = {key: value.chunk(2)[begun[row]] for key, value in inputs.items()}
        more = {"input_ids": torch.tensor([ending])}
        more["attention_mask"] = torch.ones_like(more["input_ids"])
        more["mm_token_type_ids"] = 0 * more["input_ids"]
        one |= {key: torch.cat([one[key], more[key]], 1) for key in more if key in one}
        expected = rows(loaded.model, one)[0][..., one["attention_mask"][0] > 0]
        real = columns.mask[row] > 0
        torch.testing.assert_close(found[row][..., real], expected, atol=1e-5, rtol=0)
        assert not found[row][..., ~real].any()


@pytest.fixture
def redirected(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """Logits where whole matrices are changed, in a model that attends step by step."""

    def logits(model: Any, inputs: Any, heads: Tensor, away: Tensor, to: Tensor | None) -> Tensor:
        layers = {layer.self_attn: n for n, layer in enumerate(model.get_decoder().layers)}
        code = sys.modules[type(next(iter(layers))).__module__]
        plain = code.eager_attention_forward

        def changed(module, query, key, value, mask, **how):
            output, weights = plain(module, query, key, value, mask, **how)
            value = value.repeat_interleave(weights.shape[1] // value.shape[1], 1)
            for head in heads[layers[module]].nonzero()[:, 0].tolist():
                for row, at in enumerate(inputs["attention_mask"].cumsum(1).argmax(1)):
                    own = weights[row, head, at].clone()
                    gone = own[away[row]].sum()
                    own[away[row]] = 0
                    kept = slice(None) if to is None else to[row]
                    own[kept] *= 1 + gone / own[kept].sum()
                    output[row, at, head] = own @ value[row, head]
            return output, weights

        with monkeypatch.context() as patch:
            patch.setattr(code, "eager_attention_forward", changed)
            way = model.config.get_text_config()._attn_implementation
            model.set_attn_implementation("eager")
            found = logits_of(model, inputs)
            model.set_attn_implementation(way)
        return found

    return logits


def columns(inputs: Any, place: int) -> Tensor:
    """Of each row the real token of this number alone, bool `[B, T]`."""
    mask = inputs["attention_mask"]
    return (mask.cumsum(1) == place + 1) & (mask == 1)


@pytest.mark.parametrize("name", ["llama", "gemma3-text", "mistral", "qwen3"])
@pytest.mark.parametrize("way", ["sdpa", "eager"])
@pytest.mark.parametrize("to", [None, 1])
def test_knock_out_and_redirection_are_those_of_whole_matrices(build, redirected, name, way, to):
    model = build(name, way)
    heads = some_heads(model)[: len(model.get_decoder().layers)]
    for side in ("left", "right"):
        inputs = batch_of(PROMPTS, side)
        away, other = columns(inputs, 2), None if to is None else columns(inputs, to)
        with Redirect(model, heads, away, other), Capture(model, positions="all") as capture:
            found, z = logits_of(model, inputs), capture.take()[:, :, 0]
        expected = redirected(model, inputs, heads, away, other)
        real = inputs["attention_mask"] > 0
        torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
        with Capture(model, positions="all") as capture:
            plain, before = logits_of(model, inputs), capture.take()[:, :, 0]
        # Only the chosen heads of the first layer differ, and only where each row is read.
        moved = (z != before).any(-1)
        assert moved.sum() == heads[0].sum() * len(PROMPTS) and moved[..., heads[0]].any(1).all()
        with Redirect(model, heads, away & False, other):
            assert torch.equal(logits_of(model, inputs), plain)


@pytest.mark.parametrize("positions", POSITIONS)
def test_generated_tokens_look_elsewhere_with_and_without_cache(model, positions):
    away, heads = columns(batch_of(PROMPTS), 1), some_heads(model)
    with Redirect(model, heads, away, positions=positions):
        cached, uncached = generation(model), generation(model, use_cache=False)
    found = torch.stack(cached.logits)
    assert torch.equal(cached.sequences, uncached.sequences)
    torch.testing.assert_close(found, torch.stack(uncached.logits), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found, torch.stack(generation(model).logits), atol=1e-3)


def test_heads_that_see_nothing_else_are_refused(model):
    inputs, heads = batch_of(PROMPTS), some_heads(model)
    for away, to in ((columns(inputs, 0) | True, None), (columns(inputs, 1), columns(inputs, 9))):
        with pytest.raises(HookError, match="L0H1"), Redirect(model, heads, away, to):
            model(**inputs)
        assert every_hook(model) == 0


def test_who_attends_otherwise_is_refused(build):
    model = of_type("text", "bloom")
    inputs, found = batch_of(PROMPTS), find_geometry(model)
    heads = torch.ones(found.n_layers, found.n_heads)
    for block in (Looks(model), Redirect(model, heads, columns(inputs, 0))):
        with block, pytest.raises(HookError, match="interface"):
            model(**inputs)
        assert every_hook(model) == 0
    model = build()
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(HookError, match="sdpa"):
        Looks(model)
