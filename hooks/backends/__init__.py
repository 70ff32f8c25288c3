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

Inputs = Mapping[str, Any]
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
        inputs: Inputs,
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
        asked.before_pass(asked.model, (), dict(inputs))
        for layer, piece in self._read(asked, inputs).items():
            asked.keep(layer, piece.detach())
        asked.after_pass(asked.model, (), None)
        return asked.take(items)

    def logits(
        self,
        model: nn.Module,
        inputs: Inputs,
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
        asked = Edit(model, delta, site, positions)
        asked.before_pass(asked.model, (), dict(inputs))
        vectors = {layer: asked.vectors(layer)[:, None] for layer in asked.layers}
        return self._add(asked, inputs, asked.mask[..., None], vectors)

    def _read(self, asked: Capture, inputs: Inputs) -> dict[int, Tensor]:
        """`[B, P, W]` of each layer asked for, at `asked.rows [B, 1]` and `asked.index [B, P]`."""
        raise NotImplementedError

    def _add(
        self, asked: Edit, inputs: Inputs, mask: Tensor, vectors: Mapping[int, Tensor]
    ) -> Tensor:
        """The logits with `[1 or B, 1, W]` of each layer added where `mask [B, T, 1]` is set."""
        raise NotImplementedError


class NativeBackend(Backend):
    """Plain forward hooks: `hooks.capture` and `hooks.edit`.

    The only backend for which a capture or an edit around it counts, too.
    """

    name = NATIVE

    def read(
        self,
        model: nn.Module,
        inputs: Inputs,
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT,
        layers: Sequence[int] | None = None,
        items: Sequence[str] | None = None,
    ) -> Tensor:
        """See `Backend.read`."""
        with torch.no_grad(), Capture(model, site, positions, layers) as capture:
            model(**inputs)
            return capture.take(items)

    def logits(
        self,
        model: nn.Module,
        inputs: Inputs,
        delta: Tensor,
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT_GENERATED,
    ) -> Tensor:
        """See `Backend.logits`."""
        with torch.no_grad(), Edit(model, delta, site, positions):
            return model(**inputs).logits


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
