"""Reading the activations of all heads while a model runs, and where they look."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from sally_anne.core.errors import HookError
from sally_anne.hooks.geometry import HEAD_OUT, slice_width
from sally_anne.hooks.model_hooks import AttentionHooks, ModelHooks, Read
from sally_anne.hooks.positions import ALL, LAST_PROMPT, Pass, fresh_index


class Capture(ModelHooks):
    """Copies activations out of a model while the `with` block is open.

        with Capture(model, positions="last_prompt") as cap:
            for batch in batches:
                model(**batch)
                z = cap.take(items=ids)      # [B, 1, L, H, D], on the CPU

    At `head_out`, the input of W_o split in heads, a slice is a head (GridToM paper, ICML 2025).
    The output of W_o (`attn_out`) and the residual stream after the layer (`resid`) are cut in H
    slices of hidden / H.

    With `model.generate` a generated token is seen only if it is fed back: n new tokens show n - 1
    `generated` positions, and `last_prompt+generated` shows n. Rows that end early go on as padding
    that the model sees as real; drop those by the generated ids. Beam search, which reorders rows
    between steps, is refused where generated positions are captured.

    Captures nest; one that is opened inside a steering context sees the steered activations.

    Args:
        model, site: as of `ModelHooks`.
        positions: a spec of `hooks.positions`. With `all`, padding is left out: the real tokens of
            each row come first, in order, and zeros fill the shorter rows.
        layers: the layers to capture, in this order; all by default.
        device: where the result lies.

    Attributes:
        valid: `[B, P]` bool of the last `take`, False where a row was filled with zeros.

    Raises:
        HookError: the heads are not found, no such layer, site or positions, or no equal slices
            there; during a forward, tokens that cannot be distinguished.
    """

    def __init__(
        self,
        model: nn.Module,
        site: str = HEAD_OUT,
        positions: str = "last_prompt",
        layers: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, site, positions)
        self.device = torch.device(device)
        there = range(self.geometry.n_layers)
        self.layers = tuple(there if layers is None else layers)
        if not self.layers or len(set(self.layers) & set(there)) < len(self.layers):
            own = list(self.layers)
            raise HookError(f"layers {own}: name each layer once, from 0 to {there[-1]}.")
        slice_width(self.geometry, site)
        self.valid: Tensor | None = None

    def take(self, items: Sequence[str] | None = None) -> Tensor:
        """Hand over what was captured since the last `take`, and forget it.

        `[B, P, L, H, D]` in the model's dtype, on `device`. P = 1 for `last_prompt`; generated
        positions follow in the order they were made. A HookError if there is nothing to take or not
        an item a row, a HookError that names item and layer of what is NaN or infinite.
        """
        done, ran, aborted = self._done, self._n_passes, self._pass is not None
        self._reset()
        if aborted:
            raise HookError("nothing captured: the last forward pass ended with an error.")
        if not done:
            raise HookError(f"nothing captured: {ran} forward passes, none at {self.positions!r}.")
        activations, valid = (torch.cat(parts, dim=1) for parts in zip(*done, strict=True))
        if self.positions == ALL:
            activations, valid = _close_gaps(activations, valid)
        rows = activations.shape[0]
        if items is not None and len(items) != rows:
            raise HookError(f"{len(items)} items, but the model ran {rows} rows (beams?).")
        self._require_finite(activations, items)
        self.valid = valid
        return activations

    def _require_finite(self, activations: Tensor, items: Sequence[str] | None) -> None:
        if activations.is_meta or not activations.numel():
            return
        broken = ~torch.isfinite(activations).flatten(3).all(dim=3).all(dim=1)  # [B, L]
        if rows := broken.any(dim=1).nonzero().flatten().tolist():
            name = f"item {items[rows[0]]!r}" if items is not None else f"row {rows[0]}"
            where = f"{name} at layer {self.layers[int(broken[rows[0]].nonzero()[0])]}"
            raise HookError(
                f"activations of {len(rows)} rows are not finite, first {where}. float16 overflows "
                "in some models; try bfloat16 or float32, and look at the input."
            )

    def _reset(self) -> None:
        super()._reset()
        self._done: list[tuple[Tensor, Tensor]] = []
        self._n_passes = 0

    def _begin(self, at: Pass) -> None:
        if at.new_sequence and self._n_passes:
            raise HookError("a new batch or beam began before the last was taken by take().")
        self.index, self._valid = fresh_index(self.positions, at)
        self.rows = torch.arange(len(self.index), device=self.index.device)[:, None]
        self._pieces: dict[int, Tensor] = {}

    def see(self, layer: int, activation: Tensor) -> None:
        if self.index.shape[1]:
            self.keep(layer, self.at_positions(activation))

    def at_positions(self, activation: Tensor) -> Tensor:
        """Of a layer's `[B, T, ...]`, on its own device, the positions `[B, P, ...]`."""
        rows, index = self.rows.to(activation.device), self.index.to(activation.device)
        return activation.detach()[rows, index]

    def keep(self, layer: int, piece: Tensor) -> None:
        """Add `[B, P, W]` of a layer, at `rows [B, 1]` and `index [B, P]`, to the running pass."""
        self._ran.add(layer)
        # Every token of every layer would fill the accelerator; few positions travel together.
        self._pieces[layer] = self._move(piece) if self.positions == ALL else piece

    def _end(self) -> None:
        self._n_passes += 1
        if not self.index.shape[1]:
            return
        pieces = [self._pieces.pop(layer) for layer in self.layers]
        if len({piece.device for piece in pieces}) > 1:
            pieces = [self._move(piece) for piece in pieces]
        stacked = self._move(torch.stack(pieces, dim=2))
        heads = stacked.unflatten(-1, (self.geometry.n_heads, -1))
        self._done.append((heads, self._valid.to(heads.device)))

    def _move(self, tensor: Tensor) -> Tensor:
        # There are no numbers to move off the meta device.
        return tensor if tensor.is_meta else tensor.to(self.device)


def _close_gaps(activations: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Move the real tokens of each row to the front and cut what no row needs."""
    if valid.is_meta:
        return activations, valid
    order = torch.argsort((~valid).long(), dim=1, stable=True)[:, : int(valid.sum(1).max())]
    rows = torch.arange(len(valid), device=valid.device)[:, None]
    activations, valid = activations[rows, order], valid[rows, order]
    activations[~valid] = 0
    return activations, valid


class Looks(AttentionHooks, Capture):
    """Copies the attention of a prompt's last token out of a model while the `with` block is open.

        with Looks(model) as looks:
            model(**batch)
            weights = looks.take()      # [B, 1, L, H, T], on the CPU

    T counts the columns that are attended to, those of a cache first; padding has weight 0. A head
    gives 1 in all, or less where it has a sink that is no token (gpt-oss). The model attends as
    before; errors are as of `AttentionHooks` and `Capture`.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, HEAD_OUT, LAST_PROMPT)

    def look(self, layer: int, read: Callable[..., Read], output: Tensor) -> Tensor:
        """Keep the weights of the read row."""
        attend, *_ = read(index=self.index)
        weights = attend()[1]
        self.keep(layer, weights.detach().transpose(1, 2).flatten(2))
        return output
