"""Tiny random checkpoints of every class, saved with a processor as a user would save them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, PreTrainedTokenizerFast

from sally_anne.models.families import family_of
from sally_anne.models.tiny import BOS, EOS, PAD, UNK, build_processor, build_tokenizer

LAYERS, HEADS, HIDDEN = 3, 4, 32
# Far less than a prompt is long.
WINDOW = 8
FILMS = (
    *("qwen2-vl", "llava-next-video"),
    *("qwen2.5-vl", "llava-onevision", "qwen3-vl", "internvl", "qwen2.5-omni"),
)
WORDS = ("llama", "qwen3", "mistral", "qwen2", "gemma3-text")
HEARS = ("qwen2-audio", "qwen2.5-omni")
# Types that no table names, with the settings of small models and of their processors. A token of
# `tokens` is what the config calls that of pictures or videos.
TYPES: dict[str, Any] = json.loads(Path(__file__).with_name("types.json").read_text())
SHOWN = (*FILMS, "gemma3", *TYPES)
# With layers that keep a state; with heads in all layers but one.
MIXED = ("qwen3-5", "lfm2-vl")
FEWER = (*MIXED, "gemma4")
NAMES = (*FILMS, *WORDS, "qwen2-audio")
HEAD_DIMS = {"llava-onevision": 8, "qwen2-vl": 8, "qwen2.5-vl": 8, "qwen2": 8}
HEAD_DIMS |= {"qwen2-audio": 8, "qwen2.5-omni": 8, "glm4v": 8, "video-llama-3": 8}  # or 12

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
    "{% elif part['type'] == 'image' %}<image>\n"
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
    """Write a random model of the family, one of NAMES, with its processor."""
    tokenizer = _tokenizer(name)
    processor = _processor(name, tokenizer)
    model = random_model(name, tokenizer)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(_END)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def random_model(name: str, tokenizer: PreTrainedTokenizerFast | None = None) -> Any:
    """A model of the family, one of NAMES, with the same weights each time."""
    torch.manual_seed(0)
    config = _config(name, tokenizer or _tokenizer(name))
    if name in HEARS:
        model = getattr(transformers, family_of(config.model_type, name).class_name)(config)
    else:
        auto = "AutoModelForCausalLM" if name in WORDS else "AutoModelForImageTextToText"
        model = getattr(transformers, auto).from_config(config)
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
        extra_special_tokens=_MARKS.get(name, TYPES.get(name, {}).get("marks", {})),
        chat_template=_STRING_CHAT if name in WORDS else None,
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

    if name in TYPES:
        own = TYPES[name]
        parts = {"text_config": text | own["text_config"], "vision_config": own["vision_config"]}
        config = AutoConfig.for_model(name.replace("-", "_"), **parts, **own.get("more", {}))
        for kind, word in zip(("image", "video"), own["tokens"], strict=False):
            setattr(config, f"{kind}_token_id", token(word))
        return config

    def made(kind: str, tokens: dict[str, str], **parts: Any) -> Any:
        tokens = {f"{name}_{known}": token(word) for name, word in tokens.items()}
        return AutoConfig.for_model(kind, **tokens, **parts)

    known = "token_id" if name == "internvl" else "token_index"
    pictures = {"image": "<image>", "video": "<video>"}
    if name == "gemma3":
        marks = {part: _MARKS[name][f"{part}_token"] for part in ("boi", "eoi", "image")}
        return made(name, marks, text_config=text, vision_config=siglip, mm_tokens_per_image=4)
    if name == "llava-next-video":
        decoder, eyes = (
            {**text, "model_type": "llama"},
            {**tower, "model_type": "clip_vision_model"},
        )
        parts = {"text_config": decoder, "vision_config": eyes, "image_grid_pinpoints": _GRID}
        return made("llava_next_video", pictures, **parts)
    if name == "llava-onevision":
        decoder = {**text, "model_type": "qwen2"}
        return made("llava_onevision", pictures, text_config=decoder, vision_config=siglip)
    if name == "internvl":
        parts = {"text_config": {**text, "model_type": "qwen3"}, "vision_config": tower}
        return made(name, {"image": "<IMG_CONTEXT>"}, image_seq_length=4, **parts)
    hearing = {"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2}
    hearing |= {"encoder_ffn_dim": 16, "num_mel_bins": 8}
    if name == "qwen2-audio":
        ears = {**hearing, "model_type": "qwen2_audio_encoder"}
        parts = {"text_config": {**text, "model_type": "qwen2"}, "audio_config": ears}
        return made("qwen2_audio", {"audio": "<|AUDIO|>"}, **parts)
    if name == "qwen2.5-omni":
        rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 2]}
        eyes = {"depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2}
        marks = {part: f"<|{part.upper()}|>" for part in ("audio", "image", "video")}
        return made(
            "qwen2_5_omni_thinker",
            marks,
            text_config={**text, "rope_parameters": rope},
            audio_config={**hearing, "output_dim": HIDDEN},
            vision_config={**eyes, "out_hidden_size": HIDDEN, "fullatt_block_indexes": [0]},
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
    if name == "qwen2-audio":
        ear = transformers.WhisperFeatureExtractor(feature_size=8)
        return transformers.Qwen2AudioProcessor(ear, tokenizer, chat_template=_LIST_CHAT)
    # At most so many pixels a film.
    limits = {"shortest_edge": 56 * 56, "longest_edge": 8 * 84 * 84}
    pixels: dict[str, Any] = {"size": limits, "cap_pixels_per_frame": False}
    # As its checkpoints say, and the processor does not heed.
    more = pixels | {"size": limits | {"longest_edge": 16384 * 28 * 28}}
    square: dict[str, Any] = {"size": {"height": _SIZE, "width": _SIZE}}
    # Scaled by their shorter edge and cut to the middle, as all of its checkpoints are.
    cut = {"size": {"shortest_edge": _SIZE}, "crop_size": square["size"]}
    qwen2 = ("Qwen2VLImageProcessor", {})
    # The class, its eyes for pictures and for films, and what else it takes.
    known: dict[str, tuple[Any, ...]] = {
        "qwen2-vl": ("Qwen2VL", qwen2, ("Qwen2VLVideoProcessor", pixels), {}),
        "qwen2.5-vl": ("Qwen2_5_VL", qwen2, ("Qwen2VLVideoProcessor", pixels), {}),
        "qwen2.5-omni": ("Qwen2_5Omni", qwen2, ("Qwen2VLVideoProcessor", more), {}),
        "qwen3-vl": (
            *("Qwen3VL", ("Qwen2VLImageProcessor", {"patch_size": 16})),
            *(("Qwen3VLVideoProcessor", pixels), {}),
        ),
        "llava-next-video": (
            *("LlavaNextVideo", ("LlavaNextImageProcessor", cut | {"image_grid_pinpoints": _GRID})),
            ("LlavaNextVideoVideoProcessor", cut),
            {"patch_size": _PATCH, "num_additional_image_tokens": 1}
            | {"vision_feature_select_strategy": "default"},
        ),
        "llava-onevision": (
            *("LlavaOnevision", ("LlavaOnevisionImageProcessor", square)),
            ("LlavaOnevisionVideoProcessor", square),
            {"num_image_tokens": 16, "vision_feature_select_strategy": "full"},
        ),
        "internvl": (
            *("InternVL", ("GotOcr2ImageProcessor", square), ("InternVLVideoProcessor", square)),
            {"image_seq_length": 4},
        ),
        "gemma3": ("Gemma3", ("Gemma3ImageProcessor", square), None, {"image_seq_length": 4}),
    }
    if own := TYPES.get(name):
        eyes = own["image"], own.get("video")
        known[name] = (own["class"], *eyes, {**own.get("options", {})})
    if name not in known:
        return tokenizer
    kind, *eyes, options = known[name]
    for part, eye in zip(("image_processor", "video_processor"), eyes, strict=True):
        if eye is not None:
            options[part] = getattr(transformers, eye[0])(**eye[1])
    chat = _LIST_CHAT
    if name == "qwen2.5-omni":
        chat = _OMNI_CHAT
        options["feature_extractor"] = transformers.WhisperFeatureExtractor(feature_size=8)
    elif name.startswith("qwen"):
        chat = build_processor("qwen2-vl", build_tokenizer()).chat_template
    if name == "gemma4":
        options["feature_extractor"] = transformers.Gemma4AudioFeatureExtractor()
    options |= {"tokenizer": tokenizer, "chat_template": chat}
    made = getattr(transformers, f"{kind}Processor")(**options)
    if name == "gemma3" or (name in TYPES and chat == _LIST_CHAT):
        for part in ("image", "video"):
            chat = chat.replace(f"<{part}>", getattr(made, f"{part}_token", ""))
        if name == "glm4v":
            chat = chat.replace("<video>", "<|begin_of_video|><video><|end_of_video|>")
        made.chat_template = chat
    return made
