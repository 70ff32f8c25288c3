"""What differs between model families: their class, and how many frames their tensors hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from models.errors import ModelError, UnsupportedModelError


@dataclass(frozen=True)
class Family:
    """One family of vision-language models.

    Attributes:
        name: as in the catalogue.
        model_type: ``model_type`` in the config.
        class_name: transformers class.
        frames_seen: from the processor's tensors and settings, how many frames each clip kept
            (after padding to whole temporal patches).
        frames_wanted: from a clip's length and the processor, how many that should be.
    """

    name: str
    model_type: str
    class_name: str
    frames_seen: Callable[[Mapping[str, Any], Any], list[int]]
    frames_wanted: Callable[[int, Any], int]


def _qwen_seen(inputs: Mapping[str, Any], processor: Any) -> list[int]:
    patch = processor.video_processor.temporal_patch_size
    return [int(t) * patch for t in inputs["video_grid_thw"][:, 0]]


def _qwen_wanted(frames: int, processor: Any) -> int:
    patch = processor.video_processor.temporal_patch_size
    return -(-frames // patch) * patch


def _llava_seen(inputs: Mapping[str, Any], processor: Any) -> list[int]:
    clips, frames = inputs["pixel_values_videos"].shape[:2]
    return [int(frames)] * int(clips)


FAMILIES: tuple[Family, ...] = (
    Family("qwen2-vl", "qwen2_vl", "Qwen2VLForConditionalGeneration", _qwen_seen, _qwen_wanted),
    Family(
        "llava-next-video",
        "llava_next_video",
        "LlavaNextVideoForConditionalGeneration",
        _llava_seen,
        lambda frames, processor: frames,
    ),
)


def family_of(model_type: str, model_name: str) -> Family:
    """The family of a config's ``model_type``.

    Raises:
        UnsupportedModelError: names the model, its type and the supported classes.
    """
    for family in FAMILIES:
        if family.model_type == model_type:
            return family
    supported = ", ".join(f.class_name for f in FAMILIES)
    raise UnsupportedModelError(
        f"model {model_name!r} is of type {model_type!r}; supported classes: {supported}"
    )


def check_frames(
    family: Family, inputs: Mapping[str, Any], processor: Any, lengths: list[int]
) -> None:
    """Refuse a processor that dropped or resampled frames.

    Args:
        family: whose tensors ``inputs`` are.
        inputs: the processor's output.
        processor: the processor.
        lengths: number of frames given, a clip.

    Raises:
        ModelError: names the clip, the frames given and the frames kept.
    """
    wanted = [family.frames_wanted(n, processor) for n in lengths]
    seen = family.frames_seen(inputs, processor)
    for clip, (want, got) in enumerate(zip(wanted, seen, strict=True)):
        if want != got:
            raise ModelError(
                f"the processor of {family.name} kept {got} frames of clip {clip}, {want} were "
                "expected: its settings resample frames; use the processor's own files with "
                "do_sample_frames off"
            )
