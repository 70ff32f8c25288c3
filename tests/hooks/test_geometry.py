from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import find_geometry

pytestmark = pytest.mark.integration


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


@pytest.mark.parametrize("model_type", ["mistral3", "llama4"])
def test_other_families(model_type):
    """Attention of their vision towers has an o_proj, too."""
    model = small(model_type)
    found = find_geometry(model)
    assert (found.n_layers, found.n_heads, found.head_dim, found.n_kv_heads) == (2, 4, 24, 2)
    assert all("language_model" in name for name in found.o_proj_names)


# Layers, heads, head width, hidden size, heads of keys and values, and the width of the MLP, as in
# the published checkpoints; the classes' defaults are other sizes.
FULL_SIZE = {
    "Qwen/Qwen2-VL-7B-Instruct": ("qwen2_vl", 28, 28, 128, 3584, 4, 18944),
    "Qwen/Qwen3-VL-8B-Instruct": ("qwen3_vl", 36, 32, 128, 4096, 8, 12288),
    "llava-hf/LLaVA-NeXT-Video-7B-hf": ("llava_next_video", 32, 32, 128, 4096, 32, 11008),
    "google/gemma-3-4b-it": ("gemma3", 34, 8, 256, 2560, 4, 10240),
    "meta-llama/Llama-3.1-8B-Instruct": ("llama", 32, 32, 128, 4096, 8, 14336),
}


def full_size(name: str) -> Any:
    """A model of these sizes on the meta device."""
    model_type, n_layers, n_heads, head_dim, hidden, n_kv, mlp = FULL_SIZE[name]
    text: dict[str, Any] = {
        "num_hidden_layers": n_layers,
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv,
        "hidden_size": hidden,
        "intermediate_size": mlp,
    }
    if model_type == "qwen2_vl":
        text["rope_parameters"] = {"rope_type": "default", "mrope_section": [16, 24, 24]}
    else:
        text["head_dim"] = head_dim
    auto: Any
    own = AutoConfig.for_model(model_type).get_text_config()
    if own.model_type == model_type:
        config, auto = AutoConfig.for_model(model_type, **text), AutoModelForCausalLM
    else:
        text["model_type"] = own.model_type
        vision = {"out_hidden_size": hidden} if model_type == "qwen3_vl" else {}
        config = AutoConfig.for_model(model_type, text_config=text, vision_config=vision)
        auto = AutoModelForImageTextToText
    with torch.device("meta"):
        return auto.from_config(config).eval()


@pytest.mark.parametrize("name", FULL_SIZE)
def test_full_size_on_meta(name):
    _, n_layers, n_heads, head_dim, hidden, n_kv, _ = FULL_SIZE[name]
    model = full_size(name)
    found = find_geometry(model)
    assert (found.n_layers, found.n_heads, found.head_dim) == (n_layers, n_heads, head_dim)
    assert (found.hidden_size, found.n_kv_heads) == (hidden, n_kv)

    ids = torch.ones(1, 6, dtype=torch.long, device="meta")
    with Capture(model) as capture:
        model(input_ids=ids)
        taken = capture.take(items=["story"])
    assert taken.shape == (1, 1, n_layers, n_heads, head_dim)
    assert taken.device.type == "meta"
    # sdpa looks into a mask for padding, which meta cannot answer; eager does not.
    model.set_attn_implementation("eager")
    with Capture(model, positions="last_prompt+generated") as capture:
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
        assert capture.take().shape == (1, 1, n_layers, n_heads, head_dim)
