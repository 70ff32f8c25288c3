"""Adding vectors to the activations of heads while a model runs, with plain forward hooks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hooks.geometry import HEAD_OUT, Geometry, slice_width
from hooks.model_hooks import ModelHooks, attach
from hooks.positions import LAST_PROMPT_GENERATED, Pass, position_mask
from sally_anne.core.errors import EditError


@dataclass(frozen=True)
class Gate:
    """A probe on one head that says, at each token, whether to edit there.

    Attributes:
        layer, head: where it reads `head_out`; not after the first edited layer.
        weight: `[D]`.
        bias: intercept.
        threshold: probability.
        above: edit where the probability is above the threshold; else where it is not.
    """

    layer: int
    head: int
    weight: Tensor
    bias: float
    threshold: float = 0.5
    above: bool = True


class Edit(ModelHooks):
    """Adds vectors to head slices while the `with` block is open.

        with Edit(model, delta):                  # delta [L, H, D]
            model.generate(**inputs)

    The same positions are edited whether the sequence is padded or not, cached or not. Rows of a
    batch may have vectors of their own: `delta [B, L, H, D]`; when the model runs n rows for each
    (beams, several returned sequences), n neighbouring rows share one. A zero slice adds nothing:
    activations keep their bits.

    Edits nest, and what they add adds up. The same object opens once at a time and may be opened
    again. After the block, also after an exception in it, the model has no hook left.

    A compiled model runs eagerly while an edit is open (see `hooks.model_hooks`). A pass in which
    an edited layer did not run raises; a block in which the model was not called does not.

    Sites (as in `hooks.capture`):
        head_out: before W_o, the definition of the GridToM paper (equation 4); D = head width.
        attn_out: after W_o, in slices of hidden / H, as the paper's released code does.
        resid: after the layer, in slices of hidden / H.

    Args:
        model: the Hugging Face model whose forward will be called, not a part of it.
        delta: what is added, `[L, H, D]` or `[B, L, H, D]`, in the model's own units.
        site: one of `hooks.geometry.SITES`.
        positions: a spec of `hooks.positions`.
        gate: edit only the tokens at which this probe says so.

    Raises:
        EditError: the shape does not fit the model, a value is not finite in the model's dtype, an
            unknown site, or a gate behind the edit; during a forward, rows that do not fit `B`, a
            layer that did not run, or a sum that is not finite.
        GeometryError: the heads are not found.
        PositionError: unknown positions; during a forward, tokens that cannot be told apart.
    """

    error = EditError

    def __init__(
        self,
        model: nn.Module,
        delta: Tensor,
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT_GENERATED,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(model, site, positions, rows_may_move=True)
        self.gate = gate
        self.delta = _checked(delta, self.geometry, site)
        weight = getattr(self.model.get_submodule(self.geometry.o_proj_names[0]), "weight", delta)
        # A quantised weight is packed into whole numbers; its layer runs in another dtype.
        if weight.is_floating_point():
            _require_finite(self.delta.to(weight.dtype))
        used = self.delta.ne(0).flatten(2).any(-1).any(0)  # [L]
        self.layers = tuple(int(layer) for layer in used.nonzero()[:, 0])
        if gate is not None:
            _check_gate(gate, self.geometry, self.layers)

    def vectors(self, layer: int) -> Tensor:
        """What is added in a layer of the running pass, `[1 or R, W]`."""
        vectors, rows = self.delta[:, layer].flatten(1), len(self.mask)
        if len(vectors) == 1:
            return vectors
        if rows % len(vectors):
            raise EditError(
                f"delta has vectors for {len(vectors)} rows, but the model runs {rows} rows."
            )
        return vectors.repeat_interleave(rows // len(vectors), dim=0)

    def _add_hooks(self) -> None:
        add = self._handles.append
        add(self.model.register_forward_hook(self._after_error, always_call=True))
        if self.gate is not None:
            see = partial(self._read_gate, self.gate)
            add(attach(self.model, self.geometry, HEAD_OUT, self.gate.layer, see))
        super()._add_hooks()

    def _after_error(self, model: nn.Module, args: Any, output: Any) -> None:
        if output is None:
            # The caller may catch it to try again; what runs before is outside of a pass.
            self._reset()

    def _begin(self, at: Pass, cache: Any) -> None:
        self.mask = position_mask(self.positions, at)
        self._open_gate: Tensor | None = None
        # For each layer, which heads became infinite or NaN: bool [H].
        self._broken: dict[int, Tensor] = {}

    def _end(self) -> None:
        # One look at the end of a pass: each makes an accelerator wait.
        first = self._broken[self.layers[0]]
        heads = torch.stack([self._broken[layer].to(first) for layer in self.layers])
        if not heads.is_meta and bool(heads.any()):
            row, head = heads.nonzero()[0].tolist()
            raise EditError(
                f"layer {self.layers[row]} head {head} is not finite any more once delta is added: "
                "too much for the model's dtype. Lower alpha, or load the model in a wider dtype."
            )

    def _read_gate(self, gate: Gate, activation: Tensor) -> None:
        width = self.geometry.head_dim
        z = activation[..., gate.head * width : (gate.head + 1) * width].detach().float()
        likely = torch.sigmoid(z @ gate.weight.to(z) + gate.bias)
        self._open_gate = (likely > gate.threshold) == gate.above

    def _see(self, layer: int, activation: Tensor) -> Tensor:
        """`activation [R, T, W]` with the layer's vectors added at the positions."""
        mask = self.mask.to(activation.device)
        if self.gate is not None:
            if self._open_gate is None:
                raise EditError(f"the gate's layer {self.gate.layer} did not run before {layer}.")
            mask = mask & self._open_gate.to(activation.device)
        vectors = self.vectors(layer).to(activation.device, activation.dtype)[:, None]
        # Zeros are not added: -0.0 would lose its sign.
        added = torch.where(mask[..., None] & vectors.ne(0), activation + vectors, activation)
        broken = activation.isfinite() & ~added.isfinite()
        self._broken[layer] = (
            broken.flatten(0, 1).unflatten(-1, (self.delta.shape[2], -1)).any(-1).any(0)
        )
        return added


def _checked(delta: Tensor, geometry: Geometry, site: str) -> Tensor:
    wanted = (geometry.n_layers, geometry.n_heads, slice_width(geometry, site))
    if delta.ndim not in (3, 4) or tuple(delta.shape[-3:]) != wanted:
        raise EditError(
            f"delta has shape {list(delta.shape)}; this model takes [{', '.join(map(str, wanted))}]"
            f" or [B, {', '.join(map(str, wanted))}] (layers, heads, width at {site})."
        )
    if delta.ndim == 3:
        delta = delta[None]
    _require_finite(delta)
    return delta.detach()


def _require_finite(delta: Tensor) -> None:
    """That `delta [B, L, H, D]` is finite in its dtype."""
    if not bool(torch.isfinite(delta).all()):
        _, layer, head, _ = (~torch.isfinite(delta)).nonzero()[0].tolist()
        kind = str(delta.dtype).removeprefix("torch.")
        raise EditError(
            f"delta is not finite at layer {layer} head {head} in {kind} (at most "
            f"{torch.finfo(delta.dtype).max:.4g}). Lower alpha, or load the model in a wider dtype."
        )


def _check_gate(gate: Gate, geometry: Geometry, layers: tuple[int, ...]) -> None:
    if not (0 <= gate.layer < geometry.n_layers and 0 <= gate.head < geometry.n_heads):
        raise EditError(
            f"the gate reads layer {gate.layer} head {gate.head}; the model has "
            f"{geometry.n_layers} layers of {geometry.n_heads} heads."
        )
    if tuple(gate.weight.shape) != (geometry.head_dim,):
        raise EditError(
            f"the gate's weight has shape {list(gate.weight.shape)}, a head is "
            f"{geometry.head_dim} wide."
        )
    if not (math.isfinite(gate.bias) and 0 <= gate.threshold <= 1):
        raise EditError(f"gate: bias {gate.bias}, threshold {gate.threshold} (a probability).")
    if layers and gate.layer > layers[0]:
        raise EditError(
            f"the gate reads layer {gate.layer}, but layer {layers[0]} is edited before it: on the "
            "same pass a probe can only decide about its own and later layers."
        )
