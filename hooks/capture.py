"""Reading the activations of all heads while a model runs, with plain forward hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hooks.beams import BeamGuard
from hooks.eager import allow_compiled, keep_eager, uncompiled
from hooks.finite import require_finite
from hooks.geometry import find_geometry
from hooks.positions import ALL, GENERATED, LAST_PROMPT_GENERATED, PassTracker, fresh_index
from hooks.sites import HEAD_OUT, RESID, SITES, slice_width
from sally_anne.core.errors import CaptureError, GeometryError


class Capture:
    """Copies activations out of a model while the `with` block is open.

        with Capture(model, positions="last_prompt") as cap:
            for batch in batches:
                model(**batch)
                z = cap.take(items=ids)      # [B, 1, L, H, D], on the CPU

    Sites:
        head_out: the input of W_o split in heads, D = head width. The definition of the GridToM
            paper (ICML 2025), and the only site where a slice is a head.
        attn_out: the output of W_o cut in H slices of hidden / H.
        resid: the residual stream after the layer cut in H slices of hidden / H.

    With `model.generate` the pass that reads the prompt gives the first new token, and a generated
    token is seen only if it is fed back: n new tokens show n - 1 `generated` positions, and
    `last_prompt+generated` shows n (one more on mps, where generate checks for the end a step
    late). Rows that end early go on as padding that the model sees as real; drop those by the
    generated ids. Beam search reorders rows between steps, so it raises where generated positions
    are captured.

    A compiled model runs eagerly while a capture is open (see `hooks.eager`). Captures nest. Hooks
    run in the order they were set: a capture opened inside a steering context sees the steered
    activations, one opened outside sees them as they were.

    Args:
        model: the Hugging Face model whose forward will be called, not a part of it.
        site: one of SITES.
        positions: a spec of `hooks.positions`. With `all`, padding is left out: the real tokens of
            each row come first, in order, and zeros fill the shorter rows (see `valid`).
        layers: the layers to capture, in this order; all by default.
        device: where the result lies.

    Attributes:
        valid: `[B, P]` bool of the last `take`, False where a row was filled with zeros.

    Raises:
        GeometryError: the heads are not found, a layer is out of range, or H does not divide the
            hidden size at a site cut in slices.
        CaptureError: unknown site.
        PositionError: unknown positions; during a forward, tokens that cannot be told apart.
    """

    def __init__(
        self,
        model: nn.Module,
        site: str = HEAD_OUT,
        positions: str = "last_prompt",
        layers: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if site not in SITES:
            raise CaptureError(f"unknown site {site!r}: choose one of {', '.join(SITES)}.")
        self.model = model = uncompiled(model)
        self.site = site
        self.positions = positions
        self.device = torch.device(device)
        self.geometry = find_geometry(model)
        self.layers = _chosen_layers(layers, self.geometry.n_layers)
        slice_width(self.geometry, site)
        self.valid: Tensor | None = None
        self._tracker = PassTracker(positions)
        self._beams = BeamGuard() if positions in (GENERATED, LAST_PROMPT_GENERATED) else None
        self._handles: list[RemovableHandle] = []
        self._clear()

    def __enter__(self) -> Capture:
        if self._handles:
            raise CaptureError("this capture is already open; make another one to nest.")
        self._clear()
        keep_eager()
        try:
            self._add_hooks()
        except BaseException:
            self._remove_hooks()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove_hooks()

    def take(self, items: Sequence[str] | None = None) -> Tensor:
        """Hand over what was captured since the last `take`, and forget it.

        Args:
            items: one id per row, to name in errors.

        Returns:
            `[B, P, L, H, D]` in the model's dtype, on `device`. P = 1 for `last_prompt`; generated
            positions follow in the order they were made.

        Raises:
            CaptureError: no forward has run, none held a position asked for, or the number of items
                is not the number of rows.
            NonFiniteError: an activation is NaN or infinite; names the item and the layer.
        """
        parts, valids = self._done, self._valids
        ran, aborted = self._n_passes, self._index is not None
        self._clear()
        if aborted:
            raise CaptureError("nothing to take: the last forward pass broke off with an error.")
        if not ran:
            raise CaptureError(
                "nothing captured: no forward pass ran since the capture was opened or last taken."
            )
        if not parts:
            raise CaptureError(
                f"nothing captured: none of the {ran} forward passes held a position "
                f"{self.positions!r}."
            )
        activations = torch.cat(parts, dim=1)
        valid = torch.cat(valids, dim=1)
        if self.positions == ALL:
            activations, valid = _close_gaps(activations, valid)
        rows = activations.shape[0]
        if items is not None and len(items) != rows:
            raise CaptureError(
                f"{len(items)} items, but the model ran {rows} rows (beams and "
                "num_return_sequences multiply rows)."
            )
        require_finite(activations.movedim(2, 1), items, self.layers)
        self.valid = valid
        return activations

    def _clear(self) -> None:
        self._tracker.reset()
        self._done: list[Tensor] = []
        self._valids: list[Tensor] = []
        self._n_passes = 0
        self._begin(None, None)

    def _begin(self, index: Tensor | None, valid: Tensor | None) -> None:
        self._index = index
        self._valid = valid
        self._ran: set[int] = set()
        self._pieces: dict[int, Tensor] = {}

    def _add_hooks(self) -> None:
        self._handles.append(
            self.model.register_forward_pre_hook(self._before_model, with_kwargs=True)
        )
        for layer in self.layers:
            if self.site == RESID:
                block = self.model.get_submodule(self.geometry.layer_names[layer])
                self._handles.append(block.register_forward_hook(self._on_output(layer)))
                continue
            o_proj = self.model.get_submodule(self.geometry.o_proj_names[layer])
            if self.site == HEAD_OUT:
                self._handles.append(o_proj.register_forward_pre_hook(self._on_input(layer)))
            else:
                self._handles.append(o_proj.register_forward_hook(self._on_output(layer)))
        self._handles.append(self.model.register_forward_hook(self._after_model))

    def _remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        allow_compiled()
        if self._beams is not None:
            self._beams.release()

    def _before_model(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self._index is not None:
            # The pass before broke off with an error that the caller caught, to try again.
            self._clear()
        at = self._tracker.follow(model, args, kwargs)
        if at.new_sequence and self._n_passes:
            raise CaptureError(
                "a new batch began before the last one was taken: call take() after each batch. "
                "(Beam search without a cache looks like this, too.)"
            )
        index, valid = fresh_index(self.positions, at)
        self._n_columns = at.n_columns
        if self._beams is not None:
            self._beams.watch(kwargs.get("past_key_values"))
        self._begin(index, valid)

    def _on_input(self, layer: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            self._keep(layer, args[0])

        return hook

    def _on_output(self, layer: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            self._keep(layer, output[0] if isinstance(output, tuple) else output)

        return hook

    def _keep(self, layer: int, activation: Tensor) -> None:
        """Copy the positions asked for out of `[B, T, W]`, on the layer's own device."""
        if self._index is None:
            raise CaptureError(
                f"layer {layer} ran outside a forward pass of the {type(self.model).__name__} "
                "given to Capture. Call that model, not a part of it."
            )
        if activation.shape[:2] != (self._index.shape[0], self._n_columns):
            raise CaptureError(
                f"layer {layer} works on {tuple(activation.shape[:2])} [batch, tokens], the model "
                f"was given {(self._index.shape[0], self._n_columns)}: positions would be wrong."
            )
        self._ran.add(layer)
        if not self._index.shape[1]:
            return
        index = self._index.to(activation.device)
        rows = torch.arange(index.shape[0], device=activation.device)[:, None]
        piece = activation.detach()[rows, index]
        # Every token of every layer would fill the accelerator; few positions travel together.
        self._pieces[layer] = self._move(piece) if self.positions == ALL else piece

    def _after_model(self, model: nn.Module, args: Any, output: Any) -> None:
        if self._index is None or self._valid is None:
            return
        if missing := [layer for layer in self.layers if layer not in self._ran]:
            raise CaptureError(
                f"layers {missing} did not run in this forward pass of the {type(model).__name__}: "
                "use the model's own layers, as they are, not compiled."
            )
        if self._index.shape[1]:
            pieces = [self._pieces[layer] for layer in self.layers]
            if len({piece.device for piece in pieces}) > 1:
                pieces = [self._move(piece) for piece in pieces]
            stacked = self._move(torch.stack(pieces, dim=2))
            self._done.append(stacked.unflatten(-1, (self.geometry.n_heads, -1)))
            self._valids.append(self._valid.to(stacked.device))
        self._n_passes += 1
        self._begin(None, None)

    def _move(self, tensor: Tensor) -> Tensor:
        # There are no numbers to move off the meta device.
        return tensor if tensor.device.type == "meta" else tensor.to(self.device)


def _chosen_layers(layers: Sequence[int] | None, n_layers: int) -> tuple[int, ...]:
    if layers is None:
        return tuple(range(n_layers))
    chosen = tuple(layers)
    wrong = [layer for layer in chosen if not 0 <= layer < n_layers]
    if wrong or not chosen or len(set(chosen)) != len(chosen):
        raise GeometryError(
            f"layers {list(chosen)}: name each layer once, from 0 to {n_layers - 1}."
        )
    return chosen


def _close_gaps(activations: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Move the real tokens of each row to the front and cut what no row needs."""
    if valid.device.type == "meta":
        return activations, valid
    order = torch.argsort((~valid).long(), dim=1, stable=True)[:, : int(valid.sum(1).max())]
    rows = torch.arange(valid.shape[0], device=valid.device)[:, None]
    valid = valid[rows, order]
    activations = activations[rows, order]
    activations[~valid] = 0
    return activations, valid
