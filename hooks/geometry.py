"""Where the heads of a decoder are: its layers, their `o_proj` and sites, the numbers L, H, D."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sally_anne.core.errors import HookError

if TYPE_CHECKING:
    from torch import nn

# Where in a layer activations are read and edited.
HEAD_OUT = "head_out"
ATTN_OUT = "attn_out"
RESID = "resid"
SITES = (HEAD_OUT, ATTN_OUT, RESID)

# Only needed for models without `get_decoder`; there a tower is recognised by its name.
_TOWER = re.compile(r"(^|[._])(vision|visual|image|img|audio|speech|vit)([._]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Geometry:
    """The attention heads of one decoder; the names are module paths below the model.

    `head_dim` is the width D of one head as `o_proj` reads it, not always `hidden_size / n_heads`.
    """

    n_layers: int
    n_heads: int
    head_dim: int
    hidden_size: int
    n_kv_heads: int
    layer_names: tuple[str, ...]
    o_proj_names: tuple[str, ...]


def find_geometry(model: nn.Module) -> Geometry:
    """Find the decoder layers and attention heads of a Hugging Face model.

    Works on text-only and multimodal models, also on the meta device; attention inside a vision or
    audio tower is never matched.

    Raises:
        HookError: no text config, no list of layers that fits it, a layer without exactly one
            `o_proj`, or an `o_proj` whose widths disagree with the config.
    """
    config = _text_config(model)
    names = ("num_hidden_layers", "num_attention_heads", "hidden_size")
    sizes = {name: getattr(config, name, None) for name in names}
    if not all(isinstance(size, int) for size in sizes.values()):
        raise HookError(f"the text config {type(config).__name__} says {sizes}: not all numbers.")
    n_layers, n_heads, hidden_size = map(int, sizes.values())  # type: ignore[arg-type]
    layer_list = _find_layer_list(model, n_layers)
    layer_names = tuple(f"{layer_list}.{i}" for i in range(n_layers))
    o_proj_names = tuple(_find_o_proj(model, name) for name in layer_names)
    head_dim = getattr(config, "head_dim", None)
    if head_dim is None:
        # Never hidden_size / H: several models make their heads wider than that.
        head_dim = _widths(model, o_proj_names[0])[0] // n_heads
    expected = (n_heads * head_dim, hidden_size)
    for name in o_proj_names:
        if (widths := _widths(model, name)) != expected:
            raise HookError(
                f"{name} maps {widths[0]} -> {widths[1]} features; the text config "
                f"({type(config).__name__}: {n_heads} heads of width {head_dim}, hidden size "
                f"{hidden_size}) calls for {expected[0]} -> {expected[1]}."
            )
    n_kv_heads = getattr(config, "num_key_value_heads", None) or n_heads
    return Geometry(n_layers, n_heads, head_dim, hidden_size, n_kv_heads, layer_names, o_proj_names)


def slice_width(geometry: Geometry, site: str) -> int:
    """Width of one head's slice at a site: D at `head_out`; hidden / H, or an error, elsewhere."""
    if site == HEAD_OUT:
        return geometry.head_dim
    if geometry.hidden_size % geometry.n_heads:
        raise HookError(
            f"site {site!r} cannot cut {geometry.hidden_size} in {geometry.n_heads} equal slices."
        )
    return geometry.hidden_size // geometry.n_heads


def site_module(geometry: Geometry, layer: int, site: str) -> str:
    """The module whose input (`head_out`) or output (elsewhere) is a layer's activation there."""
    return (geometry.layer_names if site == RESID else geometry.o_proj_names)[layer]


def o_projs(model: nn.Module) -> list[nn.Module]:
    """The L attention output projections W_o, in order."""
    return [model.get_submodule(name) for name in find_geometry(model).o_proj_names]


def final_norm(model: nn.Module) -> nn.Module:
    """The norm before the unembedding: ``norm`` next to the list of layers, or HookError."""
    parent = find_geometry(model).layer_names[0].rpartition(".")[0].rpartition(".")[0]
    norm = getattr(model.get_submodule(parent), "norm", None)
    if norm is None:
        raise HookError(f"{type(model).__name__} has no module `norm` below `{parent}`.")
    return norm


def _text_config(model: nn.Module) -> Any:
    config: Any = getattr(model, "config", None)
    if not hasattr(config, "get_text_config"):
        raise HookError(f"{type(model).__name__} has no `config` of a Hugging Face decoder.")
    try:
        return config.get_text_config(decoder=True)
    except ValueError as error:
        raise HookError(f"{type(config).__name__}: which text config? {error}") from error


def _find_layer_list(model: nn.Module, n_layers: int) -> str:
    get_decoder: Any = getattr(model, "get_decoder", None)
    root: nn.Module = (get_decoder() if get_decoder is not None else None) or model
    inside = set(root.modules())
    lists: dict[str, Any] = {
        name: module
        for name, module in model.named_modules()
        if type(module).__name__ == "ModuleList" and module in inside
    }
    fitting = [
        name
        for name, module in lists.items()
        if len(module) == n_layers and not _TOWER.search(name) and any(map(_o_projs_in, module))
    ]
    if len(fitting) != 1:
        there = ", ".join(f"{name} ({len(module)})" for name, module in lists.items()) or "none"
        raise HookError(
            f"{type(model).__name__}: looked in its {type(root).__name__} for one list of "
            f"{n_layers} layers (num_hidden_layers) whose attention has an `o_proj`; "
            f"fitting: {', '.join(fitting) or 'none'}; lists found: {there}."
        )
    return fitting[0]


def _o_projs_in(layer: nn.Module) -> list[str]:
    return [name for name, _ in layer.named_modules() if f".{name}".endswith(".o_proj")]


def _find_o_proj(model: nn.Module, layer_name: str) -> str:
    layer = model.get_submodule(layer_name)
    names = _o_projs_in(layer)
    if len(names) != 1:
        children = ", ".join(name for name, _ in layer.named_children())
        raise HookError(f"{layer_name}: {names or 'none'} in place of one `o_proj` ({children}).")
    return f"{layer_name}.{names[0]}"


def _widths(model: nn.Module, name: str) -> tuple[int, int]:
    # Features, not the weight's shape: a quantised weight is packed and shaped otherwise.
    module: Any = model.get_submodule(name)
    if not (hasattr(module, "in_features") and hasattr(module, "out_features")):
        raise HookError(f"{name} is a {type(module).__name__}; looked for a linear layer.")
    return module.in_features, module.out_features
