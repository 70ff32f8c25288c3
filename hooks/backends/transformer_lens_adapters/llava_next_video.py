"""LLaVA-NeXT-Video for TransformerLens."""

from __future__ import annotations

from typing import Any

from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent
from transformer_lens.model_bridge.supported_architectures.llava_next import (
    LlavaNextArchitectureAdapter,
)


class LlavaNextVideoArchitectureAdapter(LlavaNextArchitectureAdapter):
    """Adapter for `LlavaNextVideoForConditionalGeneration`.

    LLaVA-NeXT with a pooler between the projections of video frames and the decoder; it appears as
    `vision_resampler`, and only videos go through it.

    Images and videos go through the bridge's forward by the names of transformers (`pixel_values`,
    `image_sizes`, `pixel_values_videos`).
    """

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.components["vision_resampler"] = GeneralizedComponent(name="model.vision_resampler")
