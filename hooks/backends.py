"""Other libraries that read the same activations, behind one small class."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sally_anne.core.errors import HookError
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import HEAD_OUT, site_module
from sally_anne.hooks.positions import LAST_PROMPT

NATIVE = "native"
BACKENDS = (NATIVE, "nnsight", "transformer_lens")
# Hooks of these packages belong to the model and are copied with it.
_OWN = ("accelerate.", "transformers.")


class Backend:
    """Reads the heads of a model in one forward pass.

    This one does so by plain forward hooks: the only way for which a capture or edit around it
    counts, too.
    """

    name: str = NATIVE  # one of BACKENDS

    def read(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT,
        layers: Sequence[int] | None = None,
        items: Sequence[str] | None = None,
    ) -> Tensor:
        """The activations `[B, P, L, H, D]`, on the CPU, as `hooks.capture.Capture` takes them.

        `inputs` are the keyword arguments of the Hugging Face model's forward, on its device.
        """
        capture = Capture(model, site, positions, layers)
        with torch.no_grad():
            self._run(capture, dict(inputs))
        return capture.take(items)

    def _run(self, capture: Capture, inputs: dict[str, Any]) -> None:
        """Run `capture.model(**inputs)`, or what gives the same, and let `capture` keep it."""
        with capture:
            capture.model(**inputs)


class SharingBackend(Backend):
    """A backend that leaves modules or methods of its own in a model.

    So it gets a copy that shares the model's weights, and uses it again until the model changes.
    """

    def __init__(self) -> None:
        # Weak: what shares the model's weights must not keep it alive.
        self._built: WeakKeyDictionary[nn.Module, tuple[Any, Any]] = WeakKeyDictionary()

    def _build(self, model: nn.Module) -> Any:
        """What the library makes of a copy."""
        raise NotImplementedError

    def _read(self, capture: Capture, built: Any, inputs: dict[str, Any]) -> None:
        """Have what was built run on the inputs, and `capture` keep what each layer shows."""
        raise NotImplementedError

    def _run(self, capture: Capture, inputs: dict[str, Any]) -> None:
        capture.before_pass(capture.model, (), inputs)
        self._read(capture, self._around(capture.model), inputs)
        capture.after_pass(capture.model, (), None)

    def _around(self, model: nn.Module) -> Any:
        """What is built around the model's weights."""
        for name, module in model.named_modules():
            for hook in chain(module._forward_hooks.values(), module._forward_pre_hooks.values()):
                if not (getattr(hook, "__module__", None) or "").startswith(_OWN):
                    has = f"{name or type(model).__name__} has a forward hook"
                    why = f"{self.name!r} would not run it: close every open Capture and Edit"
                    raise HookError(f"{has}, and {why}, or use {NATIVE!r}.")
        # All that may be exchanged later; the copy keeps the tensors alive, so that ids stay.
        attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
        shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
        state = (model.training, attention, *shared)
        if self._built.get(model, (None,))[0] != state:
            self._built[model] = state, self._build(copy.deepcopy(model, shared))
        return self._built[model][1]


class NnsightBackend(SharingBackend):
    """Reads inside nnsight traces."""

    name = "nnsight"

    def _build(self, model: nn.Module) -> Any:
        return import_module("nnsight").NNsight(model)

    def _read(self, capture: Capture, built: Any, inputs: dict[str, Any]) -> None:
        nnsight, layers = import_module("nnsight"), sorted(capture.layers)
        modules = [built.get(site_module(capture.geometry, n, capture.site)) for n in layers]
        before = capture.site == HEAD_OUT
        with built.trace(**inputs):
            pieces = nnsight.save([])
            # In the order in which the layers run.
            for module in modules:
                value = module.input if before else module.output
                if isinstance(value, tuple):
                    value = value[0]
                pieces.append(capture.at_positions(value).cpu())
        for layer, piece in zip(layers, pieces, strict=True):
            capture.keep(layer, piece)


def backend(name: str = NATIVE) -> Backend:
    """The backend of that name; a HookError if it is none of BACKENDS, or not installed."""
    if name not in BACKENDS:
        raise HookError(f"unknown backend {name!r}: choose one of {', '.join(BACKENDS)}.")
    if name != NATIVE and find_spec(name) is None:
        raise HookError(f"backend {name!r} is not installed: pip install {name.replace('_', '-')}.")
    if name == "transformer_lens":  # slow to import
        return import_module("sally_anne.hooks.lens").TransformerLensBackend()
    return NnsightBackend() if name == "nnsight" else Backend()
