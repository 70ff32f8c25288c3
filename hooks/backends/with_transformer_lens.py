"""TransformerLens as a backend, by way of its TransformerBridge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformer_lens.model_bridge.bridge import TransformerBridge
from transformer_lens.model_bridge.sources import build_bridge_from_module

from hooks.backends.request import Addition, addition, reading
from hooks.backends.transformer_lens_adapters import register
from hooks.backends.twin import Twins
from hooks.positions import LAST_PROMPT, LAST_PROMPT_GENERATED
from hooks.sites import ATTN_OUT, HEAD_OUT, RESID
from sally_anne.core.errors import BackendError

# TransformerLens' own names of the sites.
HOOKS = {HEAD_OUT: "attn.hook_z", ATTN_OUT: "hook_attn_out", RESID: "hook_resid_post"}


class TransformerLensBackend:
    """Reads and steers through the hooks of a TransformerBridge; see `Backend`.

    The bridge is built around a twin of the model, which shares its weights and is used again until
    the model changes. It is called as the model would be, so that it computes positions as the
    model does: the bridge's own forward derives other ones for rows padded on the left.

    TransformerLens always computes attention step by step ("eager"), and some adapters in modules
    of its own. Against a model that runs eager attention, too, all numbers are the same to the
    last bit; against another implementation (sdpa, the default of transformers) they differ by
    rounding, about 1e-6 of the activations in float32.
    """

    name = "transformer_lens"

    def __init__(self) -> None:
        self._bridges = Twins(self.name, _build)

    def read(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT,
        layers: Sequence[int] | None = None,
        items: Sequence[str] | None = None,
    ) -> Tensor:
        """`[B, P, L, H, D]`; see `Backend.read`."""
        asked = reading(model, inputs, site, positions, layers)
        pieces: dict[int, Tensor] = {}

        def keep(layer: int) -> Callable[..., None]:
            def hook(tensor: Tensor, hook: Any) -> None:
                here = tensor.device
                pieces[layer] = tensor[asked.rows.to(here), asked.index.to(here)].flatten(2)

            return hook

        hooks = [(_hook_name(layer, site), keep(layer)) for layer in asked.layers]
        self._run(model, inputs, hooks)
        return asked.assemble(pieces, items)

    def logits(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        delta: Tensor,
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT_GENERATED,
    ) -> Tensor:
        """`[B, T, V]`; see `Backend.logits`."""
        asked = addition(model, inputs, delta, site, positions)
        hooks = [(_hook_name(layer, site), _adder(asked, layer)) for layer in asked.vectors]
        return self._run(model, inputs, hooks).logits

    def _run(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        hooks: list[tuple[str, Callable[..., Any]]],
    ) -> Any:
        bridge = self._bridges.of(model)
        with torch.no_grad(), bridge.hooks(fwd_hooks=hooks):
            return bridge.original_model(**inputs)


def _build(model: nn.Module) -> TransformerBridge:
    register()
    architecture = type(model).__name__
    try:
        return build_bridge_from_module(model, architecture, hf_config=model.config)
    except ValueError as error:
        raise BackendError(f"TransformerLens cannot take a {architecture}: {error}") from error


def _hook_name(layer: int, site: str) -> str:
    return f"blocks.{layer}.{HOOKS[site]}"


def _adder(asked: Addition, layer: int) -> Callable[..., Tensor]:
    def hook(tensor: Tensor, hook: Any) -> Tensor:
        # [B, T, H, D] at hook_z, [B, T, W] elsewhere.
        flat = tensor.flatten(2)
        vectors = asked.vectors[layer].to(flat.device, flat.dtype)
        where = asked.mask.to(flat.device)[..., None] & vectors.ne(0)
        return torch.where(where, flat + vectors, flat).view(tensor.shape)

    return hook
