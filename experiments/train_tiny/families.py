"""Architectures, processors and chat layouts of the two tiny models."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from transformers import (
    CLIPVisionConfig,
    LlamaForCausalLM,
    LlavaNextImageProcessor,
    LlavaNextVideoConfig,
    LlavaNextVideoForConditionalGeneration,
    LlavaNextVideoProcessor,
    LlavaNextVideoVideoProcessor,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
)

from experiments.train_tiny import decoder
from experiments.train_tiny.vocabulary import SIZE
from sally_anne.benchmarks.gridtom.render import HEIGHT, WIDTH

Family = Literal["qwen2-vl", "llava-next-video"]
FAMILIES: tuple[Family, ...] = ("qwen2-vl", "llava-next-video")

PATCH = 14
# Qwen2-VL: 3 x 3 patches of 14 pixels are one token, which is exactly one cell of 42 pixels.
QWEN_MERGE = 3
# LLaVA-NeXT-Video's tower is square: 14 x 14 patches, pooled to 7 x 7 tokens a frame.
LLAVA_SIZE = 196
_VISION_WIDTH, _VISION_HEADS = 64, 4

# The layouts of the full-size models without the default system message.
_QWEN_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_LLAVA_CHAT = (
    "{% for message in messages %}{{ message['role'].upper() }}: "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}<video>\n"
    "{% elif part['type'] == 'image' %}<image>\n"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% if message['role'] == 'assistant' %}</s>{% else %} {% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)


@dataclass(frozen=True)
class TokenGrid:
    """How video tokens lie over a clip: ``frames_per_token`` frames, ``rows`` x ``columns``."""

    frames_per_token: int
    rows: int
    columns: int


TOKEN_GRIDS: dict[Family, TokenGrid] = {
    "qwen2-vl": TokenGrid(2, HEIGHT // (PATCH * QWEN_MERGE), WIDTH // (PATCH * QWEN_MERGE)),
    "llava-next-video": TokenGrid(1, LLAVA_SIZE // PATCH // 2, LLAVA_SIZE // PATCH // 2),
}
# What closes the assistant's turn.
END_OF_ANSWER: dict[Family, str] = {"qwen2-vl": "<|im_end|>", "llava-next-video": "</s>"}


def build_processor(family: Family, tokenizer: PreTrainedTokenizerFast) -> Any:
    """The family's true processor class with this tokenizer and the tiny tower's image size."""
    if family == "qwen2-vl":
        # Frames keep their size: the limits lie around 294 x 420.
        size = {"shortest_edge": 56 * 56, "longest_edge": 512 * 512}
        sizes: dict[str, Any] = {
            "patch_size": PATCH,
            "merge_size": QWEN_MERGE,
            "temporal_patch_size": 2,
        }
        return Qwen2VLProcessor(
            image_processor=Qwen2VLImageProcessor(size=size, **sizes),
            video_processor=Qwen2VLVideoProcessor(size=size, cap_pixels_per_frame=False, **sizes),
            tokenizer=tokenizer,
            chat_template=_QWEN_CHAT,
        )
    square = {"height": LLAVA_SIZE, "width": LLAVA_SIZE}
    return LlavaNextVideoProcessor(
        video_processor=LlavaNextVideoVideoProcessor(size=square, do_center_crop=False),
        image_processor=LlavaNextImageProcessor(
            size={"shortest_edge": LLAVA_SIZE},
            crop_size=square,
            image_grid_pinpoints=[[LLAVA_SIZE, LLAVA_SIZE * 2], [LLAVA_SIZE * 2, LLAVA_SIZE]],
        ),
        tokenizer=tokenizer,
        chat_template=_LLAVA_CHAT,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def build_model(
    family: Family, tokenizer: PreTrainedTokenizerFast, text: LlamaForCausalLM, seed: int
) -> Any:
    """A model of the family's class whose text decoder starts from ``text``."""
    torch.manual_seed(seed)
    shape = text.config
    model: Any

    def token(word: str) -> int:
        return int(tokenizer.convert_tokens_to_ids(word))  # type: ignore[arg-type]

    if family == "qwen2-vl":
        qwen = Qwen2VLConfig(
            text_config={
                "vocab_size": SIZE,
                "hidden_size": shape.hidden_size,
                "intermediate_size": shape.intermediate_size,
                "num_hidden_layers": shape.num_hidden_layers,
                "num_attention_heads": shape.num_attention_heads,
                "num_key_value_heads": shape.num_key_value_heads,
                "rms_norm_eps": shape.rms_norm_eps,
                "max_position_embeddings": shape.max_position_embeddings,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": decoder.ROPE_THETA,
                    "mrope_section": [2, 3, 3],
                },
                "bos_token_id": tokenizer.bos_token_id,
                "eos_token_id": token("<|im_end|>"),
                "pad_token_id": tokenizer.pad_token_id,
            },
            vision_config={
                "depth": 1,
                "embed_dim": _VISION_WIDTH,
                "hidden_size": shape.hidden_size,
                "num_heads": _VISION_HEADS,
                "mlp_ratio": 2,
                "patch_size": PATCH,
                "spatial_merge_size": QWEN_MERGE,
                "temporal_patch_size": 2,
            },
            image_token_id=token("<|image_pad|>"),
            video_token_id=token("<|video_pad|>"),
            vision_start_token_id=token("<|vision_start|>"),
            vision_end_token_id=token("<|vision_end|>"),
            tie_word_embeddings=True,
        )
        model = Qwen2VLForConditionalGeneration(qwen)
    else:
        llava = LlavaNextVideoConfig(
            vision_config=CLIPVisionConfig(
                hidden_size=_VISION_WIDTH,
                intermediate_size=2 * _VISION_WIDTH,
                num_hidden_layers=2,
                num_attention_heads=_VISION_HEADS,
                image_size=LLAVA_SIZE,
                patch_size=PATCH,
            ).to_dict(),
            text_config={**shape.to_dict(), "eos_token_id": tokenizer.eos_token_id},
            image_token_index=token("<image>"),
            video_token_index=token("<video>"),
            image_grid_pinpoints=[[LLAVA_SIZE, LLAVA_SIZE * 2], [LLAVA_SIZE * 2, LLAVA_SIZE]],
            tie_word_embeddings=True,
        )
        model = LlavaNextVideoForConditionalGeneration(llava)
    _take_over(model, text)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = token(END_OF_ANSWER[family])
    model.generation_config.do_sample = False
    return model


def _take_over(model: Any, text: LlamaForCausalLM) -> None:
    """Copy the decoder's weights; biases that Llama does not have start at zero."""
    target = model.model.language_model
    missing, unexpected = target.load_state_dict(text.model.state_dict(), strict=False)
    biases = [name for name in missing if name.endswith("_proj.bias")]
    if unexpected or len(biases) != len(missing):
        raise ValueError(f"decoders do not fit: missing {missing}, unexpected {unexpected}")
    parameters = dict(target.named_parameters())
    for name in biases:
        nn.init.zeros_(parameters[name])
    model.tie_weights()


def deepen(model: Any, layers: int) -> Any:
    """The same function with decoder layers added at the end.

    A new layer writes nothing at first, as its last projections are zero. They give later training
    layers that come after what the model has already found out.

    Args:
        model: a model of either family.
        layers: how many decoder layers the new one has.
    """
    config = copy.deepcopy(model.config)
    config.text_config.num_hidden_layers = layers
    if getattr(config.text_config, "layer_types", None):
        config.text_config.layer_types = config.text_config.layer_types[:1] * layers
    deeper = type(model)(config)
    missing, unexpected = deeper.load_state_dict(model.state_dict(), strict=False)
    parameters = dict(deeper.named_parameters())
    if unexpected:
        raise ValueError(f"a deeper model has no place for {unexpected}")
    for name in missing:
        if name.endswith(("o_proj.weight", "down_proj.weight", "_proj.bias")):
            nn.init.zeros_(parameters[name])
    deeper.tie_weights()
    deeper.generation_config = model.generation_config
    return deeper
