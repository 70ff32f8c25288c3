"""TransformerLens as a backend, by way of its TransformerBridge."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformer_lens.model_bridge.bridge import TransformerBridge
from transformer_lens.model_bridge.generalized_components import AttentionBridge
from transformer_lens.model_bridge.sources import build_bridge_from_module

from sally_anne.core.errors import BackendError
from sally_anne.hooks.backends import SharingBackend
from sally_anne.hooks.backends.transformer_lens_adapters import register
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import ATTN_OUT, HEAD_OUT, RESID
from sally_anne.hooks.model_hooks import ModelHooks
from sally_anne.hooks.positions import cache_in

# TransformerLens' own names of the sites.
HOOKS = {HEAD_OUT: "attn.hook_z", ATTN_OUT: "hook_attn_out", RESID: "hook_resid_post"}


def _cache_by_its_former_name(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What transformers renamed in 5.24, by the name under which TransformerLens 4.3 looks."""
    cache = cache_in(kwargs)
    return args, {**{k: v for k, v in kwargs.items() if k != "cache"}, "past_key_values": cache}


class TransformerLensBackend(SharingBackend):
    """Reads and steers through the hooks of a TransformerBridge; see `Backend`.

    The model inside the bridge is called, as the bridge's own forward derives other positions for
    rows padded on the left.

    TransformerLens always computes attention step by step ("eager"). Against a model that does,
    too, all numbers are the same to the last bit; against sdpa, the default of transformers, they
    differ by rounding, about 1e-6 of the activations in float32.
    """

    name = "transformer_lens"

    def _build(self, model: nn.Module) -> TransformerBridge:
        register()
        architecture = type(model).__name__
        try:
            bridge = build_bridge_from_module(model, architecture, hf_config=model.config)
        except ValueError as error:
            raise BackendError(f"TransformerLens cannot take a {architecture}: {error}") from error
        for module in bridge.modules():
            # Its subclasses compute attention themselves; it hands all on to transformers.
            if isinstance(module, AttentionBridge) and type(module) is not AttentionBridge:
                module.register_forward_pre_hook(_cache_by_its_former_name, with_kwargs=True)
        return bridge

    def _read(self, asked: Capture, inputs: dict[str, Any]) -> None:
        def keep(layer: int, tensor: Tensor, hook: Any) -> None:
            # [B, T, H, D] at hook_z, [B, T, W] elsewhere.
            rows, index = asked.rows.to(tensor.device), asked.index.to(tensor.device)
            asked.keep(layer, tensor[rows, index].flatten(2).detach().cpu())

        self._run(asked, inputs, keep)
        asked.after_pass(asked.model, (), None)

    def _add(self, asked: Edit, inputs: dict[str, Any]) -> Tensor:
        def add(layer: int, tensor: Tensor, hook: Any) -> Tensor:
            flat, mask = tensor.flatten(2), asked.mask[..., None]
            added = asked.vectors(layer).to(flat.device, flat.dtype)
            where = mask.to(flat.device) & added.ne(0)
            return torch.where(where, flat + added, flat).view(tensor.shape)

        return self._run(asked, inputs, add).logits

    def _run(self, asked: ModelHooks, inputs: dict[str, Any], hook: Callable[..., Any]) -> Any:
        asked.before_pass(asked.model, (), inputs)
        bridge = self._around(asked.model)
        name = HOOKS[asked.site]
        hooks = [(f"blocks.{layer}.{name}", partial(hook, layer)) for layer in asked.layers]
        with torch.no_grad(), bridge.hooks(fwd_hooks=hooks):
            return bridge.original_model(**inputs)
