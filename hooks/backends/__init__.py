"""Other libraries that read and steer the same activations, behind one small class.

All backends agree on what is read and where; `native` is the one that also follows generation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from sally_anne.core.errors import BackendError
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import HEAD_OUT
from sally_anne.hooks.positions import LAST_PROMPT, LAST_PROMPT_GENERATED

NATIVE = "native"
# Name, which is that of the package: module and class. Both are imported late: they are slow.
_OTHERS = {
    "nnsight": ("sally_anne.hooks.backends.with_nnsight", "NnsightBackend"),
    "transformer_lens": (
        "sally_anne.hooks.backends.with_transformer_lens",
        "TransformerLensBackend",
    ),
}
BACKENDS = (NATIVE, *_OTHERS)
# Hooks of these packages belong to the model and are copied with it.
_OWN = ("accelerate.", "transformers.")


class Backend:
    """Reads and steers the heads of a model in one forward pass; `name` is one of BACKENDS.

    `model` is the Hugging Face model and stays as it is; `inputs` are the keyword arguments of its
    forward, on its device, frames included. In a single pass nothing is generated yet:
    `last_prompt+generated` means the last prompt token. With a cache give `position_ids`: Qwen2-VL
    else takes them from what it read last, and a backend may run modules that have read nothing.
    """

    name: str

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

        Raises:
            GeometryError, CaptureError, PositionError, NonFiniteError: as `Capture` does.
            BackendError: the backend cannot run this model.
        """
        asked = Capture(model, site, positions, layers)
        self._read(asked, dict(inputs))
        return asked.take(items)

    def logits(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        delta: Tensor,
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT_GENERATED,
    ) -> Tensor:
        """The logits `[B, T, V]` with `delta`, `[L, H, D]` or `[B, L, H, D]`, added.

        Raises:
            GeometryError, EditError, PositionError: as `hooks.edit.Edit`.
            BackendError: the backend cannot run this model.
        """
        return self._add(Edit(model, delta, site, positions), dict(inputs))

    def _read(self, asked: Capture, inputs: dict[str, Any]) -> None:
        """Run `asked.model(**inputs)`, or what gives the same, and let `asked` keep the pass."""
        raise NotImplementedError

    def _add(self, asked: Edit, inputs: dict[str, Any]) -> Tensor:
        """The logits of `asked.model(**inputs)` with what `asked` adds."""
        raise NotImplementedError


class NativeBackend(Backend):
    """Plain forward hooks; the only backend for which a capture or edit around it counts, too."""

    name = NATIVE

    def _read(self, asked: Capture, inputs: dict[str, Any]) -> None:
        with torch.no_grad(), asked:
            asked.model(**inputs)

    def _add(self, asked: Edit, inputs: dict[str, Any]) -> Tensor:
        with torch.no_grad(), asked:
            return asked.model(**inputs).logits


class SharingBackend(Backend):
    """A backend that leaves modules or methods of its own in a model.

    So it gets a copy that shares the model's weights, and uses it again until the model changes.
    """

    def __init__(self) -> None:
        # Only a weak reference: what shares the model's weights must not keep it alive.
        self._model: ref[nn.Module] | None = None
        self._state: tuple[object, ...] = ()
        self._built: Any = None

    def _build(self, model: nn.Module) -> Any:
        """What the library makes of a copy."""
        raise NotImplementedError

    def _around(self, model: nn.Module) -> Any:
        """What is built around the model's weights."""
        for name, module in model.named_modules():
            for hook in chain(module._forward_hooks.values(), module._forward_pre_hooks.values()):
                if not (getattr(hook, "__module__", None) or "").startswith(_OWN):
                    raise BackendError(
                        f"{name or type(model).__name__} has a forward hook; backend "
                        f"{self.name!r} runs its own modules around the model's weights, "
                        "where it would not count. Close every open Capture and Edit first, or "
                        f"use backend {NATIVE!r}."
                    )
        # All that is shared or copied and may be exchanged later. The copy keeps the tensors alive,
        # so their ids stay theirs.
        attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
        state = (model.training, attention, *map(id, _tensors(model)))
        if self._model is None or self._model() is not model or self._state != state:
            self._model = None
            self._built = self._build(sharing_weights(model))
            self._model, self._state = ref(model), state
        return self._built


def sharing_weights(model: nn.Module) -> nn.Module:
    """New modules that hold the parameters and buffers of `model`; nothing large is copied."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in _tensors(model)})


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    return chain(model.parameters(), model.buffers())


def backend(name: str = NATIVE, **options: Any) -> Backend:
    """The backend of that name, one of BACKENDS; `nnsight` has the option `remote`.

    Raises:
        BackendError: an unknown name or option, or a package that is not installed.
    """
    if name not in BACKENDS:
        raise BackendError(f"unknown backend {name!r}: choose one of {', '.join(BACKENDS)}.")
    made: Any = NativeBackend
    if name != NATIVE:
        if find_spec(name) is None:
            raise BackendError(
                f"backend {name!r} needs the package {name!r}, a dependency that is missing here: "
                f"pip install {name.replace('_', '-')}, or use backend {NATIVE!r}."
            )
        module, attribute = _OTHERS[name]
        made = getattr(import_module(module), attribute)
    try:
        return made(**options)
    except TypeError as error:
        raise BackendError(f"backend {name!r} does not take these options: {error}") from error
