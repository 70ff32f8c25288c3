"""Tiny random checkpoints of every class, saved with a processor as a user would save them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    Gemma3ImageProcessor,
    Gemma3Processor,
    GotOcr2ImageProcessor,
    InternVLProcessor,
    InternVLVideoProcessor,
    LlavaNextImageProcessor,
    LlavaNextVideoProcessor,
    LlavaNextVideoVideoProcessor,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLProcessor,
    Qwen2_5OmniProcessor,
    Qwen2AudioProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    WhisperFeatureExtractor,
)

from sally_anne.models.families import family_of
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.tiny import (
    BOS,
    EOS,
    PAD,
    UNK,
    build_processor,
    build_tokenizer,
)

LAYERS, HEADS, HIDDEN = 3, 4, 32
# Far less than a prompt is long.
WINDOW = 8
FILMS = (
    *("qwen2-vl", "llava-next-video"),
    *("qwen2.5-vl", "llava-onevision", "qwen3-vl", "internvl", "qwen2.5-omni"),
)
WORDS = ("llama", "qwen3", "mistral", "qwen2", "gemma3-text", "gemma3")
HEARS = ("qwen2-audio", "qwen2.5-omni")
NAMES = (*FILMS, *WORDS, "qwen2-audio")
HEAD_DIMS = {"llava-onevision": 8, "qwen2-vl": 8, "qwen2.5-vl": 8, "qwen2": 8}
HEAD_DIMS |= {"qwen2-audio": 8, "qwen2.5-omni": 8}  # 12 for the others

_END = "<|im_end|>"
_SIZE, _PATCH = 56, 14  # pictures of the square towers: 16 patches, of which four are one token
_GRID = [[_SIZE, 2 * _SIZE], [2 * _SIZE, _SIZE]]
_MARKS = {
    "internvl": {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    },
    "qwen2-audio": {"audio_token": "<|AUDIO|>"},
    "qwen2.5-omni": {
        "audio_token": "<|AUDIO|>",
        "audio_bos_token": "<|audio_bos|>",
        "audio_eos_token": "<|audio_eos|>",
        "image_token": "<|IMAGE|>",
        "video_token": "<|VIDEO|>",
        "vision_bos_token": "<|vision_bos|>",
        "vision_eos_token": "<|vision_eos|>",
    },
    "gemma3": {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    },
}
_LIST_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}<video>\n"
    "{% elif part['type'] == 'audio' %}<|AUDIO|>\n"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Its positions are counted from these marks.
_OMNI_CHAT = _LIST_CHAT.replace("<video>\n", "<|vision_bos|><|VIDEO|><|vision_eos|>").replace(
    "<|AUDIO|>\n", "<|audio_bos|><|AUDIO|><|audio_eos|>"
)
# Layouts of text models join and trim strings: a list of parts would not go through.
_STRING_CHAT = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message['role'] + '\n' }}"
    "{{ message['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is not defined or enable_thinking %}think {% endif %}{% endif %}"
)


def save(name: str, folder: Path) -> Path:
    """Write a random model of the family with its processor.

    Args:
        name: one of NAMES.
        folder: where.
    """
    tokenizer = _tokenizer(name)
    model = random_model(name, tokenizer)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(_END)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    _processor(name, tokenizer).save_pretrained(folder)
    return folder


def random_model(name: str, tokenizer: PreTrainedTokenizerFast | None = None) -> Any:
    """A model of the family, one of NAMES, with the same weights each time."""
    torch.manual_seed(0)
    config = _config(name, tokenizer or _tokenizer(name))
    reads_only = name in WORDS and name != "gemma3"
    if name in HEARS:
        model = getattr(transformers, family_of(config.model_type, name).class_name)(config)
    else:
        auto: Any = AutoModelForCausalLM if reads_only else AutoModelForImageTextToText
        model = auto.from_config(config)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            # As they are made, weights are so small that activations hardly differ.
            if "norm" not in parameter_name:
                parameter.normal_(std=0.2)
    return model


# Of each checkpoint of the hub: its image processor's class, settings for films of their own if it
# has any, and what its processor_config.json says besides the class.
_HUB: dict[str, tuple[str, bool, tuple[str, ...]]] = {
    "qwen2-vl": ("Qwen2VLImageProcessor", False, ()),
    "qwen2.5-vl": ("Qwen2VLImageProcessor", False, ()),
    "qwen3-vl": ("Qwen2VLImageProcessorFast", True, ()),
    "llava-next-video": (
        *("LlavaNextImageProcessor", False),
        ("patch_size", "num_additional_image_tokens", "vision_feature_select_strategy"),
    ),
    "llava-onevision": (
        *("LlavaOnevisionImageProcessor", True),
        ("num_image_tokens", "vision_feature_select_strategy"),
    ),
    "internvl": ("GotOcr2ImageProcessorFast", True, ("image_seq_length",)),
    "qwen2.5-omni": ("Qwen2VLImageProcessor", False, ()),
}


def lay_out_as_on_the_hub(name: str, folder: Path) -> None:
    """Turn a folder of :func:`save` into the files that the family's checkpoints have on the hub.

    Those were written by older versions: settings of pictures and films in files of their own, if
    at all, the limits of Qwen's in fields of their own, the chat layout as JSON.
    """
    saved = json.loads((folder / "processor_config.json").read_text())
    (folder / "processor_config.json").unlink()
    image_class, has_films, kept = _HUB[name]
    films = saved.pop("video_processor")
    common = {"processor_class": saved["processor_class"]}
    pictures = saved.pop("image_processor") | common | {"image_processor_type": image_class}
    # Settings of sounds are in one file with those of pictures.
    pictures |= saved.pop("feature_extractor", {})
    if name in ("qwen2-vl", "qwen2.5-vl", "qwen2.5-omni"):
        limits = films["size"]
        del pictures["size"]
        pictures |= {"min_pixels": limits["shortest_edge"], "max_pixels": limits["longest_edge"]}
    files = {"preprocessor_config.json": pictures}
    if has_films:
        files["video_preprocessor_config.json"] = films | common
    if kept:
        files["processor_config.json"] = {key: saved[key] for key in kept} | common
    template = folder / "chat_template.jinja"
    files["chat_template.json"] = {"chat_template": template.read_text()}
    template.unlink()
    for path, content in files.items():
        (folder / path).write_text(json.dumps(content, indent=2))


def _tokenizer(name: str) -> PreTrainedTokenizerFast:
    words = build_tokenizer()
    words.backend_tokenizer.no_padding()
    return PreTrainedTokenizerFast(
        tokenizer_object=words.backend_tokenizer,
        pad_token=PAD,
        unk_token=UNK,
        bos_token=BOS,
        eos_token=EOS,
        extra_special_tokens=_MARKS.get(name, {}),
        chat_template=_STRING_CHAT if name in WORDS and name != "gemma3" else None,
    )


def _config(name: str, tokenizer: PreTrainedTokenizerFast) -> Any:
    def token(word: str) -> Any:
        return tokenizer.convert_tokens_to_ids(word)

    text: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": HIDDEN,
        "intermediate_size": 48,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 2,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": token(_END),
        "max_position_embeddings": 4096,
    }
    if name not in HEAD_DIMS:
        text["head_dim"] = 12
    if name.startswith("gemma3"):
        kinds = ["sliding_attention", "full_attention", "sliding_attention"]
        text |= {"query_pre_attn_scalar": 12, "sliding_window": WINDOW, "layer_types": kinds}
    if name == "mistral":
        text["sliding_window"] = WINDOW
    if name in ("llama", "qwen3", "mistral", "qwen2", "gemma3-text"):
        return AutoConfig.for_model(name.replace("-", "_"), **text, tie_word_embeddings=False)
    tower = {"hidden_size": 32, "intermediate_size": 48, "image_size": _SIZE, "patch_size": _PATCH}
    tower |= {"num_hidden_layers": 2, "num_attention_heads": 4}
    siglip = {**tower, "model_type": "siglip_vision_model", "vision_use_head": False}
    if name == "gemma3":
        return AutoConfig.for_model(
            "gemma3",
            text_config=text,
            vision_config=siglip,
            mm_tokens_per_image=4,
            boi_token_index=token("<start_of_image>"),
            eoi_token_index=token("<end_of_image>"),
            image_token_index=token("<image_soft_token>"),
        )
    if name == "llava-next-video":
        return AutoConfig.for_model(
            "llava_next_video",
            text_config={**text, "model_type": "llama"},
            vision_config={**tower, "model_type": "clip_vision_model"},
            image_token_index=token("<image>"),
            video_token_index=token("<video>"),
            image_grid_pinpoints=_GRID,
        )
    if name == "llava-onevision":
        return AutoConfig.for_model(
            "llava_onevision",
            text_config={**text, "model_type": "qwen2"},
            vision_config=siglip,
            image_token_index=token("<image>"),
            video_token_index=token("<video>"),
        )
    if name == "internvl":
        return AutoConfig.for_model(
            "internvl",
            text_config={**text, "model_type": "qwen3"},
            vision_config=tower,
            image_token_id=token("<IMG_CONTEXT>"),
            image_seq_length=4,
        )
    hearing = {"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2}
    hearing |= {"encoder_ffn_dim": 16, "num_mel_bins": 8}
    if name == "qwen2-audio":
        return AutoConfig.for_model(
            "qwen2_audio",
            text_config={**text, "model_type": "qwen2"},
            audio_config={**hearing, "model_type": "qwen2_audio_encoder"},
            audio_token_index=token("<|AUDIO|>"),
        )
    if name == "qwen2.5-omni":
        rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 2]}
        eyes = {"depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2}
        return AutoConfig.for_model(
            "qwen2_5_omni_thinker",
            text_config={**text, "rope_parameters": rope},
            audio_config={**hearing, "output_dim": HIDDEN},
            vision_config={**eyes, "out_hidden_size": HIDDEN, "fullatt_block_indexes": [0]},
            audio_token_index=token("<|AUDIO|>"),
            image_token_index=token("<|IMAGE|>"),
            video_token_index=token("<|VIDEO|>"),
            audio_start_token_id=token("<|audio_bos|>"),
            audio_end_token_id=token("<|audio_eos|>"),
            vision_start_token_id=token("<|vision_bos|>"),
            vision_end_token_id=token("<|vision_eos|>"),
        )
    sections = [2, 2, 2] if name == "qwen3-vl" else [1, 1, 2]
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": sections}
    vision: dict[str, Any] = {"depth": 2, "hidden_size": 16, "intermediate_size": 24}
    vision |= {"num_heads": 4, "spatial_merge_size": 2, "out_hidden_size": HIDDEN}
    if name == "qwen2-vl":
        vision = {"depth": 2, "embed_dim": 16, "hidden_size": HIDDEN, "num_heads": 4}
        vision |= {"mlp_ratio": 2, "patch_size": 14, "spatial_merge_size": 2}
    elif name == "qwen2.5-vl":
        vision |= {"patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1]}
        vision |= {"tokens_per_second": 2}
    else:
        vision |= {"patch_size": 16, "num_position_embeddings": 64}
        vision |= {"deepstack_visual_indexes": [0, 1]}
        rope["mrope_interleaved"] = True
    return AutoConfig.for_model(
        name.replace("-", "_").replace(".", "_"),
        text_config={**text, "rope_parameters": rope},
        vision_config=vision,
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
    )


def _processor(name: str, tokenizer: PreTrainedTokenizerFast) -> Any:
    square = {"height": _SIZE, "width": _SIZE}
    if name in ("qwen2-vl", "qwen2.5-vl", "qwen3-vl"):
        chat = build_processor("qwen2-vl", build_tokenizer()).chat_template
        # At most so many pixels a film.
        limits = {"shortest_edge": 56 * 56, "longest_edge": 8 * 84 * 84}
        options: dict[str, Any] = {"size": limits, "cap_pixels_per_frame": False}
        if name != "qwen3-vl":
            kind: Any = Qwen2VLProcessor if name == "qwen2-vl" else Qwen2_5_VLProcessor
            return kind(
                image_processor=Qwen2VLImageProcessor(),
                video_processor=Qwen2VLVideoProcessor(**options),
                tokenizer=tokenizer,
                chat_template=chat,
            )
        return Qwen3VLProcessor(
            image_processor=Qwen2VLImageProcessor(patch_size=16),
            video_processor=Qwen3VLVideoProcessor(**options),
            tokenizer=tokenizer,
            chat_template=chat,
        )
    if name == "llava-next-video":
        # Scaled by their shorter edge and cut to the middle, as all of its checkpoints are.
        eyes: dict[str, Any] = {"size": {"shortest_edge": _SIZE}, "crop_size": square}
        return LlavaNextVideoProcessor(
            image_processor=LlavaNextImageProcessor(image_grid_pinpoints=_GRID, **eyes),
            video_processor=LlavaNextVideoVideoProcessor(**eyes),
            tokenizer=tokenizer,
            chat_template=_LIST_CHAT,
            patch_size=_PATCH,
            vision_feature_select_strategy="default",
            num_additional_image_tokens=1,
        )
    if name == "llava-onevision":
        return LlavaOnevisionProcessor(
            image_processor=LlavaOnevisionImageProcessor(size=square),
            video_processor=LlavaOnevisionVideoProcessor(size=square),
            tokenizer=tokenizer,
            chat_template=_LIST_CHAT,
            num_image_tokens=16,
            vision_feature_select_strategy="full",
        )
    if name == "internvl":
        return InternVLProcessor(
            image_processor=GotOcr2ImageProcessor(size=square),
            video_processor=InternVLVideoProcessor(size=square),
            tokenizer=tokenizer,
            image_seq_length=4,
            chat_template=_LIST_CHAT,
        )
    if name == "qwen2-audio":
        ear = WhisperFeatureExtractor(feature_size=8)
        return Qwen2AudioProcessor(ear, tokenizer, chat_template=_LIST_CHAT)
    if name == "qwen2.5-omni":
        return Qwen2_5OmniProcessor(
            Qwen2VLImageProcessor(),
            # As its checkpoints say, and the processor does not heed.
            Qwen2VLVideoProcessor(
                size={"shortest_edge": 56 * 56, "longest_edge": 16384 * 28 * 28},
                cap_pixels_per_frame=False,
            ),
            WhisperFeatureExtractor(feature_size=8),
            tokenizer,
            chat_template=_OMNI_CHAT,
        )
    if name == "gemma3":
        return Gemma3Processor(
            image_processor=Gemma3ImageProcessor(size=square),
            tokenizer=tokenizer,
            chat_template=_LIST_CHAT,
            image_seq_length=4,
        )
    return tokenizer


def opener(folders: pytest.TempPathFactory) -> Callable[[str], LoadedModel]:
    """`opened(name)`: a checkpoint of the family, saved and opened once: do not change it."""
    kept: dict[str, LoadedModel] = {}

    def get(name: str) -> LoadedModel:
        if name not in kept:
            kept[name] = load_model(str(save(name, folders.mktemp(name))))
        return kept[name]

    return get
