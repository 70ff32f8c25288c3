"""Which class of transformers a model is, by its config's type, and what it takes.

The table has types that transformers does not list, and names; any other opens by what it says.
How frames are given says the processor (:func:`sally_anne.models.processor.showing_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sally_anne.core.errors import ModelError

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel


@dataclass(frozen=True)
class Family:
    """Models of one ``model_type``; those that read only have a tokenizer for their processor.

    ``part`` is what reads text of a class that does not run without pictures.
    """

    name: str
    model_type: str
    class_name: str
    reads_only: bool = False
    hears: bool = False
    part: str = ""


class Showing(NamedTuple):
    """Frames are one ``video``, an ``image`` each, or nothing, and ``why``; their marks."""

    kind: str = ""
    mark: str = ""
    between: str = ""
    why: str = ""


FAMILIES: tuple[Family, ...] = (
    Family("qwen2-vl", "qwen2_vl", "Qwen2VLForConditionalGeneration"),
    Family("qwen2.5-vl", "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"),
    Family("qwen3-vl", "qwen3_vl", "Qwen3VLForConditionalGeneration"),
    Family("llava-next-video", "llava_next_video", "LlavaNextVideoForConditionalGeneration"),
    Family("llava-onevision", "llava_onevision", "LlavaOnevisionForConditionalGeneration"),
    Family("internvl", "internvl", "InternVLForConditionalGeneration"),
    Family("qwen2-audio", "qwen2_audio", "Qwen2AudioForConditionalGeneration", hears=True),
    # The part of Qwen2.5-Omni that reads and writes text.
    Family(
        "qwen2.5-omni",
        "qwen2_5_omni_thinker",
        "Qwen2_5OmniThinkerForConditionalGeneration",
        hears=True,
    ),
)

_PARTS = {"blip": "text_decoder", "kosmos-2": "text_model", "llama4": "language_model"}
_PARTS |= dict.fromkeys(("blip-2", "instructblip", "instructblipvideo"), "language_model")


def family_of(model_type: str, model_name: str, architectures: Sequence[str] = ()) -> Family:
    """The family of a config's ``model_type``; ModelError if transformers knows none.

    Of two classes the one is taken that the config names, or that with pictures.
    """
    for family in FAMILIES:
        if family.model_type == model_type:
            return family
    # Late, so that options are read without it.
    from transformers.models.auto import modeling_auto as auto

    name, made = model_type.replace("_", "-"), []
    known = auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    for parts, classes in zip((_PARTS, {}), map(dict, known), strict=True):
        if model_type in classes:
            part = parts.get(model_type, "")
            reads_only = bool(part) or not parts
            made.append(Family(name, model_type, classes[model_type], reads_only, part=part))
    if not made:
        why = "which transformers opens neither as a causal language model nor as one of pictures"
        raise ModelError(f"model {model_name!r} is of type {model_type!r}, {why}")
    return next((family for family in made if family.class_name in architectures), made[0])


def check_senses(loaded: LoadedModel, videos: bool = False, sounds: bool = False) -> None:
    """Refuse a model that cannot watch or hear, if it is to."""
    name = f"model {loaded.name!r} ({loaded.family.class_name})"
    if videos and not loaded.showing.kind:
        why = f"run it with --setting text, or take {FAMILIES[0].name} ({loaded.showing.why})"
        raise ModelError(f"{name} takes no videos: {why}")
    if sounds and not loaded.family.hears:
        others = ", ".join(one.name for one in FAMILIES if one.hears)
        raise ModelError(f"{name} takes no sounds: take one of {others}")
