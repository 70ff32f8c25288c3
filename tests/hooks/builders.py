"""Tiny random models of the real classes: milliseconds to build, nothing to download."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    InternVLConfig,
    InternVLForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaNextVideoConfig,
    LlavaNextVideoForConditionalGeneration,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

Sizes = dict[str, Any]

TEXT: Sizes = {
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
# As many blocks as the text has layers, to tempt the search for layers.
TOWER: Sizes = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}
QWEN_MARKS: Sizes = {
    "image_token_id": 60,
    "video_token_id": 61,
    "vision_start_token_id": 62,
    "vision_end_token_id": 63,
}
# Of Qwen2.5-VL and Qwen3-VL.
QWEN_EYE: Sizes = {
    "depth": 3,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 4,
    "patch_size": 4,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}
# The text of Gemma 3: two layers that look back four tokens, and one that sees all.
GEMMA: Sizes = {
    **TEXT,
    "head_dim": 12,
    "query_pre_attn_scalar": 12,
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}


def _rope(sections: list[int]) -> Sizes:
    """Rotary pairs of time, height and width."""
    return {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": sections}


def llama() -> PreTrainedModel:
    # Heads wider than hidden / H, and a bias on o_proj.
    return LlamaForCausalLM(LlamaConfig(**TEXT, head_dim=12, attention_bias=True))


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**TEXT, head_dim=16))


def qwen2() -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**TEXT))


def mistral() -> PreTrainedModel:
    return MistralForCausalLM(MistralConfig(**TEXT, head_dim=12, sliding_window=4))


def gemma3_text() -> PreTrainedModel:
    return Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA))


def qwen2_vl() -> PreTrainedModel:
    # As many vision blocks as text layers, to tempt the search for layers.
    vision: Sizes = {
        "depth": 3,
        "embed_dim": 16,
        "hidden_size": 32,
        "num_heads": 4,
        "mlp_ratio": 2,
    }
    rope = _rope([1, 1, 2])
    return Qwen2VLForConditionalGeneration(
        Qwen2VLConfig(
            text_config={**TEXT, "rope_parameters": rope},
            vision_config={**vision, "patch_size": 4, "temporal_patch_size": 2},
            **QWEN_MARKS,
        )
    )


def qwen2_5_vl() -> PreTrainedModel:
    vision = dict(QWEN_EYE)
    # The first and last block look at windows of one token, the second at whole frames.
    vision |= {"window_size": 8, "fullatt_block_indexes": [1], "out_hidden_size": 32}
    rope = _rope([1, 1, 2])
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config={**TEXT, "rope_parameters": rope},
            vision_config={**vision, "tokens_per_second": 2},
            **QWEN_MARKS,
        )
    )


def qwen3_vl() -> PreTrainedModel:
    vision = dict(QWEN_EYE)
    # Two blocks put what they see into the first two layers of the text as well.
    vision |= {"num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]}
    rope = _rope([4, 2, 2])
    rope |= {"mrope_interleaved": True}
    return Qwen3VLForConditionalGeneration(
        Qwen3VLConfig(
            text_config={**TEXT, "head_dim": 16, "rope_parameters": rope},
            vision_config={**vision, "out_hidden_size": 32},
            **QWEN_MARKS,
        )
    )


def llava_onevision() -> PreTrainedModel:
    return LlavaOnevisionForConditionalGeneration(
        LlavaOnevisionConfig(
            vision_config={**TOWER, "model_type": "siglip_vision_model", "vision_use_head": False},
            text_config=Qwen2Config(**TEXT),
            image_token_index=60,
            video_token_index=61,
            image_grid_pinpoints=[[16, 16]],
        )
    )


def internvl() -> PreTrainedModel:
    return InternVLForConditionalGeneration(
        InternVLConfig(
            vision_config=TOWER,
            text_config=Qwen3Config(**TEXT, head_dim=16),
            image_token_id=60,
            image_seq_length=4,
        )
    )


def gemma3() -> PreTrainedModel:
    return Gemma3ForConditionalGeneration(
        Gemma3Config(
            vision_config={**TOWER, "model_type": "siglip_vision_model", "vision_use_head": False},
            text_config=GEMMA,
            mm_tokens_per_image=4,
            boi_token_index=62,
            eoi_token_index=63,
            image_token_index=60,
        )
    )


def llava_next_video() -> PreTrainedModel:
    config = LlavaNextVideoConfig(
        vision_config=CLIPVisionConfig(**TOWER),
        text_config=LlamaConfig(**TEXT),
        image_token_index=60,
        video_token_index=61,
        image_grid_pinpoints=[[16, 16]],
    )
    return LlavaNextVideoForConditionalGeneration(config)


BUILDERS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": llama,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "mistral": mistral,
    "gemma3_text": gemma3_text,
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "llava_next_video": llava_next_video,
    "llava_onevision": llava_onevision,
    "internvl": internvl,
    "gemma3": gemma3,
}
