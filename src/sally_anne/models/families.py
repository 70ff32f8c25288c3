"""Which class of transformers a model is, by its config's type, and what it takes.

The table has types that transformers does not list among those of pictures and text, and the names
by which known ones are called. Any other opens by what transformers says of it; how frames are
given to it says its processor (:func:`sally_anne.models.processor.showing_of`).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sally_anne.core.errors import ModelError


@dataclass(frozen=True)
class Family:
    """One family of models: its name here, its ``model_type``, and its class in transformers.

    Attributes:
        reads_only: whether it takes nothing but text, with a tokenizer for its processor.
        hears: whether it takes sounds.
        part: of a class that does not run without pictures, the part that reads text.
    """

    name: str
    model_type: str
    class_name: str
    reads_only: bool = False
    hears: bool = False
    part: str = ""


class Showing(NamedTuple):
    """How a model is given frames.

    Attributes:
        kind: ``video`` if all frames of a clip are one, ``image`` if each is a picture, or empty if
            it is shown none, and ``why``.
        mark: the processor's placeholder, once in a prompt.
        between: what the chat template writes between the placeholders of two pictures.
    """

    kind: str = ""
    mark: str = ""
    between: str = ""
    why: str = ""


class OpenModel(Protocol):
    """What prompts, videos and decoding need of :class:`sally_anne.models.loading.LoadedModel`."""

    name: str
    family: Family
    showing: Showing
    config: Any
    processor: Any
    dtype: str
    prompt: str
    date: datetime.date
    changes: dict[str, str]
    video_sizes: dict[tuple[int, ...], tuple[int, int]]
    limits: dict[str, str]

    @property
    def model(self) -> Any: ...

    @property
    def marks(self) -> re.Pattern[str]: ...


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

_PARTS = {"blip": "text_decoder", "kosmos-2": "text_model"} | dict.fromkeys(
    ("blip-2", "instructblip", "instructblipvideo", "llama4"), "language_model"
)


def family_of(model_type: str, model_name: str, architectures: Sequence[str] = ()) -> Family:
    """The family of a config's ``model_type``; ModelError if transformers knows none.

    Of two classes the one is taken that the config names, or that with pictures.
    """
    for family in FAMILIES:
        if family.model_type == model_type:
            return family
    # Late, so that options are read without it.
    from transformers.models.auto import modeling_auto

    name = model_type.replace("_", "-")
    with_pictures: dict[str, str] = dict(modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    text_alone: dict[str, str] = dict(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    made = [
        Family(
            name, model_type, classes[model_type], classes is text_alone or bool(part), part=part
        )
        for classes, part in ((with_pictures, _PARTS.get(model_type, "")), (text_alone, ""))
        if model_type in classes
    ]
    if not made:
        raise ModelError(
            f"model {model_name!r} is of type {model_type!r}, which transformers opens neither as "
            "a causal language model nor as one of pictures and text"
        )
    return next((family for family in made if family.class_name in architectures), made[0])


def check_senses(loaded: OpenModel, videos: bool = False, sounds: bool = False) -> None:
    """Refuse a model that cannot watch or hear, if it is to."""
    name = f"model {loaded.name!r} ({loaded.family.class_name})"
    if videos and not loaded.showing.kind:
        raise ModelError(
            f"{name} takes no videos: run it with --setting text, or take one that sees, such as "
            f"{FAMILIES[0].name} ({loaded.showing.why})"
        )
    if sounds and not loaded.family.hears:
        others = ", ".join(one.name for one in FAMILIES if one.hears)
        raise ModelError(f"{name} takes no sounds: take one of {others}")
