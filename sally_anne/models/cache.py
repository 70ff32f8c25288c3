"""A cache with room at its end: a new token is written beside the old ones, which stay in place.

The usual cache is copied whole for every token. That is most of the work where many answers go on
from one long beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

if TYPE_CHECKING:
    import torch

    from hooks.geometry import Geometry

ROOM = 32


def row_bytes(geometry: Geometry, tokens: int, itemsize: int) -> int:
    """What the keys and values of a row take in all layers.

    Args:
        geometry: the decoder's heads.
        tokens: of prompt and reply.
        itemsize: bytes of a number.
    """
    return 2 * geometry.n_layers * geometry.n_kv_heads * geometry.head_dim * tokens * itemsize


def row_bytes_by_device(model: Any, tokens: int) -> dict[torch.device, int]:
    """What a row's cache takes on each device that holds layers of ``model``."""
    from collections import Counter

    import torch

    from hooks.geometry import find_geometry, o_projs

    places: Counter[torch.device] = Counter()
    for o_proj in o_projs(model):
        # Offloaded weights are nowhere, and computed with where accelerate brings them.
        brought = getattr(getattr(o_proj, "_hf_hook", None), "execution_device", None)
        place: Any = o_proj.weight.device if brought is None else brought
        places[torch.device(place)] += 1
    geometry = find_geometry(model)
    whole = row_bytes(geometry, tokens, model.dtype.itemsize)
    return {device: whole * n // geometry.n_layers for device, n in places.items()}


class RoomyLayer(DynamicLayer):
    """Keys and values of one layer, ``[R, kv heads, T, D]``, as views into longer tensors.

    Args:
        keys: of the beginnings, ``[G, kv heads, T, D]``.
        values: the same shape.
        index: for each of R rows, its beginning.
        room: tokens that fit before the tensors have to grow.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor, index: Tensor, room: int = ROOM) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self._room = room
        self._long_keys, self._long_values = (
            self._with_room(t.index_select(0, index)) for t in (keys, values)
        )
        self._show(keys.shape[-2])

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write new tokens behind the old ones; returns all."""
        start = self.keys.shape[-2]
        end = start + key_states.shape[-2]
        if end > self._long_keys.shape[-2]:
            self._room = max(self._room, end - start)
            self._long_keys = self._with_room(self.keys)
            self._long_values = self._with_room(self.values)
        self._long_keys[..., start:end, :] = key_states
        self._long_values[..., start:end, :] = value_states
        self._show(end)
        return self.keys, self.values

    def move(self, columns: Tensor) -> None:
        """Put in each column ``[R, T]`` what is in another one now."""
        here = slice(0, columns.shape[1])
        for long in (self._long_keys, self._long_values):
            index = columns[:, None, :, None].expand(-1, long.shape[1], -1, long.shape[3])
            long[..., here, :] = long[..., here, :].gather(2, index)

    def _with_room(self, tensor: Tensor) -> Tensor:
        *outer, tokens, width = tensor.shape
        longer = tensor.new_empty(*outer, tokens + self._room, width)
        longer[..., :tokens, :] = tensor
        return longer

    def _show(self, tokens: int) -> None:
        self.keys = self._long_keys[..., :tokens, :]
        self.values = self._long_values[..., :tokens, :]


def select(cache: Any, index: Tensor, columns: Tensor | None = None) -> DynamicCache:
    """A new cache that holds the rows ``index`` of ``cache``, with room to go on.

    Args:
        cache: of ``G`` rows and ``T`` tokens; left as it is.
        index: ``[R]``.
        columns: ``[R, T]``, for each place in the new rows the one it comes from; all stay where
            they are by default.
    """
    rows = [
        RoomyLayer(layer.keys, layer.values, index.to(layer.keys.device)) for layer in cache.layers
    ]
    if columns is not None:
        for layer in rows:
            layer.move(columns.to(layer.keys.device))
    chosen = DynamicCache()
    chosen.layer_class_to_replicate = None
    chosen.layers = list(rows)
    return chosen
