"""A second set of modules around the very same weights.

Some libraries put their own modules or methods into a model and leave them there. They get a copy
that shares its weights; the model itself stays as it is.
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


def sharing_weights(model: nn.Module) -> nn.Module:
    """New modules that hold the parameters and buffers of `model`; nothing large is copied."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in _tensors(model)})


class SharedWeights(Generic[Built]):
    """What was built around a copy of the model used last, until that model changes."""

    def __init__(self, backend: str, build: Callable[[nn.Module], Built]) -> None:
        self._backend = backend
        self._build = build
        # Only a weak reference to the model: what shares its weights must not keep it alive.
        self._model: ref[nn.Module] | None = None
        self._state: tuple[object, ...] = ()
        self._built: Built | None = None

    def of(self, model: nn.Module) -> Built:
        """What `build` makes of a copy that shares the model's weights.

        Raises:
            BackendError: the model has hooks, which the copy would not run.
        """
        for name, module in model.named_modules():
            for hook in chain(module._forward_hooks.values(), module._forward_pre_hooks.values()):
                if not (getattr(hook, "__module__", None) or "").startswith(_OWN):
                    raise BackendError(
                        f"{name or type(model).__name__} has a forward hook; backend "
                        f"{self._backend!r} runs its own modules around the model's weights, "
                        "where it would not count. Close every open Capture and Edit first, or "
                        "use backend 'native'."
                    )
        # All that is shared or copied and may be exchanged later. The copy keeps the tensors alive,
        # so their ids stay theirs.
        attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
        state = (model.training, attention, *map(id, _tensors(model)))
        known = self._model is not None and self._model() is model and self._state == state
        if self._built is None or not known:
            self._model = None
            self._built = self._build(sharing_weights(model))
            self._model, self._state = ref(model), state
        return self._built


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    return chain(model.parameters(), model.buffers())
