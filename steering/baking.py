"""A steering vector as part of a model's weights, for use without this toolkit.

A bias is added to every token alike, so weights can only carry the form of a vector that acts at
all positions. With delta_h the vector of head h, there are two places for it:

o_proj's bias: adding delta_h to z_h at every position adds ``W_o delta`` to the output of
    attention. Llama's attention has this bias with ``attention_bias`` in its config, which gives
    q_proj, k_proj and v_proj one as well; theirs are zero.
v_proj's bias: transformers' Qwen2-VL has no bias on o_proj, whatever its config says. Attention
    weights sum to one, ``z_h = sum_t a_t (W_v x_t + b_v)``, so delta_h added to b_v is added to
    z_h. Heads that share keys and values (grouped-query attention) share b_v, too. Where their
    vectors differ, k_proj and v_proj are written out once for each head. The function is the same,
    but these weights and the KV cache of all layers grow by the size of a group.

Both equal the vector at all positions but for rounding in the model's dtype.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hooks.geometry import ATTN_OUT, HEAD_OUT, Geometry, find_geometry, slice_width
from sally_anne.core.errors import SteeringError

Carrier = Literal["o_proj.bias", "v_proj.bias"]


def carrier(model: nn.Module, site: str = HEAD_OUT) -> Carrier:
    """Which bias of plain transformers' class can carry a vector; the weights are not looked at.

    Raises:
        SteeringError: none can, or not one that stands at this site.
        GeometryError: the heads are not found.
    """
    if site not in (HEAD_OUT, ATTN_OUT):
        raise SteeringError(
            f"a vector at site {site!r} cannot be baked: attention has no weight that adds there; "
            f"only {HEAD_OUT} and {ATTN_OUT} have one"
        )
    attention = _attention(model, find_geometry(model).o_proj_names[0])
    kind = type(attention).__name__
    has_switch = getattr(_text_config(model), "attention_bias", None) is not None
    if has_switch or attention.o_proj.bias is not None:
        return "o_proj.bias"
    if getattr(getattr(attention, "v_proj", None), "bias", None) is None:
        raise SteeringError(
            f"{kind} has no bias on o_proj or v_proj, so no checkpoint of this class can carry a "
            "vector; apply it while the model runs"
        )
    if site == ATTN_OUT:
        raise SteeringError(
            f"a vector at site {site!r} needs a bias on o_proj, which {kind} has not; there only "
            f"{HEAD_OUT} can be baked"
        )
    return "v_proj.bias"


def bake_model(model: Any, delta: Tensor, site: str = HEAD_OUT) -> Any:
    """A model that adds ``delta`` at every position without hooks.

    Args:
        model: the Hugging Face model; it stays as it is.
        delta: ``[L, H, D]``, or slices of hidden / H at ``attn_out``. Zeros alone change nothing.
        site: ``head_out``, or ``attn_out`` where o_proj can have a bias.

    Returns:
        A model of the same class that shares all unchanged weights with ``model``.

    Raises:
        SteeringError: this class cannot carry the vector, the vector does not fit, or the weights
            are quantised, not in memory, or too small a float for the vector.
        GeometryError: the heads are not found.
    """
    geometry = find_geometry(model)
    where = carrier(model, site)
    _check_delta(delta, geometry, site)
    # What is in the memo is shared, not copied.
    kept = {id(t): t for t in (*model.parameters(), *model.buffers())}
    baked = copy.deepcopy(model, kept)
    if not bool(delta.any()):
        return baked
    with torch.no_grad():
        if where == "o_proj.bias":
            _into_o_proj(baked, delta.double(), geometry, site)
        else:
            _into_v_proj(baked, delta.double(), geometry)
    _check_loads(baked)
    return baked


def _into_o_proj(model: nn.Module, delta: Tensor, geometry: Geometry, site: str) -> None:
    for name, vectors in zip(geometry.o_proj_names, delta, strict=True):
        attention = _attention(model, name)
        linears = [_linear(attention, f"{part}_proj") for part in "qkvo"]
        for linear in linears:
            if linear.bias is None:
                linear.bias = _parameter(linear.weight.new_zeros(linear.out_features))
        o_proj = linears[-1]
        added = vectors.flatten().to(o_proj.weight.device)
        if site == HEAD_OUT:
            added = o_proj.weight.double() @ added
        _add_to_bias(o_proj, added, name)
    _set_everywhere(model, "attention_bias", True)


def _into_v_proj(model: nn.Module, delta: Tensor, geometry: Geometry) -> None:
    group = geometry.n_heads // geometry.n_kv_heads
    grouped = delta.unflatten(1, (geometry.n_kv_heads, group))
    expand = bool((grouped != grouped[:, :, :1]).any())
    for name, vectors, shared in zip(geometry.o_proj_names, delta, grouped[:, :, 0], strict=True):
        attention = _attention(model, name)
        v_proj = _linear(attention, "v_proj")
        if expand:
            for linear in (_linear(attention, "k_proj"), v_proj):
                linear.weight = _parameter(_repeated(linear.weight, geometry.n_kv_heads, group))
                if linear.bias is not None:
                    linear.bias = _parameter(_repeated(linear.bias, geometry.n_kv_heads, group))
                linear.out_features = linear.weight.shape[0]
            for number, value in (
                ("num_key_value_heads", geometry.n_heads),
                ("num_key_value_groups", 1),
            ):
                if hasattr(attention, number):
                    setattr(attention, number, value)
        added = (vectors if expand else shared).flatten().to(v_proj.weight.device)
        _add_to_bias(v_proj, added, name)
    if expand:
        _set_everywhere(model, "num_key_value_heads", geometry.n_heads)


def _repeated(tensor: Tensor, n_kv_heads: int, group: int) -> Tensor:
    """Each head's rows ``group`` times in a row: the order of transformers' ``repeat_kv``."""
    return tensor.unflatten(0, (n_kv_heads, -1)).repeat_interleave(group, dim=0).flatten(0, 1)


def _add_to_bias(linear: nn.Linear, added: Tensor, name: str) -> None:
    bias = (linear.bias.double() + added).to(linear.bias.dtype)
    if not bool(torch.isfinite(bias).all()):
        raise SteeringError(f"the vector at {name} is too large for {bias.dtype}; use --dtype")
    linear.bias = _parameter(bias)


def _parameter(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


def _attention(model: nn.Module, o_proj_name: str) -> Any:
    return model.get_submodule(o_proj_name.rpartition(".")[0])


def _linear(attention: nn.Module, part: str) -> Any:
    linear = getattr(attention, part, None)
    # A quantised layer is a subclass.
    if type(linear) is not nn.Linear or not linear.weight.is_floating_point():
        raise SteeringError(
            f"{part} of {type(attention).__name__} is not a plain linear layer but "
            f"{type(linear).__name__}; bake into weights that are not quantised"
        )
    if linear.weight.is_meta:
        raise SteeringError(
            "the weights are not in memory (offloaded); load the model onto one device to bake it"
        )
    return linear


def _text_config(model: Any) -> Any:
    return model.config.get_text_config(decoder=True)


def _set_everywhere(model: nn.Module, name: str, value: Any) -> None:
    """In the text config, and in the copies of it that modules keep."""
    kind = type(_text_config(model))
    setattr(_text_config(model), name, value)
    for module in model.modules():
        config = getattr(module, "config", None)
        if type(config) is kind:
            setattr(config, name, value)


def _check_delta(delta: Tensor, geometry: Geometry, site: str) -> None:
    wanted = [geometry.n_layers, geometry.n_heads, slice_width(geometry, site)]
    if list(delta.shape) != wanted:
        raise SteeringError(
            f"weights take one vector, delta {wanted} (layers, heads, width at {site}); got "
            f"{list(delta.shape)}"
        )
    if not bool(torch.isfinite(delta).all()):
        raise SteeringError("delta is not finite")


def _check_loads(baked: Any) -> None:
    """That transformers' own class has a place for every weight."""
    with torch.device("meta"):
        plain = type(baked)(copy.deepcopy(baked.config))
    own, wanted = (
        {name: tensor.shape for name, tensor in m.state_dict().items()} for m in (baked, plain)
    )
    if differ := sorted(set(own.items()) ^ set(wanted.items())):
        raise SteeringError(
            f"{type(baked).__name__} has no place for the vector: its weights and config do not "
            f"fit at {differ[0][0]}; apply the vector while the model runs"
        )
