"""Other libraries that read and steer the same activations, behind one small class.

Here: what every backend does, the hooks of this project (`native`) and the choice by name. Beside
it nnsight (`with_nnsight`) and TransformerLens (`with_transformer_lens`), with TransformerLens
adapters for the model families it lacks (`transformer_lens_adapters`).

All backends agree on what is read and where; `native` is the one that also follows generation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from hooks.capture import Capture
from hooks.edit import Edit
from hooks.geometry import HEAD_OUT
from hooks.positions import LAST_PROMPT, LAST_PROMPT_GENERATED
from sally_anne.core.errors import BackendError

NATIVE = "native"
# Name, which is that of the package: module and class. Both are imported late: they are slow.
_OTHERS = {
    "nnsight": ("hooks.backends.with_nnsight", "NnsightBackend"),
    "transformer_lens": ("hooks.backends.with_transformer_lens", "TransformerLensBackend"),
}
BACKENDS = (NATIVE, *_OTHERS)


class Backend:
    """Reads and steers the heads of a model in one forward pass.

    `model` is the Hugging Face model and stays as it is; `inputs` are the keyword arguments of its
    forward, on its device, frames included. Sites and positions are those of `hooks.capture`. In a
    single pass nothing is generated yet: `last_prompt+generated` means the last prompt token.

    Inputs may go on from a cache. Give `position_ids` then: Qwen2-VL else takes them from what it
    read last, and a backend may run modules that have read nothing.

    Attributes:
        name: one of BACKENDS.
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
        """The activations `[B, P, L, H, D]`, on the CPU, in the model's dtype.

        With positions `all`, the real tokens of each row come first, and zeros fill shorter rows.
        `items` names the rows in errors.

        Raises:
            GeometryError, CaptureError, PositionError, NonFiniteError: as `hooks.capture.Capture`.
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
        """The logits `[B, T, V]` of the model with `delta` added at the positions.

        Args:
            delta: `[L, H, D]`, or `[B, L, H, D]` with a vector of its own for each row.

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
    """Plain forward hooks: `hooks.capture` and `hooks.edit`.

    The only backend for which a capture or an edit around it counts, too.
    """

    name = NATIVE

    def _read(self, asked: Capture, inputs: dict[str, Any]) -> None:
        with torch.no_grad(), asked:
            asked.model(**inputs)

    def _add(self, asked: Edit, inputs: dict[str, Any]) -> Tensor:
        with torch.no_grad(), asked:
            return asked.model(**inputs).logits


def backend(name: str = NATIVE, **options: Any) -> Backend:
    """The backend of that name.

    Args:
        name: one of BACKENDS.
        options: of that backend; `nnsight` takes `remote`, the others none.

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
