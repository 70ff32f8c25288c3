"""Untrained models of chosen sizes, of Qwen2-VL's class, with a shipped tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import PerfError

# The name that the commands take for the model of about a hundred million parameters.
RANDOM_100M = "random-100m"


@dataclass(frozen=True)
class Shape:
    """What a model is made of.

    Attributes:
        layers: of the decoder.
        heads: a layer.
        kv_heads: keys and values a layer; they divide the heads.
        width: of a head, a multiple of 4; the model's width is heads x width.
        mlp: width of the feed-forward layers.
        vision_layers: of the vision tower.
        vision_width: of the vision tower, a multiple of 16.
        vocabulary: tokens that it can say; the tokenizer's by default. Logits cost as much.
    """

    layers: int = 12
    heads: int = 8
    kv_heads: int = 4
    width: int = 64
    mlp: int = 1280
    vision_layers: int = 4
    vision_width: int = 128
    vocabulary: int | None = None


# With the vocabulary of the published Qwen2-VL, in which most of such a model's weights are.
ABOUT_100M = Shape(vocabulary=151_936)


def config_of(shape: Shape, like: Any = None) -> dict[str, Any]:
    """The options of a ``Qwen2VLConfig`` of this shape.

    Args:
        shape: of the model.
        like: a config from which all else is taken; the tiny model's by default.
    """
    from sally_anne.models.loading import load_model

    config = (like or load_model("tiny-qwen2-vl").config).to_dict()
    hidden = shape.heads * shape.width
    # Rotary pairs of time, height and width, in about Qwen2-VL's proportion of 2 to 3 to 3.
    pairs = shape.width // 2
    side = pairs * 3 // 8
    config["text_config"] |= {
        "hidden_size": hidden,
        "intermediate_size": shape.mlp,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "layer_types": ["full_attention"] * shape.layers,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": [pairs - 2 * side, side, side],
        },
        "max_position_embeddings": 32_768,
    }
    if shape.vocabulary is not None:
        config["text_config"]["vocab_size"] = shape.vocabulary
    config["vision_config"] |= {
        "depth": shape.vision_layers,
        "embed_dim": shape.vision_width,
        "hidden_size": hidden,
    }
    return config


def save_untrained(folder: Path, shape: Shape = ABOUT_100M, seed: int = 0) -> Path:
    """Write a model with random weights and its processor, as ``save_pretrained`` does.

    Args:
        folder: where to.
        shape: of the model.
        seed: of the weights.

    Returns:
        ``folder``, which :func:`sally_anne.models.loading.load_model` takes.
    """
    import torch
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    from sally_anne.models.loading import load_model

    torch.manual_seed(seed)
    model = Qwen2VLForConditionalGeneration(Qwen2VLConfig(**config_of(shape)))
    model.save_pretrained(folder)
    load_model("tiny-qwen2-vl").processor.save_pretrained(folder)
    return folder


def save_published(folder: Path, model: str, shape: Shape | None = None, seed: int = 0) -> Path:
    """Write random weights in the size of a published Qwen2-VL, in its dtype, with its processor.

    Only the vocabulary is another: the shipped tokenizer's words, in tables of the published size.

    Args:
        folder: where to.
        model: catalogue name.
        shape: another size, for tests.
        seed: of the weights.

    Returns:
        ``folder``, which :func:`sally_anne.models.loading.load_model` takes.

    Raises:
        ModelError: the model is not described.
        PerfError: it is no Qwen2-VL.
    """
    import torch
    from transformers import GenerationConfig, Qwen2VLConfig, Qwen2VLForConditionalGeneration

    from sally_anne.models.published import open_published

    loaded = open_published(model)
    if loaded.family.name != "qwen2-vl":
        raise PerfError(f"--model {model}: a rehearsal takes a Qwen2-VL (qwen2-vl-2b, qwen2-vl)")
    options = loaded.config.to_dict() if shape is None else config_of(shape, loaded.config)
    tokenizer = loaded.processor.tokenizer
    for name in ("image_pad", "video_pad", "vision_start", "vision_end"):
        key = f"{name.removesuffix('_pad')}_token_id"
        options[key] = tokenizer.convert_tokens_to_ids(f"<|{name}|>")
    ends = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "pad")}
    ends["eos_token_id"] = tokenizer.convert_tokens_to_ids("<|im_end|>")
    options["text_config"] |= ends
    dtype = getattr(torch, loaded.dtype)
    with torch.device("meta"):
        made = Qwen2VLForConditionalGeneration(Qwen2VLConfig(**options)).to(dtype)
    # At once in its own dtype: made in float32, it would take twice the memory.
    made = made.to_empty(device="cpu")
    made.tie_weights()
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name:
                parameter.fill_(float(name.endswith("weight")))
            else:
                parameter.normal_(std=0.02)
    made.generation_config = GenerationConfig(**ends)
    made.save_pretrained(folder)
    loaded.processor.save_pretrained(folder)
    return folder
