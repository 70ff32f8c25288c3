"""Where heads look: the attention that a prompt's last token gives to each token before it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from sally_anne.core.errors import HookError
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import HEAD_OUT
from sally_anne.hooks.positions import LAST_PROMPT


class Looks(Capture):
    """Copies the attention of a prompt's last token out of a model while the `with` block is open.

        with Looks(model) as looks:
            model(**batch)
            weights = looks.take()      # [B, 1, L, H, T], on the CPU

    T counts the columns that are attended to, those of a cache first; padding has weight 0. A head
    gives 1 in all, or less where it has a sink that is no token (gpt-oss).

    The model attends as before. On the way its layers hand queries, keys and mask to transformers'
    attention interface, and there the model's own step-by-step attention gets the read row alone:
    so rotary positions, shared keys, windows and soft caps are the model's, and no full matrix is
    made. While a block is open no other thread may run a model.

    Raises:
        HookError: the model attends neither by `sdpa` nor by `eager`, or, during a forward, not
            through that interface, or not with the heads that W_o reads; or as of `Capture`.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, HEAD_OUT, LAST_PROMPT)
        config: Any = self.model.config
        self._way = config.get_text_config(decoder=True)._attn_implementation
        if self._way not in ("sdpa", "eager"):
            raise HookError(f"{self._way} keeps no attention: take --attn-implementation sdpa.")
        self._layer = {
            module: layer
            for layer in self.layers
            for module in self.model.get_submodule(self.geometry.layer_names[layer]).modules()
        }
        self._before: Any = None

    def _add_layers(self) -> None:
        self._before = ALL_ATTENTION_FUNCTIONS.get(self._way)
        ALL_ATTENTION_FUNCTIONS[self._way] = self._attend

    def __exit__(self, *error: object) -> None:
        if self._handles:
            del ALL_ATTENTION_FUNCTIONS[self._way]
            if ALL_ATTENTION_FUNCTIONS.get(self._way) is not self._before:
                ALL_ATTENTION_FUNCTIONS[self._way] = self._before  # of a block around this one
        super().__exit__(*error)

    def _attend(self, module: nn.Module, *args: Any, **how: Any) -> tuple[Tensor, Tensor | None]:
        """What the interface calls in place of the model's own way to attend."""
        # Step by step is no function of the interface's: each file of a model has its own.
        code = vars(sys.modules[type(module).__module__])
        step_by_step: Any = code.get("eager_attention_forward")
        if module in self._layer and step_by_step is not None:
            self._look(self._layer[module], partial(step_by_step, module), *args, **how)
        return (self._before or step_by_step)(module, *args, **how)

    def _look(
        self,
        layer: int,
        attend: Callable[..., tuple[Tensor, Tensor]],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        position_bias: Tensor | None = None,
        **how: Any,
    ) -> None:
        if position_bias is not None:
            raise HookError(f"layer {layer} attends by distance, by a bias that is not read.")
        every = query.transpose(1, 2)
        self._checked(layer, every)
        tokens, columns = query.shape[2], key.shape[2]
        rows, index = self.rows.to(key.device), self.index.to(key.device)
        if attention_mask is None:  # nothing is padding, and later tokens are not seen
            seen = torch.arange(columns, device=key.device) <= index + columns - tokens
            mask = seen[:, None, None]
        else:
            mask = attention_mask.expand(len(rows), -1, -1, -1).transpose(1, 2)[rows, index]
            mask = mask.transpose(1, 2)[..., :columns]
        if mask.dtype == torch.bool:
            lowest = torch.finfo(query.dtype).min
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, lowest)
        own = every[rows, index].transpose(1, 2)
        try:
            _, weights = attend(own, key, value, mask, **how)
        except RuntimeError as error:  # that of a model which its makers run by sdpa alone
            raise HookError(f"layer {layer} does not attend step by step: {error}") from error
        if weights.shape[1] != self.geometry.n_heads:
            heads = f"{weights.shape[1]} heads, and W_o reads {self.geometry.n_heads}"
            raise HookError(f"layer {layer} attends with {heads}.")
        self.keep(layer, weights.detach().transpose(1, 2).flatten(2))

    def see(self, layer: int, activation: Tensor) -> None:
        """Nothing is read of the queries themselves."""

    def after_pass(self, model: nn.Module, args: Any, output: Any) -> None:
        """As of `Capture`; a HookError for layers that do not use the interface."""
        if set(self.layers) - self._ran:
            raise HookError(
                f"{type(self.model).__name__} does not attend through transformers' interface for "
                "attention, so where its heads look cannot be read."
            )
        super().after_pass(model, args, output)
