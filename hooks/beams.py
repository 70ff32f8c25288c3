"""Noticing beam search, which moves rows between steps without telling the forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sally_anne.core.errors import CaptureError


class BeamGuard:
    """Watches a KV cache and raises when its rows are reordered.

    After a reorder row b continues another row's text, so positions stacked over steps would mix
    different beams. Only the cache is told about the reorder, hence the watch on it: an instance
    attribute stands in front of its method until `release`.
    """

    def __init__(self) -> None:
        self._cache: Any = None

    def watch(self, cache: Any) -> None:
        """Watch this cache, and no other."""
        if cache is self._cache:
            return
        self.release()
        if cache is None or not hasattr(cache, "reorder_cache"):
            return
        reorder = cache.reorder_cache

        def guarded(beam_idx: Tensor) -> None:
            if not torch.equal(beam_idx, torch.arange(len(beam_idx), device=beam_idx.device)):
                raise CaptureError(
                    "beam search reordered the rows while generated positions are captured; they "
                    "would mix beams. Use num_beams=1, or positions 'last_prompt'."
                )
            reorder(beam_idx)

        cache.reorder_cache = guarded
        self._cache = cache

    def release(self) -> None:
        """Leave the cache as it was."""
        if self._cache is not None:
            vars(self._cache).pop("reorder_cache", None)
            self._cache = None
