"""Untrained tiny models in the shapes of those shipped: vocabulary, decoder, model, processor."""

from __future__ import annotations

import copy
from typing import Any, Literal, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    AutoProcessor,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from sally_anne.models.options import CATALOGUE

HIDDEN = 128
PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<s>", "</s>"
# The marks of Qwen2-VL's layout, then those of LLaVA-NeXT-Video's.
_MARKS = "<|im_start|> <|im_end|> <|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>"
_MARKS += " <image> <video>"


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Tokenizer of the shipped models: 320 words of the stories and the training documents."""
    words = Tokenizer.from_file(f"{CATALOGUE['tiny-qwen2-vl'].source}/tokenizer.json")
    named = {"pad_token": PAD, "unk_token": UNK, "bos_token": BOS, "eos_token": EOS}
    how: Any = {"padding_side": "left", "model_max_length": 2048}
    how["additional_special_tokens"] = _MARKS.split()
    return PreTrainedTokenizerFast(tokenizer_object=words, **named, **how)


def decoder_config() -> LlamaConfig:
    """The text decoder's shape: 6 layers x 8 heads x 16."""
    sizes: Any = {"vocab_size": 320, "hidden_size": HIDDEN, "intermediate_size": 384}
    sizes |= {"num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4}
    sizes |= {"head_dim": 16, "max_position_embeddings": 2048}
    sizes |= {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    rope: Any = {"rope_type": "default", "rope_theta": 10_000.0}
    return LlamaConfig(**sizes, rope_parameters=rope, tie_word_embeddings=True, use_cache=False)


Family = Literal["qwen2-vl", "llava-next-video"]
FAMILIES: tuple[Family, ...] = ("qwen2-vl", "llava-next-video")


class TokenGrid(NamedTuple):
    """How video tokens lie over a clip: ``frames_per_token`` frames, ``rows`` x ``columns``."""

    frames_per_token: int
    rows: int
    columns: int


# Of clips of 294 x 420 pixels. Qwen2-VL: one token is one cell of 42 pixels in two frames.
# LLaVA-NeXT-Video: a square of 196 pixels, 14 x 14 patches, pooled to 7 x 7.
TOKEN_GRIDS: dict[Family, TokenGrid] = {
    "qwen2-vl": TokenGrid(2, 10, 7),
    "llava-next-video": TokenGrid(1, 7, 7),
}
# What closes the assistant's turn.
END_OF_ANSWER: dict[Family, str] = {"qwen2-vl": "<|im_end|>", "llava-next-video": "</s>"}


def build_processor(family: Family, tokenizer: PreTrainedTokenizerFast) -> Any:
    """The shipped model's, with this tokenizer: of the family's true class, for the tiny tower."""
    processor = AutoProcessor.from_pretrained(CATALOGUE[f"tiny-{family}"].source)
    processor.tokenizer = tokenizer
    return processor


def build_model(
    family: Family, tokenizer: PreTrainedTokenizerFast, text: LlamaForCausalLM, seed: int
) -> Any:
    """A new model in the shipped one's shape, but that its text decoder is ``text``."""
    torch.manual_seed(seed)
    config = AutoConfig.from_pretrained(CATALOGUE[f"tiny-{family}"].source)
    config = _with_layers(config, text.config.num_hidden_layers)
    model = AutoModelForImageTextToText.from_config(config)
    # Biases that Llama does not have.
    _take_over(model.model.language_model, text.model, ("_proj.bias",))
    model.tie_weights()
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(END_OF_ANSWER[family])
    model.generation_config.do_sample = False
    return model


def decoder_of(model: Any) -> LlamaForCausalLM:
    """The text decoder of a model of either family; biases, which Llama has not, are left out."""
    config = decoder_config()
    config.num_hidden_layers = model.config.text_config.num_hidden_layers
    decoder = LlamaForCausalLM(config)
    weights = model.model.language_model.state_dict()
    kept = {name: w for name, w in weights.items() if not name.endswith("_proj.bias")}
    decoder.model.load_state_dict(kept)
    return decoder


def _take_over(model: nn.Module, smaller: nn.Module, zero: tuple[str, ...]) -> None:
    """Copy all weights of a smaller model; of those beyond, what ends in ``zero`` is zero."""
    missing, unexpected = model.load_state_dict(smaller.state_dict(), strict=False)
    if unexpected:
        raise ValueError(f"there is no place for the weights {unexpected}")
    for name in missing:
        if name.endswith(zero):
            nn.init.zeros_(model.get_parameter(name))


def deepen(model: Any, layers: int) -> Any:
    """The same function with ``layers`` in all: those at the end write nothing at first."""
    deeper = type(model)(_with_layers(model.config, layers))
    _take_over(deeper, model, ("o_proj.weight", "down_proj.weight", "_proj.bias"))
    deeper.tie_weights()
    deeper.generation_config = model.generation_config
    return deeper


def _with_layers(config: Any, layers: int) -> Any:
    config = copy.deepcopy(config)
    config.text_config.num_hidden_layers = layers
    if getattr(config.text_config, "layer_types", None):
        config.text_config.layer_types = config.text_config.layer_types[:1] * layers
    return config
