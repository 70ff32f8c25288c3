from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForImageTextToText

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


def test_capture_on_meta(skeleton):
    """Shapes alone, as for a full-size model without its weights."""
    model, ids = skeleton(), torch.ones(1, 6, dtype=torch.long, device="meta")
    with Capture(model) as capture:
        model(input_ids=ids)
        taken = capture.take(items=["story"])
    assert taken.shape == (1, 1, 3, 4, 8) and taken.device.type == "meta"
    # sdpa looks into a mask for padding, which meta cannot answer; eager does not.
    model.set_attn_implementation("eager")
    with Capture(model, positions="last_prompt+generated") as capture:
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
        assert capture.take().shape == (1, 1, 3, 4, 8)
