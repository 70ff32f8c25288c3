"""What differs between model families: their class, and what they make of a video.

Any other type opens by what transformers says of it, with pictures and text or as text alone.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sally_anne.core.errors import ModelError


@dataclass(frozen=True)
class Family:
    """One family of models: its name here, its ``model_type``, and its class in transformers.

    Attributes:
        frames_seen: from the processor's tensors and settings, how many frames each clip kept
            (after padding to whole temporal patches); None if the class takes no videos.
        reads_only: whether it takes nothing but text, with a tokenizer for its processor.
        frame_rate: if the model is given each frame's time: how many a second its makers' own code
            takes from a video, else None.
        video_mark: how the chat template writes the place of a video, if the processor puts marks
            of its own around each step of it and leaves the template's around the whole.
        frame_limit: from the number of frames and the most pixels that each may have, the limit
            that the video processor calls its longest edge; None if it scales all frames to one
            size.
        hears: whether it takes sounds.
    """

    name: str
    model_type: str
    class_name: str
    frames_seen: Callable[[Mapping[str, Any], Any], list[int]] | None = None
    reads_only: bool = False
    frame_rate: float | None = None
    video_mark: str | None = None
    frame_limit: Callable[[int, int], int] | None = None
    hears: bool = False


class OpenModel(Protocol):
    """What prompts, videos and decoding need of :class:`sally_anne.models.loading.LoadedModel`."""

    name: str
    family: Family
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


def _qwen_seen(inputs: Mapping[str, Any], processor: Any) -> list[int]:
    patch = processor.video_processor.temporal_patch_size
    return [int(t) * patch for t in inputs["video_grid_thw"][:, 0]]


def _llava_seen(inputs: Mapping[str, Any], processor: Any) -> list[int]:
    clips, frames = inputs["pixel_values_videos"].shape[:2]
    return [int(frames)] * int(clips)


def _internvl_seen(inputs: Mapping[str, Any], processor: Any) -> list[int]:
    # A frame is a picture between two marks.
    return [int(n) for n in (inputs["input_ids"] == processor.start_image_token_id).sum(1)]


# The first two limit the pixels of a frame, the third those of all frames together.
_QWEN: dict[str, Any] = {"frames_seen": _qwen_seen, "frame_limit": lambda frames, pixels: pixels}
_QWEN3 = _QWEN | {
    "video_mark": "<|vision_start|><|video_pad|><|vision_end|>",
    "frame_limit": lambda frames, pixels: frames * pixels,
}

FAMILIES: tuple[Family, ...] = (
    Family("qwen2-vl", "qwen2_vl", "Qwen2VLForConditionalGeneration", **_QWEN),
    Family(
        "qwen2.5-vl", "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", frame_rate=2.0, **_QWEN
    ),
    Family("qwen3-vl", "qwen3_vl", "Qwen3VLForConditionalGeneration", frame_rate=2.0, **_QWEN3),
    Family(
        "llava-next-video",
        "llava_next_video",
        "LlavaNextVideoForConditionalGeneration",
        _llava_seen,
    ),
    Family(
        "llava-onevision", "llava_onevision", "LlavaOnevisionForConditionalGeneration", _llava_seen
    ),
    Family("internvl", "internvl", "InternVLForConditionalGeneration", _internvl_seen),
    Family("qwen2-audio", "qwen2_audio", "Qwen2AudioForConditionalGeneration", hears=True),
    # The part of Qwen2.5-Omni that reads and writes text.
    Family(
        "qwen2.5-omni",
        "qwen2_5_omni_thinker",
        "Qwen2_5OmniThinkerForConditionalGeneration",
        frame_rate=2.0,
        hears=True,
        **_QWEN,
    ),
)


def family_of(model_type: str, model_name: str, architectures: Sequence[str] = ()) -> Family:
    """The family of a config's ``model_type``; ModelError if transformers knows none.

    A type that is not in the table takes text, and pictures one by one if its class does, but no
    videos. Of two classes the one is taken that the config names, or that with pictures.
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
        Family(name, model_type, classes[model_type], reads_only=classes is text_alone)
        for classes in (with_pictures, text_alone)
        if model_type in classes
    ]
    if not made:
        raise ModelError(
            f"model {model_name!r} is of type {model_type!r}, which transformers opens neither as "
            "a causal language model nor as one of pictures and text"
        )
    return next((family for family in made if family.class_name in architectures), made[0])


def check_senses(
    family: Family | None, name: str, videos: bool = False, sounds: bool = False
) -> None:
    """Refuse a model that cannot watch, hear, or do both, if it is to."""

    def able(one: Family | None) -> bool:
        return bool(one and (one.frames_seen or not videos) and (one.hears or not sounds))

    if able(family) or not (videos or sounds):
        return
    others = ", ".join(one.name for one in FAMILIES if able(one))
    kind = f" ({family.class_name})" if family else ""
    what = " and ".join(["videos"] * videos + ["sounds"] * sounds)
    takes = f"does not take both {what}:" if videos and sounds else f"takes no {what}:"
    instead = " run it with --setting text, or" if videos and not sounds else ""
    raise ModelError(
        f"model {name!r}{kind} {takes}{instead} take a model of one of the families {others}"
    )


def check_frames(
    family: Family, inputs: Mapping[str, Any], processor: Any, lengths: list[int]
) -> None:
    """Refuse a processor that dropped or resampled frames of clips of these ``lengths``."""
    # Clips are padded to whole temporal patches.
    patch = getattr(processor.video_processor, "temporal_patch_size", 1)
    expected = [math.ceil(frames / patch) * patch for frames in lengths]
    kept = family.frames_seen(inputs, processor) if family.frames_seen else []
    for clip, (want, got) in enumerate(zip(expected, kept, strict=True)):
        if want != got:
            raise ModelError(
                f"the processor of {family.name} kept {got} frames of clip {clip}, {want} were "
                "expected: its settings resample frames; use the processor's own files with "
                "do_sample_frames off"
            )
