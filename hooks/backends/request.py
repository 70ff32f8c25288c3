"""One reading or one steering of one forward pass, worked out before any library runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hooks.capture import Capture
from hooks.edit import Edit
from hooks.finite import require_finite
from hooks.geometry import Geometry
from hooks.positions import ALL, PassTracker, fresh_index, position_mask
from sally_anne.core.errors import CaptureError, EditError


@dataclass(frozen=True)
class Reading:
    """What to copy out of a forward pass.

    Attributes:
        geometry: of the model.
        site: where.
        layers: in the order asked for.
        index: `[B, P]` columns to copy in each row.
        valid: `[B, P]` bool, False where the column fills up a shorter row.
    """

    geometry: Geometry
    site: str
    layers: tuple[int, ...]
    index: Tensor
    valid: Tensor

    @property
    def rows(self) -> Tensor:
        """`[B, 1]`, to be used beside `index`."""
        return torch.arange(self.index.shape[0], device=self.index.device)[:, None]

    def assemble(self, pieces: Mapping[int, Tensor], items: Sequence[str] | None = None) -> Tensor:
        """`[B, P, L, H, D]` on the CPU from one `[B, P, W]` a layer.

        Raises:
            CaptureError: the number of items is not the number of rows.
            NonFiniteError: an activation is NaN or infinite; names the item and layer.
        """
        rows = self.index.shape[0]
        if items is not None and len(items) != rows:
            raise CaptureError(f"{len(items)} items, but the model ran {rows} rows.")
        stacked = torch.stack([pieces[layer].detach().cpu() for layer in self.layers], dim=2)
        stacked[~self.valid.cpu()] = 0
        require_finite(stacked.movedim(2, 1), items, self.layers)
        return stacked.unflatten(-1, (self.geometry.n_heads, -1))


@dataclass(frozen=True)
class Addition:
    """What to add in a forward pass.

    Attributes:
        geometry: of the model.
        site: where.
        mask: `[B, T]` bool, the columns to change.
        vectors: for each layer to change, in order, `[1 or B, 1, W]`.
    """

    geometry: Geometry
    site: str
    mask: Tensor
    vectors: dict[int, Tensor]


def reading(
    model: nn.Module,
    inputs: Mapping[str, Any],
    site: str,
    positions: str,
    layers: Sequence[int] | None,
) -> Reading:
    """Work out what to copy from `model(**inputs)`.

    Raises:
        GeometryError, CaptureError, PositionError: as `Capture`.
    """
    asked = Capture(model, site, positions, layers)
    at = PassTracker(positions).follow(model, (), dict(inputs))
    index, valid = fresh_index(positions, at)
    if not index.shape[1]:
        raise CaptureError(
            f"nothing to read: one forward pass over a prompt holds no position {positions!r}."
        )
    if positions == ALL:
        # Real columns first, in their order.
        order = torch.argsort((~valid).long(), dim=1, stable=True)[:, : int(valid.sum(1).max())]
        index, valid = index.gather(1, order), valid.gather(1, order)
    return Reading(asked.geometry, site, asked.layers, index, valid)


def addition(
    model: nn.Module, inputs: Mapping[str, Any], delta: Tensor, site: str, positions: str
) -> Addition:
    """Work out what to add in `model(**inputs)`.

    Raises:
        GeometryError, EditError, PositionError: as `Edit`.
    """
    asked = Edit(model, delta, site, positions)
    at = PassTracker(positions, rows_may_move=True).follow(model, (), dict(inputs))
    mask = position_mask(positions, at)
    rows, given = mask.shape[0], asked.delta
    if rows % len(given):
        raise EditError(f"delta has vectors for {len(given)} rows, but the model runs {rows} rows.")
    if len(given) > 1:
        given = given.repeat_interleave(rows // len(given), dim=0)
    vectors = {layer: given[:, layer].flatten(1)[:, None] for layer in asked.layers}
    return Addition(asked.geometry, site, mask, vectors)
