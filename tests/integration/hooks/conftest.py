"""Tiny random models of the real classes: milliseconds to build, nothing to download."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaNextVideoConfig,
    LlavaNextVideoForConditionalGeneration,
    PreTrainedModel,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
)

TEXT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}


def llama() -> PreTrainedModel:
    # Heads wider than hidden / H, and a bias on o_proj.
    return LlamaForCausalLM(LlamaConfig(**TEXT, head_dim=12, attention_bias=True))


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**TEXT, head_dim=16))


def qwen2_vl() -> PreTrainedModel:
    # As many vision blocks as text layers, to tempt the search for layers.
    vision = {"depth": 3, "embed_dim": 16, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2}
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 2]}
    return Qwen2VLForConditionalGeneration(
        Qwen2VLConfig(
            text_config={**TEXT, "rope_parameters": rope},
            vision_config={**vision, "patch_size": 4, "temporal_patch_size": 2},
            image_token_id=60,
            video_token_id=61,
            vision_start_token_id=62,
            vision_end_token_id=63,
        )
    )


def llava_next_video() -> PreTrainedModel:
    vision = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=16,
        patch_size=4,
    )
    config = LlavaNextVideoConfig(
        vision_config=vision,
        text_config=LlamaConfig(**TEXT),
        image_token_index=60,
        video_token_index=61,
        image_grid_pinpoints=[[16, 16]],
    )
    return LlavaNextVideoForConditionalGeneration(config)


BUILDERS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": llama,
    "qwen3": qwen3,
    "qwen2_vl": qwen2_vl,
    "llava_next_video": llava_next_video,
}


@pytest.fixture(scope="session")
def build() -> Callable[..., PreTrainedModel]:
    """`build(name, attn="sdpa")`: the same weights for the same name, each time a new model."""

    def make(name: str, attn: str = "sdpa") -> PreTrainedModel:
        torch.manual_seed(0)
        model = BUILDERS[name]().eval()
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                # The default init leaves biases zero and logits nearly flat.
                if "norm" not in parameter_name:
                    parameter.normal_(std=0.3)
        model.set_attn_implementation(attn)
        return model

    return make


@pytest.fixture(params=list(BUILDERS))
def model(request, build) -> PreTrainedModel:
    return build(request.param)
