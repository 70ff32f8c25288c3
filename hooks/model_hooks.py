"""Hooks on one site of a model's layers, set while a `with` block is open.

What `hooks.capture` and `hooks.edit` share: hooks are set and removed, each forward pass is
followed, attention is reached, and what would read or edit the wrong numbers raises.

Compiled code does not look at hooks that were set after its first call, and would keep those that
were set during it. So while a block is open everything runs eagerly, whoever compiled it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from sally_anne.core.errors import HookError
from sally_anne.hooks.geometry import HEAD_OUT, SITES, Geometry, find_geometry, site_module
from sally_anne.hooks.positions import Pass, PassTracker

_lock = threading.Lock()
_open = 0
_stance: Any = None


def attach(
    model: nn.Module, geometry: Geometry, site: str, layer: int, see: Callable[..., Tensor | None]
) -> RemovableHandle:
    """Call `see` with a layer's `[B, T, W]` at a site whenever it runs; what it returns goes on."""

    def hook(module: nn.Module, args: tuple[Any, ...], output: Any = None) -> Any:
        there = args if output is None else output
        if not isinstance(there, tuple):
            return see(there)
        changed = see(there[0])
        return None if changed is None else (changed, *there[1:])

    module = model.get_submodule(site_module(geometry, layer, site))
    if site == HEAD_OUT:
        return module.register_forward_pre_hook(hook)
    return module.register_forward_hook(hook)


class ModelHooks:
    """Base of `Capture` and `Edit`: they say what happens to the activations of a pass.

    `model` is the Hugging Face model whose forward will be called, not a part of it; `site` one of
    SITES, `positions` a spec of `hooks.positions`, `rows_may_move` as of `PassTracker`.
    """

    missed: ClassVar[str] = "use the model's own layers, as they are, not compiled."
    layers: tuple[int, ...]

    def __init__(
        self, model: nn.Module, site: str, positions: str, rows_may_move: bool = False
    ) -> None:
        if site not in SITES:
            raise HookError(f"unknown site {site!r}: choose one of {', '.join(SITES)}.")
        # Of `torch.compile(model)` the model inside.
        self.model: nn.Module = getattr(model, "_orig_mod", model)
        self.site, self.positions = site, positions
        self.geometry = find_geometry(self.model)
        self._tracker = PassTracker(positions, rows_may_move)
        self._handles: list[RemovableHandle] = []
        self._reset()

    def __enter__(self) -> Self:
        if self._handles:
            raise HookError("this one is already open; make another one to nest.")
        self._reset()
        if self.layers:
            _count_open(1)
            try:
                self._add_hooks()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self.layers:
            _count_open(-1)

    def _reset(self) -> None:
        """Forget the passes so far."""
        self._tracker.reset()
        # The pass that is running, or that ended with an error.
        self._pass: Pass | None = None

    def _begin(self, at: Pass) -> None:
        """Begin a pass."""
        raise NotImplementedError

    def see(self, layer: int, activation: Tensor) -> Tensor | None:
        """What becomes of `activation [B, T, W]`; None leaves it as it is."""
        raise NotImplementedError

    def _end(self) -> None:
        """End a pass in which all layers ran."""
        raise NotImplementedError

    def _add_hooks(self) -> None:
        add = self._handles.append
        add(self.model.register_forward_pre_hook(self.before_pass, with_kwargs=True))
        add(self.model.register_forward_hook(self.after_pass))
        self._add_layers()

    def _add_layers(self) -> None:
        def checked(layer: int, activation: Tensor) -> Tensor | None:
            self._check(layer, activation)
            return self.see(layer, activation)

        for layer in self.layers:
            see = partial(checked, layer)
            self._handles.append(attach(self.model, self.geometry, self.site, layer, see))

    def before_pass(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The hook before `model(*args, **kwargs)`; who runs that elsewhere calls it."""
        if self._pass is not None:
            # The pass before was interrupted, and nothing of it may be taken for this one's.
            self._reset()
        at = self._tracker.follow(model, args, kwargs)
        self._begin(at)
        self._pass, self._ran = at, set[int]()

    def _check(self, layer: int, activation: Tensor) -> None:
        """That a layer runs once, on the tokens `[B, T, ...]` of the running pass."""
        if self._pass is None or self._pass.real.shape != activation.shape[:2]:
            what = f"a pass of the {type(self.model).__name__} that was given, or on other tokens"
            raise HookError(f"layer {layer} ran outside {what}: call that model itself.")
        if layer in self._ran:
            name = site_module(self.geometry, layer, self.site)
            raise HookError(f"{name} ran twice in one pass: its heads are not one layer's.")
        self._ran.add(layer)

    def after_pass(self, model: nn.Module, args: Any, output: Any) -> None:
        """The hook after it."""
        if missing := [layer for layer in self.layers if layer not in self._ran]:
            where = f"in this forward pass of the {type(model).__name__}"
            raise HookError(f"layers {missing} did not run {where}: {self.missed}")
        self._pass = None
        self._end()


# How P tokens of a layer attend. A function gives what heads put out, `[B, P, H, D]`, and weights
# `[B, H, P, columns]`, or with `allowed`, bool `[B, 1, P, columns]`, those of a mask that lets them
# see nothing else. Then what they see, likewise, and values `[B, H or fewer, columns, D]`.
Read = tuple[Callable[..., tuple[Tensor, Tensor]], Tensor, Tensor]


class AttentionHooks(ModelHooks):
    """Base of `Looks` and `Redirect`: they say what becomes of how a layer attends.

    Layers hand queries, keys and mask to transformers' attention interface. There the model attends
    as before, and its own step-by-step attention gets those rows alone that are asked for: so
    rotary positions, shared keys, windows and soft caps are the model's, and no full matrix is
    made. While a block is open no other thread may run a model. A HookError where the model attends
    neither by `sdpa` nor by `eager`, not through that interface, or not with W_o's heads.
    """

    missed = "they do not attend through transformers' interface, which is all that can be read."

    def __init__(self, model: nn.Module, *args: Any, **how: Any) -> None:
        super().__init__(model, *args, **how)
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

    def look(self, layer: int, read: Callable[..., Read], output: Tensor) -> Tensor:
        """What becomes of what a layer's heads put out; `read(index=...)` is of tokens `[B, P]`."""
        raise NotImplementedError

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
        output, weights = (self._before or step_by_step)(module, *args, **how)
        if (layer := self._layer.get(module)) is not None and step_by_step is not None:
            own = partial(self._read, layer, partial(step_by_step, module), *args, **how)
            output = self.look(layer, own, output)
        return output, weights

    def _read(
        self,
        layer: int,
        step_by_step: Callable[..., tuple[Tensor, Tensor]],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        position_bias: Tensor | None = None,
        *,
        index: Tensor,
        **how: Any,
    ) -> Read:
        if position_bias is not None:
            raise HookError(f"layer {layer} attends by distance, by a bias that is not read.")
        every = query.transpose(1, 2)
        self._check(layer, every)
        tokens, columns, index = query.shape[2], key.shape[2], index.to(key.device)
        rows = torch.arange(len(index), device=key.device)[:, None]
        if attention_mask is None:  # nothing is padding, and later tokens are not seen
            seen = torch.arange(columns, device=key.device) <= index[..., None] + columns - tokens
            mask = seen[:, None]
        else:
            mask = attention_mask.expand(len(rows), -1, -1, -1).transpose(1, 2)[rows, index]
            mask = mask.transpose(1, 2)[..., :columns]
        lowest = torch.finfo(query.dtype).min
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, lowest)
        own = every[rows, index].transpose(1, 2)

        def attend(allowed: Tensor | None = None) -> tuple[Tensor, Tensor]:
            shown = mask if allowed is None else mask.masked_fill(~allowed, lowest)
            try:
                z, weights = step_by_step(own, key, value, shown, **how)
            except RuntimeError as error:  # that of a model which its makers run by sdpa alone
                raise HookError(f"layer {layer} attends by sdpa alone: {error}") from error
            if weights.shape[1] != self.geometry.n_heads:
                heads = f"{weights.shape[1]} heads, and W_o reads {self.geometry.n_heads}"
                raise HookError(f"layer {layer} attends with {heads}.")
            return z, weights

        return attend, mask > lowest / 2, value


def _count_open(change: int) -> None:
    """Run everything eagerly while a block is open; the last restores what was set before."""
    global _open, _stance
    with _lock:
        if not _open:
            _stance = torch.compiler.set_stance("force_eager")
        _open += change
        if not _open:
            _stance.__exit__(None, None, None)
            _stance = None
