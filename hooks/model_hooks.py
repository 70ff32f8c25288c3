"""Hooks on one site of a model's layers, set while a `with` block is open.

What `hooks.capture` and `hooks.edit` share: hooks are set and removed, each forward pass is
followed, and what would read or edit the wrong numbers raises.

Compiled code does not look at hooks that were set after its first call, and would keep those that
were set during it. So while a block is open everything runs eagerly, whichever part of a model was
compiled and by whom (`generate` compiles decoding itself where a cache is static). Afterwards the
compiled code is used again as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from sally_anne.core.errors import SallyAnneError
from sally_anne.hooks.geometry import HEAD_OUT, SITES, Geometry, find_geometry, site_module
from sally_anne.hooks.positions import Pass, PassTracker

_lock = threading.Lock()
_open = 0
_stance: Any = None


def attach(
    model: nn.Module,
    geometry: Geometry,
    site: str,
    layer: int,
    see: Callable[[Tensor], Tensor | None],
) -> RemovableHandle:
    """Call `see` with a layer's `[B, T, W]` at a site whenever it runs; what it returns goes on."""

    def before(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        changed = see(args[0])
        return None if changed is None else (changed, *args[1:])

    def after(module: nn.Module, args: Any, output: Any) -> Any:
        if not isinstance(output, tuple):
            return see(output)
        changed = see(output[0])
        return None if changed is None else (changed, *output[1:])

    module = model.get_submodule(site_module(geometry, layer, site))
    if site == HEAD_OUT:
        return module.register_forward_pre_hook(before)
    return module.register_forward_hook(after)


class ModelHooks:
    """Base of `Capture` and `Edit`: they say what happens to the activations of a pass.

    Args:
        model: the Hugging Face model whose forward will be called, not a part of it.
        site: one of SITES.
        positions: a spec of `hooks.positions`.
        rows_may_move: as of `PassTracker`.
    """

    error: ClassVar[type[SallyAnneError]]
    layers: tuple[int, ...]

    def __init__(
        self, model: nn.Module, site: str, positions: str, rows_may_move: bool = False
    ) -> None:
        if site not in SITES:
            raise self.error(f"unknown site {site!r}: choose one of {', '.join(SITES)}.")
        # Of `torch.compile(model)` the model inside.
        self.model: nn.Module = getattr(model, "_orig_mod", model)
        self.site = site
        self.positions = positions
        self.geometry = find_geometry(self.model)
        self._tracker = PassTracker(positions, rows_may_move)
        self._handles: list[RemovableHandle] = []
        self._reset()

    def __enter__(self) -> Self:
        if self._handles:
            name = type(self).__name__.lower()
            raise self.error(f"this {name} is already open; make another one to nest.")
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
        for layer in self.layers:
            see = partial(self._checked, layer)
            self._handles.append(attach(self.model, self.geometry, self.site, layer, see))

    def before_pass(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The hook before `model(*args, **kwargs)`; who runs that elsewhere calls it."""
        if self._pass is not None:
            # The pass before was interrupted, and nothing of it may be taken for this one's.
            self._reset()
        at = self._tracker.follow(model, args, kwargs)
        self._begin(at)
        self._pass, self._ran = at, set[int]()

    def _checked(self, layer: int, activation: Tensor) -> Tensor | None:
        if self._pass is None or self._pass.real.shape != activation.shape[:2]:
            raise self.error(
                f"layer {layer} ran outside a pass of the {type(self.model).__name__} that this "
                f"{type(self).__name__} was given, or on other tokens: call that model itself."
            )
        if layer in self._ran:
            name = site_module(self.geometry, layer, self.site)
            raise self.error(f"{name} ran twice in one pass: its heads are not one layer's.")
        self._ran.add(layer)
        return self.see(layer, activation)

    def after_pass(self, model: nn.Module, args: Any, output: Any) -> None:
        """The hook after it. Raises `error` if a layer did not run."""
        if missing := [layer for layer in self.layers if layer not in self._ran]:
            raise self.error(
                f"layers {missing} did not run in this forward pass of the {type(model).__name__}: "
                "use the model's own layers, as they are, not compiled."
            )
        self._pass = None
        self._end()


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
