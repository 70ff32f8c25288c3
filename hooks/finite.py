"""The check that no activation is NaN or infinite, with an error that says where."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sally_anne.core.errors import NonFiniteError


def require_finite(
    activations: Tensor, items: Sequence[str] | None, layers: Sequence[int] | None = None
) -> None:
    """Check `[B, L, ...]`, of which row b belongs to `items[b]` and column l to `layers[l]`.

    Tensors on the meta device hold no numbers and pass.

    Raises:
        NonFiniteError: names every item with a bad value (three at most) and its first layer.
    """
    if activations.device.type == "meta" or not activations.numel():
        return
    finite = torch.isfinite(activations).flatten(2).all(dim=2)
    if bool(finite.all()):
        return
    bad_rows = (~finite).any(dim=1).nonzero().flatten().tolist()
    found = []
    for row in bad_rows[:3]:
        column = int((~finite[row]).nonzero()[0])
        layer = layers[column] if layers is not None else column
        name = f"item {items[row]!r}" if items is not None else f"row {row}"
        found.append(f"{name} at layer {layer}")
    more = f" and {len(bad_rows) - 3} more" if len(bad_rows) > 3 else ""
    raise NonFiniteError(
        f"activations are not finite: {', '.join(found)}{more}. "
        "float16 overflows in some models; try bfloat16 or float32, and look at the item's input."
    )
