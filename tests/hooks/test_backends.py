"""nnsight and TransformerLens see exactly what this project's own hooks do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from sally_anne.core.errors import HookError
from sally_anne.hooks.backends import backend
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import SITES, find_geometry
from sally_anne.models.loading import load_model
from tests.hooks.tiny_inputs import PROMPTS, TINY, asked, batch_of, delta_for

ROOT = Path(__file__).resolve().parents[2]
# Of the largest activation; float32 has 1e-7, and eight layers add up.
ROUNDING = 1e-5
OTHERS = [
    pytest.param("nnsight", marks=pytest.mark.integration),
    pytest.param("transformer_lens", marks=pytest.mark.plugins),
]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", OTHERS)
def test_equal_to_the_bit(loaded, site, name):
    model = loaded.model
    modules = dict(model.named_modules())
    native, other = backend("native"), backend(name)
    for video in (True, False):
        inputs = asked(loaded, video)
        for positions in ("last_prompt", "all"):
            options = {"site": site, "positions": positions, "layers": [3, 0]}
            expected = native.read(model, inputs, **options)
            found = other.read(model, inputs, **options)
            assert found.dtype == expected.dtype and torch.equal(found, expected)
    # The model still has its own modules and methods.
    now = dict(model.named_modules())
    assert now.keys() == modules.keys()
    for module_name, module in now.items():
        assert module is modules[module_name]
        assert not {"forward", "__nnsight__"} & vars(module).keys()


@pytest.mark.integration
@pytest.mark.parametrize("side", ["left", "right"])
def test_nnsight_in_text_models(build, side):
    model, inputs = build("llama"), batch_of(PROMPTS, side)
    native, other = backend("native"), backend("nnsight")
    options = {"site": "head_out", "positions": "all", "layers": [2, 0]}
    assert torch.equal(other.read(model, inputs, **options), native.read(model, inputs, **options))


@pytest.mark.plugins
def test_rounding_alone_with_other_attention():
    loaded = load_model(TINY[0])
    model, inputs = loaded.model, asked(loaded, True)
    native, other = backend("native"), backend("transformer_lens")
    expected, found = native.read(model, inputs), other.read(model, inputs)
    assert (found - expected).abs().max() < ROUNDING * expected.abs().max()
    # The bridge's choice of attention stays in the bridge.
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.integration
def test_hooks_around_shared_weights_are_refused(build):
    model, inputs = build("llama"), batch_of(PROMPTS)
    delta = delta_for(model, "head_out")
    other = backend("nnsight")
    for opened in (Capture(model), Edit(model, delta)):
        with opened, pytest.raises(HookError, match="has a forward hook"):
            other.read(model, inputs)
    with Edit(model, delta):
        with Capture(model) as capture:
            model(**inputs)
        assert torch.equal(backend("native").read(model, inputs), capture.take())
    other.read(model, inputs)


@pytest.mark.integration
def test_a_changed_model_is_built_around_again(build):
    model, inputs = build(), batch_of(PROMPTS)
    native, other = backend("native"), backend("nnsight")
    first = other.read(model, inputs)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(2)
    second = other.read(model, inputs)
    assert not torch.equal(second, first)
    o_proj = model.get_submodule(find_geometry(model).o_proj_names[0])
    o_proj.weight = nn.Parameter(o_proj.weight * 2)
    third = other.read(model, inputs)
    assert not torch.equal(third, second)
    assert torch.equal(third, native.read(model, inputs))
    model.set_attn_implementation("eager")
    assert torch.equal(other.read(model, inputs), native.read(model, inputs))
