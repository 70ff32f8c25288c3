"""How a model is opened: the options that all commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sally_anne.core.errors import ModelError
from sally_anne.models.catalogue import DEFAULT_MODEL

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Attention = Literal["eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]
Quantization = Literal["none", "8bit", "4bit"]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and how it is opened.

    Attributes:
        model: catalogue name, hub id or folder.
        dtype: of the weights: auto, float32, bfloat16 or float16.
        device: where the whole model is put: cpu, cuda, cuda:1 or mps; the first GPU by default,
            or the CPU.
        device_map: as in accelerate, e.g. auto, which spreads a model over GPUs and memory; in the
            place of --device.
        revision: branch, tag or commit on the hub.
        attn_implementation: how attention is computed; transformers' own choice by default.
        quantization: linear layers in 8bit or 4bit, with bitsandbytes where it is installed; none
            leaves all weights in --dtype.
        max_pixels: of a frame, for models that take frames of any size (Qwen's): larger ones are
            scaled down. By default to three quarters of the model's context for all frames
            together; the rest is for words and reply.
    """

    model: str = DEFAULT_MODEL
    dtype: Dtype = "auto"
    device: str | None = None
    device_map: str | None = None
    revision: str | None = None
    attn_implementation: Attention | None = None
    quantization: Quantization = "none"
    max_pixels: int | None = None

    @property
    def place(self) -> str | None:
        """Where the model is put, as a device map.

        Raises:
            ModelError: it is said twice.
        """
        if self.device is not None and self.device_map is not None:
            raise ModelError(
                f"--device {self.device} and --device-map {self.device_map} both say where the "
                "model is put: give one of them"
            )
        return self.device or self.device_map

    def opening(self) -> dict[str, Any]:
        """The arguments of :func:`sally_anne.models.loading.load_model`.

        Raises:
            ModelError: the place is said twice.
        """
        options = self.model_options()
        del options["device"]
        return {"name": options.pop("model")} | options | {"device_map": self.place}

    def model_options(self) -> dict[str, Any]:
        """These options by name, for another command's config."""
        return {name: getattr(self, name) for name in ModelOptions.__dataclass_fields__}
