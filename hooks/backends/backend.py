"""What every backend can do, and the choice of one by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from torch import Tensor, nn

from hooks.backends.native import NativeBackend
from sally_anne.core.errors import BackendError

NATIVE = "native"
# Name, which is that of the package: module and class. Both are imported late: they are slow.
_OTHERS = {
    "nnsight": ("hooks.backends.with_nnsight", "NnsightBackend"),
    "transformer_lens": ("hooks.backends.with_transformer_lens", "TransformerLensBackend"),
}
BACKENDS = (NATIVE, *_OTHERS)


class Backend(Protocol):
    """Reads and steers the heads of a model in one forward pass.

    `model` is the Hugging Face model and stays as it is; `inputs` are the keyword arguments of its
    forward, on its device, frames included. Sites and positions are those of `hooks.capture`. In a
    single pass nothing is generated yet: `last_prompt+generated` means the last prompt token.

    Inputs may go on from a cache. Give `position_ids` then: Qwen2-VL else takes them from what it
    read last, and a backend may run modules that have read nothing.
    """

    @property
    def name(self) -> str:
        """One of BACKENDS."""
        ...

    def read(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        site: str = ...,
        positions: str = ...,
        layers: Sequence[int] | None = ...,
        items: Sequence[str] | None = ...,
    ) -> Tensor:
        """The activations `[B, P, L, H, D]`, on the CPU, in the model's dtype.

        With positions `all`, the real tokens of each row come first, and zeros fill shorter rows.
        `items` names the rows in errors.

        Raises:
            GeometryError, CaptureError, PositionError, NonFiniteError: as `hooks.capture.Capture`.
            BackendError: the backend cannot run this model.
        """
        ...

    def logits(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        delta: Tensor,
        site: str = ...,
        positions: str = ...,
    ) -> Tensor:
        """The logits `[B, T, V]` of the model with `delta` added at the positions.

        Args:
            delta: `[L, H, D]`, or `[B, L, H, D]` with a vector of its own for each row.

        Raises:
            GeometryError, EditError, PositionError: as `hooks.edit.Edit`.
            BackendError: the backend cannot run this model.
        """
        ...


def backend(name: str = NATIVE, **options: Any) -> Backend:
    """The backend of that name.

    Args:
        name: one of BACKENDS.
        options: of that backend; `nnsight` takes `remote`, the others none.

    Raises:
        BackendError: an unknown name or option, or a package that is not installed.
    """
    if name != NATIVE and name not in _OTHERS:
        raise BackendError(f"unknown backend {name!r}: choose one of {', '.join(BACKENDS)}.")
    if name == NATIVE:
        made: Any = NativeBackend
    else:
        module, attribute = _OTHERS[name]
        if find_spec(name) is None:
            raise BackendError(
                f"backend {name!r} needs the package {name!r}, a dependency that is missing here: "
                f"pip install {name.replace('_', '-')}, or use backend {NATIVE!r}."
            )
        made = getattr(import_module(module), attribute)
    try:
        return made(**options)
    except TypeError as error:
        raise BackendError(f"backend {name!r} does not take these options: {error}") from error
