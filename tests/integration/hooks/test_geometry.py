from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    LlavaNextVideoConfig,
    LlavaNextVideoForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)

from hooks.capture import Capture
from hooks.errors import GeometryError
from hooks.geometry import Geometry, find_geometry, layers, o_projs

EXPECTED = {  # name: (layers' path, head width)
    "llama": ("model.layers", 12),
    "qwen3": ("model.layers", 16),
    "qwen2_vl": ("model.language_model.layers", 8),
    "llava_next_video": ("model.language_model.layers", 8),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_tiny_models(build, name):
    path, head_dim = EXPECTED[name]
    model = build(name)
    assert find_geometry(model) == Geometry(
        n_layers=3,
        n_heads=4,
        head_dim=head_dim,
        hidden_size=32,
        n_kv_heads=2,
        layer_names=tuple(f"{path}.{i}" for i in range(3)),
        o_proj_names=tuple(f"{path}.{i}.self_attn.o_proj" for i in range(3)),
    )
    decoder = model.get_decoder()
    assert all(a is b for a, b in zip(layers(model), decoder.layers, strict=True))
    projections = [layer.self_attn.o_proj for layer in decoder.layers]
    assert all(a is b for a, b in zip(o_projs(model), projections, strict=True))


def test_inner_models_are_found_too(build):
    inner = build("qwen2_vl").model
    assert find_geometry(inner).layer_names[0] == "language_model.layers.0"
    assert find_geometry(inner.language_model).layer_names[0] == "layers.0"


def small(model_type: str) -> nn.Module:
    """A meta model of two layers with 4 heads of 24 in text and 2 blocks in vision."""
    config = AutoConfig.for_model(model_type)
    text = config.get_text_config()
    text.num_hidden_layers, text.num_attention_heads, text.num_key_value_heads = 2, 4, 2
    text.hidden_size, text.head_dim, text.vocab_size = 64, 24, 512
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:2]
    vision = config.vision_config
    for field in ("depth", "num_hidden_layers"):
        if hasattr(vision, field):
            setattr(vision, field, 2)
    with torch.device("meta"):
        return AutoModelForImageTextToText.from_config(config)


# The last two are the hard ones: attention of their vision towers has an o_proj, too.
FAMILIES = ["qwen3_vl", "llava_onevision", "gemma3", "llava_next_video", "mistral3", "llama4"]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_other_families(model_type):
    model = small(model_type)
    found = find_geometry(model)
    assert (found.n_layers, found.n_heads, found.head_dim, found.n_kv_heads) == (2, 4, 24, 2)
    assert all("language_model" in name for name in found.o_proj_names)


def test_some_vision_tower_has_an_o_proj():
    """Otherwise the test above would not show that towers are left out."""
    towers = [n for n, _ in small("mistral3").named_modules() if "vision" in n and "o_proj" in n]
    assert towers


def qwen2_vl_7b() -> nn.Module:
    text = {
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "rope_parameters": {"rope_type": "default", "mrope_section": [16, 24, 24]},
    }
    return Qwen2VLForConditionalGeneration(Qwen2VLConfig(text_config=text))


def llava_next_video_7b() -> nn.Module:
    return LlavaNextVideoForConditionalGeneration(LlavaNextVideoConfig())


@pytest.mark.parametrize(
    ("make", "n_layers", "n_heads", "hidden", "n_kv"),
    [(qwen2_vl_7b, 28, 28, 3584, 4), (llava_next_video_7b, 32, 32, 4096, 32)],
)
def test_full_size_on_meta(make, n_layers, n_heads, hidden, n_kv):
    with torch.device("meta"):
        model = make().eval()
    found = find_geometry(model)
    assert (found.n_layers, found.n_heads, found.head_dim) == (n_layers, n_heads, 128)
    assert (found.hidden_size, found.n_kv_heads) == (hidden, n_kv)

    ids = torch.ones(1, 6, dtype=torch.long, device="meta")
    with Capture(model) as capture:
        model(input_ids=ids)
        taken = capture.take(items=["story"])
    assert taken.shape == (1, 1, n_layers, n_heads, 128)
    assert taken.device.type == "meta"
    # sdpa looks into a mask for padding, which meta cannot answer; eager does not.
    model.set_attn_implementation("eager")
    with Capture(model, positions="last_prompt+generated") as capture:
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
        assert capture.take().shape == (1, 1, n_layers, n_heads, 128)


def test_no_config():
    with pytest.raises(GeometryError, match="Linear has no `config`"):
        find_geometry(nn.Linear(2, 2))


def test_wrong_number_of_layers_says_what_was_found(build):
    model = build("llama")
    model.config.num_hidden_layers = 5
    with pytest.raises(GeometryError, match=r"list of 5 layers.*model\.layers \(3\)"):
        find_geometry(model)


def test_wrong_widths_name_the_layer(build):
    model = build("qwen3")
    model.model.layers[1].self_attn.o_proj = nn.Linear(48, 32)
    with pytest.raises(GeometryError, match=r"layers\.1\.self_attn\.o_proj maps 48 -> 32.*64"):
        find_geometry(model)


def test_head_width_without_a_config_field(build):
    model = build("llava_next_video")
    model.config.text_config.head_dim = None
    assert find_geometry(model).head_dim == 8
    model.config.text_config.num_attention_heads = 5
    with pytest.raises(GeometryError, match="5 heads"):
        find_geometry(model)


def test_layer_without_o_proj_lists_its_children(build):
    model = build("llama")
    del model.model.layers[2].self_attn.o_proj
    with pytest.raises(GeometryError, match=r"model\.layers\.2.*self_attn, mlp"):
        find_geometry(model)


def test_o_proj_that_is_not_linear(build):
    model = build("llama")
    model.model.layers[0].self_attn.o_proj = nn.Identity()
    with pytest.raises(GeometryError, match=r"layers\.0.*Identity"):
        find_geometry(model)
