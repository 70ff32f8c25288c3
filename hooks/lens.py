"""TransformerLens as a backend, and its adapters for the video models that it lacks.

A bridge that is built around a loaded model finds the adapters through the entry-point group
`transformer_lens.architectures`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn
from transformer_lens.factories.architecture_adapter_factory import ArchitectureAdapterFactory
from transformer_lens.model_bridge.bridge import TransformerBridge
from transformer_lens.model_bridge.generalized_components import LinearBridge
from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent
from transformer_lens.model_bridge.generalized_components.qwen3_5_vision_encoder import (
    Qwen3_5VisionBlockBridge,
    Qwen3_5VisionEncoderBridge,
)
from transformer_lens.model_bridge.sources import build_bridge_from_module
from transformer_lens.model_bridge.supported_architectures.llava_next import (
    LlavaNextArchitectureAdapter,
)
from transformer_lens.model_bridge.supported_architectures.qwen2_5_vl import (
    Qwen2_5_VLArchitectureAdapter,
)

from sally_anne.core.errors import HookError
from sally_anne.hooks.backends import SharingBackend
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import ATTN_OUT, HEAD_OUT, RESID
from sally_anne.hooks.positions import cache_in

# TransformerLens' own names of the sites.
HOOKS = {HEAD_OUT: "attn.hook_z", ATTN_OUT: "hook_attn_out", RESID: "hook_resid_post"}


class Qwen2VLArchitectureAdapter(Qwen2_5_VLArchitectureAdapter):
    """Qwen2.5-VL's decoder, and the older vision tower: LayerNorm, and an MLP without a gate."""

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
    """LLaVA-NeXT with a pooler of videos."""

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.components["vision_resampler"] = GeneralizedComponent(name="model.vision_resampler")


def register() -> None:
    """Make TransformerLens know these models, also where this package is not installed."""
    # Before, or the entry points would look like an attempt to replace what is registered here.
    ArchitectureAdapterFactory.discover_entry_points()
    for adapter in (Qwen2VLArchitectureAdapter, LlavaNextVideoArchitectureAdapter):
        name = adapter.__name__.replace("ArchitectureAdapter", "ForConditionalGeneration")
        ArchitectureAdapterFactory.register_adapter(name, adapter)


class TransformerLensBackend(SharingBackend):
    """Reads through the hooks of a TransformerBridge; see `Backend`.

    The model inside the bridge is called, as the bridge's own forward derives other positions for
    rows padded on the left. Attention is computed step by step: against an eager model all numbers
    are equal to the last bit, against sdpa to about 1e-6 in float32.
    """

    name = "transformer_lens"

    def _build(self, model: nn.Module) -> TransformerBridge:
        register()
        architecture = type(model).__name__
        try:
            return build_bridge_from_module(model, architecture, hf_config=model.config)
        except ValueError as error:
            raise HookError(f"TransformerLens cannot take a {architecture}: {error}") from error

    def _read(self, capture: Capture, built: Any, inputs: dict[str, Any]) -> None:
        if cache_in(inputs) is not None:
            raise HookError(f"{self.name!r} reads whole prompts: leave the cache out.")

        def keep(layer: int, tensor: Tensor, hook: Any) -> None:
            # [B, T, H, D] at hook_z, [B, T, W] elsewhere.
            capture.keep(layer, capture.at_positions(tensor).flatten(2).cpu())

        name = HOOKS[capture.site]
        placed = [(f"blocks.{layer}.{name}", partial(keep, layer)) for layer in capture.layers]
        with built.hooks(fwd_hooks=placed):
            built.original_model(**inputs)
