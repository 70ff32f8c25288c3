"""This project's own hooks as a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hooks.capture import Capture
from hooks.edit import Edit
from hooks.positions import LAST_PROMPT, LAST_PROMPT_GENERATED
from hooks.sites import HEAD_OUT


class NativeBackend:
    """Plain forward hooks: `hooks.capture` and `hooks.edit`. See `hooks.backends.backend.Backend`.

    The only backend for which a capture or an edit around it counts, too.
    """

    name = "native"

    def read(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT,
        layers: Sequence[int] | None = None,
        items: Sequence[str] | None = None,
    ) -> Tensor:
        """`[B, P, L, H, D]`; see `Backend.read`."""
        with torch.no_grad(), Capture(model, site, positions, layers) as capture:
            model(**inputs)
            return capture.take(items)

    def logits(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        delta: Tensor,
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT_GENERATED,
    ) -> Tensor:
        """`[B, T, V]`; see `Backend.logits`."""
        with torch.no_grad(), Edit(model, delta, site, positions):
            return model(**inputs).logits
