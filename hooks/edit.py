"""Changing the activations of heads while a model runs, with plain forward hooks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from sally_anne.core.errors import HookError
from sally_anne.core.run import Head
from sally_anne.hooks.geometry import HEAD_OUT, find_geometry, slice_width
from sally_anne.hooks.model_hooks import AttentionHooks, ModelHooks, Read, attach
from sally_anne.hooks.positions import LAST_PROMPT_GENERATED, Pass, position_mask

How = Literal["add", "scale", "replace", "project_out"]
_TOO_MUCH = "lower alpha, or load the model in a wider dtype."


@dataclass(frozen=True)
class Gate:
    """A probe on one head that says, at each token, whether to edit there."""

    layer: int  # where it reads `head_out`; not after the first edited layer
    head: int
    weight: Tensor  # [D]
    bias: float
    threshold: float = 0.5  # probability
    above: bool = True  # edit where the probability is above it; else where it is not


def refuse_edited(model: nn.Module | None) -> None:
    """A HookError if a block that edits the model is open: no record would say so."""
    hooks = model._forward_pre_hooks.values() if model is not None else ()
    if any(isinstance(getattr(hook, "__self__", None), Edit) for hook in hooks):
        why = "which what is saved would not say: leave the block, or give the vector"
        raise HookError(f"the model is steered or edited by an open `with` block, {why}")


class Edit(ModelHooks):
    """Changes head slices while the `with` block is open.

        with Edit(model, delta):                                   # delta [L, H, D]
            model.generate(**inputs)
        with Edit(model, other.take()[:, 0], how="replace", heads=chosen):
            model(**inputs)                                        # activation patching

    How a slice z changes, given its values v:
        add: z + v, steering.
        scale: z v, a head weakened or strengthened.
        replace: v. Captured values patch, means ablate by the mean, zeros ablate to zero.
        project_out: z - (z.u) u with u = v / |v|: nothing is left along a direction.

    The same positions are edited whether the sequence is padded or not, cached or not. Rows of a
    batch may have values, positions and heads of their own; when the model runs n rows for each
    (beams, several returned sequences), n neighbouring rows share one. Heads that are not chosen
    keep their bits, and so do those that are replaced by what they were.

    Edits nest, and act in the order in which they were opened. After the block, also after an
    exception in it, the model has no hook left. Where `values` carries gradients, so do the logits.
    At `head_out` a slice is the head before W_o (GridToM paper, equation 4); elsewhere slices of
    hidden / H are edited, at `attn_out` as in the paper's released code.

    Args:
        model: as of `ModelHooks`, as are `site` and `positions`; P counts these in their order.
        values: `[L, H, D]`, `[B, L, H, D]` or `[B, P, L, H, D]`, in the model's own units.
        gate: edit only the tokens at which this probe says so.
        how: one of `How`.
        heads: which heads change, bool `[L, H]`, `[B, L, H]` or `[B, P, L, H]`; by default those
            whose values are not zero, to scale and to replace all.

    Raises:
        HookError: a shape does not fit the model, a value is not finite, a direction is zero, or a
            gate is behind the edit; during a forward, rows that do not fit `B`, more positions
            than `P`, a layer that did not run, or a result that is not finite.
        HookError: as of `hooks.capture.Capture`.
    """

    broken: ClassVar[str] = f"is not finite any more once it is edited: {_TOO_MUCH}"

    def __init__(
        self,
        model: nn.Module,
        values: Tensor,
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT_GENERATED,
        gate: Gate | None = None,
        how: How = "add",
        heads: Tensor | None = None,
    ) -> None:
        super().__init__(model, site, positions, rows_may_move=True)
        if how not in get_args(How):
            raise HookError(f"unknown way {how!r}: choose one of {', '.join(get_args(How))}.")
        self.gate, self.how = gate, how
        shape = self.geometry.n_layers, self.geometry.n_heads, slice_width(self.geometry, site)
        self.values = _whole("values", values, shape, f"layers, heads, width at {site}")
        weight = getattr(self.model.get_submodule(self.geometry.o_proj_names[0]), "weight", values)
        # A quantised weight is packed into numbers of a byte; its layer runs in another dtype.
        wide = weight.is_floating_point() and weight.dtype.itemsize > 1
        for dtype in {values.dtype} | ({weight.dtype} if wide else set()):
            broken = ~self.values.to(dtype).isfinite()
            if bool(broken.any()):
                where = Head(*broken.nonzero()[0].tolist()[-3:-1])
                most = f"{str(dtype).removeprefix('torch.')} (at most {torch.finfo(dtype).max:.4g})"
                raise HookError(f"values are not finite at {where} in {most}: {_TOO_MUCH}")
        if heads is None:
            some = self.values.ne(0).any(-1)
            heads = torch.ones_like(some[:1, :1]) if how in ("scale", "replace") else some
        self.heads = _whole("heads", heads, shape[:2], "layers, heads").bool()
        if how == "project_out":
            size = self.values.float().norm(dim=-1)
            if bool((size.eq(0) & self.heads).any()):
                raise HookError("project_out: the direction of a chosen head is zero.")
            self.values = self.values.float() / size.clamp(min=1e-30)[..., None]
        self._places = max(self.values.shape[1], self.heads.shape[1])
        self.layers = tuple(self.heads.any(-1).flatten(0, 1).any(0).nonzero()[:, 0].tolist())
        # Once, where the first layer is: each copy on the way makes an accelerator wait.
        if (home := next(self.model.parameters()).device).type != "meta":
            self.values, self.heads = self.values.to(home), self.heads.to(home)
        if gate is not None:
            self._check_gate(gate)

    def _here(self, tensor: Tensor) -> Tensor:
        """Of `[B, P, ...]` what belongs to the running pass, `[1 or R, 1 or T, ...]`."""
        rows, own = len(self.mask), len(tensor)
        if rows % own:
            raise HookError(f"there are values for {own} rows, but the model runs {rows} rows.")
        if own > 1:
            tensor = tensor.repeat_interleave(rows // own, dim=0)
        if tensor.shape[1] == 1:
            return tensor
        place = self._place.to(tensor.device)
        return tensor[torch.arange(rows, device=tensor.device)[:, None] % len(tensor), place]

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

    def _reset(self) -> None:
        super()._reset()
        # Of each row, how many positions earlier passes have shown.
        self._passed: Tensor | int = 0

    def _begin(self, at: Pass) -> None:
        self.mask = position_mask(self.positions, at)
        self._open_gate: Tensor | None = None
        # For each layer, which heads became infinite or NaN: bool [H].
        self._broken: dict[int, Tensor] = {}
        if self._places == 1:
            return
        # Without a cache each pass shows all positions again.
        before = 0 if at.new_sequence or at.n_seen else self._passed
        count = self.mask.cumsum(1) + before
        self._passed = count[:, -1:]
        if not self.mask.is_meta and (most := int(self._passed.max())) > self._places:
            own = f"{self._places} positions {self.positions!r}"
            raise HookError(f"values are for {own}; this pass has {most}.")
        self._place = (count - 1).clamp(min=0)

    def _end(self) -> None:
        # One look at the end of a pass: each makes an accelerator wait.
        first = self._broken[self.layers[0]]
        heads = torch.stack([self._broken[layer].to(first) for layer in self.layers])
        if not heads.is_meta and bool(heads.any()):
            row, head = heads.nonzero()[0].tolist()
            raise HookError(f"{Head(self.layers[row], head)} {self.broken}")

    def _read_gate(self, gate: Gate, activation: Tensor) -> None:
        width = self.geometry.head_dim
        z = activation[..., gate.head * width : (gate.head + 1) * width].detach().float()
        likely = torch.sigmoid(z @ gate.weight.to(z) + gate.bias)
        self._open_gate = (likely > gate.threshold) == gate.above

    def see(self, layer: int, activation: Tensor) -> Tensor:
        """`activation [R, T, W]` with the layer's heads changed at the positions."""
        device, mask = activation.device, self.mask.to(activation.device)
        if self.gate is not None:
            if self._open_gate is None:
                raise HookError(f"the gate's layer {self.gate.layer} did not run before {layer}.")
            mask = mask & self._open_gate.to(device)
        z = activation.unflatten(-1, (self.geometry.n_heads, -1))
        v = self._here(self.values[:, :, layer]).to(device)
        if self.how == "add":
            changed = z + v.to(z.dtype)
        elif self.how == "scale":
            changed = z * v.to(z.dtype)
        elif self.how == "replace":
            changed = v.to(z.dtype).expand_as(z)
        else:
            along = (z.to(v.dtype) * v).sum(-1, keepdim=True)
            changed = (z - along * v).to(z.dtype)
        chosen = mask[..., None] & self._here(self.heads[:, :, layer]).to(device)
        changed = torch.where(chosen[..., None], changed, z)
        self._broken[layer] = (z.isfinite() & ~changed.isfinite()).any(-1).flatten(0, 1).any(0)
        return changed.flatten(-2)

    def _check_gate(self, gate: Gate) -> None:
        geometry, shape = self.geometry, list(gate.weight.shape)
        there = 0 <= gate.layer < geometry.n_layers and 0 <= gate.head < geometry.n_heads
        if not there or shape != [geometry.head_dim]:
            own = f"{Head(gate.layer, gate.head)} by {shape}"
            raise HookError(f"the gate reads {own}; the model has {geometry}.")
        numbers = bool(gate.weight.isfinite().all()) and math.isfinite(gate.bias)
        if not numbers or not 0 <= gate.threshold <= 1:
            raise HookError("the gate's weight or bias is not finite, or its threshold no share.")
        if self.layers and gate.layer > (first := self.layers[0]):
            raise HookError(
                f"the gate reads layer {gate.layer}, but layer {first} is edited first."
            )


class Redirect(AttentionHooks, Edit):
    """Has heads look elsewhere while the `with` block is open: attention knock-out, redirection.

        with Redirect(model, heads, away):          # may not look there
            model(**inputs)
        with Redirect(model, heads, away, to):      # what they give to the one goes to the other
            model(**inputs)

    Knocked out, a head's other weights grow in proportion, as those of a masked softmax do.
    Redirected, what it gives to `away` and `to` together is shared out within `to` as before; all
    that it gives goes there if `away` is everything. Other heads and positions keep their bits, as
    do heads that do not see `away`. It acts as `Edit` does, but that a `Looks` inside of it sees
    the weights from before.

    Args:
        model, heads, positions: as of `Edit`.
        away, to: columns of the prompts, those of a cache first: bool `[B, T]`, or `[T]` of all.

    Raises:
        HookError: as of `AttentionHooks` and `Edit`; during a forward, more columns than the model
            has read, or a chosen head that sees nothing else, or nothing of `to`;
            with `to`, heads that put out something else than values by their weights.
    """

    broken = "sees nothing else that it could look at: choose other positions or parts."

    def __init__(
        self,
        model: nn.Module,
        heads: Tensor,
        away: Tensor,
        to: Tensor | None = None,
        positions: str = LAST_PROMPT_GENERATED,
    ) -> None:
        found = find_geometry(getattr(model, "_orig_mod", model))
        none = torch.zeros(found.n_layers, found.n_heads, found.head_dim)
        super().__init__(model, none, positions=positions, how="replace", heads=heads)
        self.parts = [torch.atleast_2d(part).bool() for part in (away, to) if part is not None]

    def _begin(self, at: Pass) -> None:
        super()._begin(at)
        # Padding on the right puts the last tokens of a batch into several columns.
        self._columns = self.mask.any(0).nonzero()[:, 0]
        rows, columns = len(at.real), at.n_cached + at.real.shape[1]
        self._whole = []
        for part in self.parts:
            if rows % len(part) or part.shape[1] > columns:
                size = f"{rows} rows of {columns} columns"
                raise HookError(f"parts are {list(part.shape)}, but the model has read {size}.")
            part = nn.functional.pad(part, (0, columns - part.shape[1])).to(at.real.device)
            self._whole.append(part.repeat_interleave(rows // len(part), 0)[:, None, None])

    def look(self, layer: int, read: Callable[..., Read], output: Tensor) -> Tensor:
        """`output [B, T, H, D]` with what the chosen heads put out if they look elsewhere."""
        device, columns = output.device, self._columns.to(output.device)
        if not len(columns):
            self._ran.add(layer)
            self._broken[layer] = torch.zeros(output.shape[2], dtype=torch.bool, device=device)
            return output
        here = self.mask[..., None].to(device) & self._here(self.heads[:, :, layer]).to(device)
        chosen = here[:, columns]
        attend, seen, value = read(index=columns.expand(len(output), -1))
        # A layer that looks back a certain distance may keep the last columns alone.
        away, *to = (part[..., -seen.shape[-1] :].to(device) for part in self._whole)
        chosen &= (seen & away).any(-1).transpose(1, 2)
        left = seen & (to[0] if to else ~away)
        self._broken[layer] = (chosen & ~left.any(-1).transpose(1, 2)).flatten(0, 1).any(0)
        z, weights = attend(left)
        if to:
            value = value.repeat_interleave(weights.shape[1] // value.shape[1], 1)
            (put_out, plain), part = attend(), away | to[0]
            apart = (put_out - (plain @ value).transpose(1, 2)).norm()
            if bool(apart > 0.02 * put_out.norm()):
                raise HookError(f"layer {layer} puts out something else than values by weights.")
            share = plain.masked_fill(~part, 0).sum(-1, keepdim=True)
            weights = share * weights / weights.sum(-1, keepdim=True)
            z = ((weights + plain.masked_fill(part, 0)) @ value).transpose(1, 2)
        changed = output.clone()
        changed[:, columns] = torch.where(chosen[..., None], z.to(output), output[:, columns])
        return changed


def _whole(name: str, tensor: Tensor, shape: tuple[int, ...], means: str) -> Tensor:
    """`[B, P, *shape]`, of a tensor that may lack the first or both."""
    extra = tensor.ndim - len(shape)
    if extra not in (0, 1, 2) or tuple(tensor.shape[extra:]) != shape:
        own, sizes = list(tensor.shape), ", ".join(map(str, shape))
        takes = f"[{sizes}] or [B, {sizes}] or [B, P, {sizes}] ({means})"
        raise HookError(f"{name} has shape {own}; this model takes {takes}.")
    return tensor.reshape(*([1, 1], [len(tensor), 1], tensor.shape[:2])[extra], *shape)
