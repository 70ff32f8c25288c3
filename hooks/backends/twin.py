"""A second set of modules around the very same weights.

Some libraries put their own modules or methods into a model and leave them there. They get a twin;
the model itself stays as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Generic, TypeVar
from weakref import ref

from torch import Tensor, nn

from sally_anne.core.errors import BackendError

Built = TypeVar("Built")

# Hooks of these packages belong to the model and are copied with it.
_OWN = ("accelerate.", "transformers.")


def twin(model: nn.Module) -> nn.Module:
    """New modules that hold the parameters and buffers of `model`; nothing large is copied."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in _tensors(model)})


class Twins(Generic[Built]):
    """What was built around the twin of the model used last, until that model changes."""

    def __init__(self, backend: str, build: Callable[[nn.Module], Built]) -> None:
        self._backend = backend
        self._build = build
        # Only a weak reference to the model: its twin must not keep it alive.
        self._model: ref[nn.Module] | None = None
        self._state: tuple[object, ...] = ()
        self._built: Built | None = None

    def of(self, model: nn.Module) -> Built:
        """What `build` makes of the model's twin.

        Raises:
            BackendError: the model has hooks, which its twin would not run.
        """
        self._require_no_hooks(model)
        state = _state(model)
        known = self._model is not None and self._model() is model and self._state == state
        if self._built is None or not known:
            self._model = None
            self._built = self._build(twin(model))
            self._model, self._state = ref(model), state
        return self._built

    def _require_no_hooks(self, model: nn.Module) -> None:
        for name, module in model.named_modules():
            for hook in chain(module._forward_hooks.values(), module._forward_pre_hooks.values()):
                if not (getattr(hook, "__module__", None) or "").startswith(_OWN):
                    raise BackendError(
                        f"{name or type(model).__name__} has a forward hook; backend "
                        f"{self._backend!r} runs its own modules around the model's weights, "
                        "where it would not count. Close every open Capture and Edit first, or "
                        "use backend 'native'."
                    )


def _state(model: nn.Module) -> tuple[object, ...]:
    """All that a twin shares or copies and that may be exchanged later.

    The twin keeps the tensors alive, so their ids stay theirs.
    """
    attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
    return (model.training, attention, *map(id, _tensors(model)))


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    return chain(model.parameters(), model.buffers())
