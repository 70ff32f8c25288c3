"""Vocabulary, decoder, architectures, processors and chat layouts of the two tiny models."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any, Literal

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from torch import nn
from transformers import (
    AutoProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaNextVideoConfig,
    LlavaNextVideoForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)

from sally_anne.benchmarks.gridtom.narration import (
    Cast,
    caption,
    environment,
    first_order,
    initial_questions,
    second_order,
)
from sally_anne.benchmarks.gridtom.render import HEIGHT, WIDTH
from sally_anne.benchmarks.gridtom.world import COLOURS
from sally_anne.models.options import CATALOGUE

SIZE = 320
PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<s>", "</s>"
QWEN_SPECIALS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
LLAVA_SPECIALS = ("<image>", "<video>")
SPECIALS = (PAD, UNK, BOS, EOS, *QWEN_SPECIALS, *LLAVA_SPECIALS)

# Words of the training documents beside the stories, of the chat layouts, and of the official
# release's captions and questions (known to the tokenizer, though not trained).
_MORE_WORDS = """
user assistant system : ; ! ? . , - ( ) [ ] { } " ' / 0 1 2 3 4 5 6 7 8 9 belief really right
wrong role last second middle is goes stays question answer choose one or was sees hears then so
it can now here there they he she his her true false yes no a b c d e none not know which what
where who how many much initially stands walks towards enters behind itself throughout time over
does do did close open opened closed shut therefore everything cannot anything happening very
color should be thinks inside outside unable able to video story proceeds follows as just from
following colors room grid 2d viewed consisting represents wall cannot penetrated borders
represent corridor floor own triangles representing agents while same at however that exact
moment because of this timing actually leaving before after will has have had been with without
frame picture shows show please only and the an in on for by if then else more most likely least
"""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Tokenizer whose words are those of the stories and of the training documents."""
    cast = Cast(*COLOURS[:5])
    texts = [*COLOURS, environment(COLOURS[:3])]
    texts += [
        caption(cast, first, second, perspective)
        for perspective in ("omniscient", "protagonist", "participant")
        for first in ("TB", "FB")
        for second in (None, "TB", "FB")
    ]
    texts += [q.question for q in initial_questions(cast, COLOURS[:3], (0, 1, 2, 3))]
    for belief in (first_order(cast, cast.last_room), second_order(cast, cast.last_room)):
        texts += [belief.question, belief.statement_true, belief.statement_false]
    # Words and punctuation marks, as the tokenizer cuts them, in order of sight.
    seen = re.findall(r"\w+|[^\w\s]+", " ".join([*texts, _MORE_WORDS]).lower())
    words = list(dict.fromkeys([*SPECIALS, *seen]))
    if len(words) > SIZE:
        raise ValueError(f"{len(words)} words do not fit in a vocabulary of {SIZE}")
    words += [f"<reserved_{i}>" for i in range(SIZE - len(words))]
    core = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token=UNK))
    core.normalizer = Lowercase()
    core.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNK,
        bos_token=BOS,
        eos_token=EOS,
        additional_special_tokens=[*QWEN_SPECIALS, *LLAVA_SPECIALS],
        padding_side="left",
        model_max_length=2048,
    )


LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, MLP = 6, 8, 4, 16, 128, 384
ROPE_THETA = 10_000.0


def decoder_config() -> LlamaConfig:
    """The text decoder's shape: 6 layers x 8 heads x 16."""
    return LlamaConfig(
        vocab_size=SIZE,
        hidden_size=HIDDEN,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        bos_token_id=2,
        eos_token_id=3,
        pad_token_id=0,
        use_cache=False,
    )


Family = Literal["qwen2-vl", "llava-next-video"]
FAMILIES: tuple[Family, ...] = ("qwen2-vl", "llava-next-video")

PATCH = 14
# Qwen2-VL: 3 x 3 patches of 14 pixels are one token, which is exactly one cell of 42 pixels.
QWEN_MERGE = 3
# LLaVA-NeXT-Video's tower is square: 14 x 14 patches, pooled to 7 x 7 tokens a frame.
LLAVA_SIZE = 196
_PINPOINTS = [[LLAVA_SIZE, LLAVA_SIZE * 2], [LLAVA_SIZE * 2, LLAVA_SIZE]]
_VISION_WIDTH, _VISION_HEADS = 64, 4


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
    """The shipped model's, with this tokenizer: of the family's true class, for the tiny tower.

    Its chat layout is that of the full-size model without the default system message.
    """
    processor = AutoProcessor.from_pretrained(CATALOGUE[f"tiny-{family}"].source)
    processor.tokenizer = tokenizer
    return processor


# What a text decoder of Qwen2-VL takes over from that of Llama's shape.
_SHARED = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "rms_norm_eps", "max_position_embeddings"),
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
            text_config={name: getattr(shape, name) for name in _SHARED}
            | {
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": ROPE_THETA,
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
            image_grid_pinpoints=_PINPOINTS,
            tie_word_embeddings=True,
        )
        model = LlavaNextVideoForConditionalGeneration(llava)
    # Biases that Llama does not have.
    _take_over(model.model.language_model, text.model, ("_proj.bias",))
    model.tie_weights()
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = token(END_OF_ANSWER[family])
    model.generation_config.do_sample = False
    return model


def _take_over(model: nn.Module, smaller: nn.Module, zero: tuple[str, ...]) -> None:
    """Copy all weights of a smaller model; of those beyond, what ends in ``zero`` is zero."""
    missing, unexpected = model.load_state_dict(smaller.state_dict(), strict=False)
    if unexpected:
        raise ValueError(f"there is no place for the weights {unexpected}")
    for name in missing:
        if name.endswith(zero):
            nn.init.zeros_(model.get_parameter(name))


def deepen(model: Any, layers: int) -> Any:
    """The same function with decoder layers added at the end, ``layers`` in all.

    A new layer writes nothing at first, as its last projections are zero. They give later training
    layers that come after what the model has already found out.
    """
    config = copy.deepcopy(model.config)
    config.text_config.num_hidden_layers = layers
    if getattr(config.text_config, "layer_types", None):
        config.text_config.layer_types = config.text_config.layer_types[:1] * layers
    deeper = type(model)(config)
    _take_over(deeper, model, ("o_proj.weight", "down_proj.weight", "_proj.bias"))
    deeper.tie_weights()
    deeper.generation_config = model.generation_config
    return deeper
