"""TransformerLens sees and changes exactly what this project's own hooks do."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sally_anne.core.errors import BackendError, EditError
from sally_anne.hooks.backends import backend
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import SITES
from sally_anne.models.loading import load_model
from tests.hooks.tiny_inputs import asked, delta_for

pytestmark = pytest.mark.plugins

# Of the largest activation; float32 has 1e-7, and eight layers add up.
ROUNDING = 1e-5


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("video", [True, False])
def test_same_bits_with_the_same_attention(loaded, video, site):
    model, inputs = loaded.model, asked(loaded, video)
    modules = dict(model.named_modules())
    native, other = backend("native"), backend("transformer_lens")
    for positions in ("last_prompt", "all"):
        expected = native.read(model, inputs, site, positions)
        found = other.read(model, inputs, site, positions)
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    plain = native.logits(model, inputs, torch.zeros_like(delta_for(model, site)), site)
    for rows in (None, 2):
        delta = delta_for(model, site, rows)
        for positions in ("last_prompt+generated", "all"):
            expected = native.logits(model, inputs, delta, site, positions)
            assert not torch.equal(expected, plain)
            assert torch.equal(other.logits(model, inputs, delta, site, positions), expected)
    assert torch.equal(other.logits(model, inputs, torch.zeros_like(delta), site), plain)
    # The model still has its own modules.
    now = dict(model.named_modules())
    assert now.keys() == modules.keys()
    assert all(now[name] is module for name, module in modules.items())


@pytest.mark.parametrize("name", ["tiny-qwen2-vl", "tiny-llava-next-video"])
def test_rounding_alone_with_other_attention(name):
    loaded = load_model(name)
    model, inputs = loaded.model, asked(loaded, True)
    assert model.config._attn_implementation == "sdpa"
    native, other = backend("native"), backend("transformer_lens")
    expected, found = native.read(model, inputs), other.read(model, inputs)
    assert (found - expected).abs().max() < ROUNDING * expected.abs().max()
    delta = delta_for(model, "head_out")
    real = inputs["attention_mask"].bool()
    expected = native.logits(model, inputs, delta)[real]
    found = other.logits(model, inputs, delta)[real]
    assert (found - expected).abs().max() < ROUNDING * expected.abs().max()
    # The bridge's choice of attention stays in the bridge.
    assert model.config._attn_implementation == "sdpa"


def test_layers_in_the_order_asked_for(loaded):
    inputs = asked(loaded, False)
    options = {"positions": "all", "layers": [3, 0]}
    expected = backend("native").read(loaded.model, inputs, **options)
    assert torch.equal(backend("transformer_lens").read(loaded.model, inputs, **options), expected)


def test_on_top_of_a_cache(loaded):
    """The rest of a prompt whose beginning was read before."""
    whole = asked(loaded, False)
    cut = whole["input_ids"].shape[1] - 4
    mask = whole["attention_mask"]
    places = (mask.cumsum(1) - 1).clamp(min=0)
    if "qwen2" in loaded.name:
        places = places.expand(3, -1, -1)
    begun = {name: value[:, :cut] for name, value in whole.items()}
    begun["position_ids"] = places[..., :cut]
    rest = {
        "input_ids": whole["input_ids"][:, cut:],
        "attention_mask": mask,
        "position_ids": places[..., cut:],
    }
    found = []
    for name in ("native", "transformer_lens"):
        with torch.no_grad():
            cache = loaded.model(**begun, use_cache=True).past_key_values
        found.append(backend(name).read(loaded.model, {**rest, "past_key_values": cache}))
    assert torch.equal(found[0], found[1])


def test_refusals(loaded):
    model, inputs = loaded.model, asked(loaded, False)
    other = backend("transformer_lens")
    with pytest.raises(EditError, match="3 rows, but the model runs 2 rows"):
        other.logits(model, inputs, delta_for(model, "head_out", rows=3))
    with (
        Edit(model, delta_for(model, "head_out")),
        pytest.raises(BackendError, match="forward hook"),
    ):
        other.read(model, inputs)


def test_an_architecture_that_transformer_lens_lacks():
    class NovelForCausalLM(LlamaForCausalLM):
        pass

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8}
    model = NovelForCausalLM(LlamaConfig(**sizes, num_attention_heads=2)).eval()
    with pytest.raises(BackendError, match="NovelForCausalLM"):
        backend("transformer_lens").read(model, {"input_ids": torch.tensor([[1, 2]])})
