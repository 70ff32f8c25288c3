"""The upper layers of a decoder alone, with heads exchanged at the last token, to be trained."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from sally_anne.hooks.geometry import find_geometry, o_projs
from sally_anne.models.decoding import CACHE


class Read(NamedTuple):
    """R rows that went through the upper layers.

    Attributes:
        logits: after the last token, ``[R, V]``.
        heads: head outputs there, ``[R, L', H, D]`` of the L' upper layers.
        cache: keys and values of all tokens.
        mask: of tokens, ``[R, T]``.
        places: rotary positions, ``[R, T]``.
    """

    logits: Tensor
    heads: Tensor
    cache: Any
    mask: Tensor
    places: Tensor


class Upper:
    """Layers of a model from ``cut`` on, which it shares its weights with.

    What is read and exchanged carries gradients. The model itself cannot be run any more.

    Args:
        model: a text or vision-language model whose decoder is a Llama or a Qwen2.
        cut: the first layer.
    """

    def __init__(self, model: Any, cut: int) -> None:
        geometry = find_geometry(model)
        self.model, self.cut, self.n_heads = model, cut, geometry.n_heads
        outs = o_projs(model)[cut:]
        self.layers = [model.get_submodule(name) for name in geometry.layer_names[cut:]]
        self.names = geometry.layer_names[cut:]
        self.decoder = model.get_decoder()
        self.decoder.layers = torch.nn.ModuleList(self.layers)
        self.decoder.config = copy.deepcopy(self.decoder.config)
        self.decoder.config.num_hidden_layers = len(self.layers)
        if getattr(self.decoder.config, "layer_types", None):
            self.decoder.config.layer_types = self.decoder.config.layer_types[cut:]
        for number, layer in enumerate(self.layers):
            layer.self_attn.layer_idx = number
        model.requires_grad_(False)
        for layer in self.layers:
            layer.requires_grad_(True)
        self._read: list[Tensor] = []
        self._given: tuple[Tensor, Tensor] | None = None
        for number, out in enumerate(outs):
            out.register_forward_pre_hook(lambda _, z, number=number: self._see(number, z[0]))

    @property
    def shape(self) -> tuple[int, int]:
        """Upper layers, heads."""
        return len(self.layers), self.n_heads

    def parameters(self) -> list[Tensor]:
        """What is trained."""
        return [weight for layer in self.layers for weight in layer.parameters()]

    def weights(self) -> dict[str, Tensor]:
        """The same by their names in the whole model."""
        return {
            f"{name}.{own}": weight.detach()
            for name, layer in zip(self.names, self.layers, strict=True)
            for own, weight in layer.named_parameters()
        }

    def read(self, stream: Tensor, mask: Tensor) -> Read:
        """Run rows ``[R, T, hidden]`` with the mask ``[R, T]`` of their tokens."""
        places = (mask.cumsum(1) - 1).clamp(min=0)
        self._read, self._given, cache = [], None, DynamicCache()
        logits = self._run(stream, mask, places, cache)
        return Read(logits, torch.stack(self._read, 1), cache, mask, places)

    def exchange(self, read: Read, last: Tensor, heads: Tensor, chosen: Tensor) -> Tensor:
        """Logits ``[R, V]`` of rows read before, with another last token's stream and other heads.

        Args:
            read: the rows.
            last: stream that enters at the last token, ``[R, hidden]``.
            heads: what chosen heads put out there, ``[R, L', H, D]``.
            chosen: bool ``[R, L', H]``.
        """
        cache = DynamicCache()
        for number, layer in enumerate(read.cache.layers):
            cache.update(layer.keys[:, :, :-1], layer.values[:, :, :-1], number)
        self._given = heads, chosen
        try:
            return self._run(last[:, None], read.mask, read.places[:, -1:], cache)
        finally:
            self._given = None

    def _run(self, stream: Tensor, mask: Tensor, places: Tensor, cache: Any) -> Tensor:
        rotary = getattr(self.decoder.config, "rope_parameters", None) or {}
        if "mrope_section" in rotary:
            places = places.expand(3, -1, -1)
        found = self.decoder(
            inputs_embeds=stream,
            attention_mask=mask,
            position_ids=places,
            **{CACHE: cache},
            use_cache=True,
        )
        return self.model.lm_head(found.last_hidden_state[:, -1])

    def _see(self, number: int, z: Tensor) -> tuple[Tensor]:
        last = z[:, -1].unflatten(-1, (self.n_heads, -1))
        if self._given is None:
            self._read.append(last)
            return (z,)
        heads, chosen = self._given
        last = torch.where(chosen[:, number, :, None], heads[:, number], last)
        return (torch.cat([z[:, :-1], last.flatten(1)[:, None]], 1),)
