"""TransformerLens adapters for the video models that it lacks.

A bridge that is built around a loaded model finds them through the entry-point group
`transformer_lens.architectures`. To boot a checkpoint by name, call `register` first: version 4.3
looks its class up in another table before.
"""

from __future__ import annotations

from typing import Any

from transformer_lens.factories.architecture_adapter_factory import (
    SUPPORTED_ARCHITECTURES,
    ArchitectureAdapterFactory,
)
from transformer_lens.model_bridge.generalized_components import LinearBridge
from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent
from transformer_lens.model_bridge.generalized_components.qwen3_5_vision_encoder import (
    Qwen3_5VisionBlockBridge,
    Qwen3_5VisionEncoderBridge,
)
from transformer_lens.model_bridge.supported_architectures.llava_next import (
    LlavaNextArchitectureAdapter,
)
from transformer_lens.model_bridge.supported_architectures.qwen2_5_vl import (
    Qwen2_5_VLArchitectureAdapter,
)
from transformer_lens.utilities.architectures import MULTIMODAL_ARCHITECTURES


class Qwen2VLArchitectureAdapter(Qwen2_5_VLArchitectureAdapter):
    """Adapter for `Qwen2VLForConditionalGeneration`.

    The decoder is that of Qwen2.5-VL: Qwen2's layers with biases on q, k and v, and rotary
    positions in three dimensions, so attention stays transformers' own. The vision tower is the
    older one: LayerNorm, and an MLP of two layers without a gate. Images and videos go through the
    bridge's forward by the names of transformers.
    """

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        vision = getattr(cfg, "vision_config", None)
        if vision is not None:
            # `hidden_size` is the decoder's width here, to which the merger maps.
            self.cfg.vision_hidden_size = vision.embed_dim
        mlp = GeneralizedComponent(
            name="mlp", submodules={"in": LinearBridge(name="fc1"), "out": LinearBridge(name="fc2")}
        )
        self.components["vision_encoder"] = Qwen3_5VisionEncoderBridge(
            name="model.visual",
            config=self.cfg,
            submodules={
                "pos_embed": GeneralizedComponent(name="rotary_pos_emb"),
                "blocks": Qwen3_5VisionBlockBridge(name="blocks", submodules={"mlp": mlp}),
            },
        )


class LlavaNextVideoArchitectureAdapter(LlavaNextArchitectureAdapter):
    """Adapter for `LlavaNextVideoForConditionalGeneration`.

    LLaVA-NeXT with a pooler between the projections of video frames and the decoder; it appears as
    `vision_resampler`, and only videos go through it.
    """

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.components["vision_resampler"] = GeneralizedComponent(name="model.vision_resampler")


def register() -> None:
    """Make TransformerLens know these models everywhere, also when it boots them by name."""
    # Before, or the entry points would look like an attempt to replace what is registered here.
    ArchitectureAdapterFactory.discover_entry_points()
    for name, adapter in (
        ("Qwen2VLForConditionalGeneration", Qwen2VLArchitectureAdapter),
        ("LlavaNextVideoForConditionalGeneration", LlavaNextVideoArchitectureAdapter),
    ):
        ArchitectureAdapterFactory.register_adapter(name, adapter)
        SUPPORTED_ARCHITECTURES[name] = adapter
        # Says with which class of transformers a checkpoint is loaded.
        MULTIMODAL_ARCHITECTURES.add(name)
