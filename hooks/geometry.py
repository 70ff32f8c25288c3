"""Where the heads of a decoder are: its layers, their `o_proj` and sites, the numbers L, H, D."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch import nn

from sally_anne.core.errors import GeometryError

# Where in a layer activations are read and edited.
HEAD_OUT = "head_out"
ATTN_OUT = "attn_out"
RESID = "resid"
SITES = (HEAD_OUT, ATTN_OUT, RESID)

# Only reached for models without `get_decoder`; there a tower is told apart by its name.
_TOWER = re.compile(r"(^|[._])(vision|visual|image|img|audio|speech|vit)([._]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Geometry:
    """The attention heads of one decoder.

    `head_dim` is the width D of one head as `o_proj` reads it, which need not be
    `hidden_size / n_heads`. `layer_names` and `o_proj_names` are module paths below the model,
    in layer order.
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
        GeometryError: no text config, no list of layers that fits it, a layer without exactly one
            `o_proj`, or an `o_proj` whose widths disagree with the config.
    """
    config = _text_config(model)
    n_layers = _required(config, "num_hidden_layers")
    n_heads = _required(config, "num_attention_heads")
    hidden_size = _required(config, "hidden_size")

    layer_list = _find_layer_list(model, n_layers)
    layer_names = tuple(f"{layer_list}.{i}" for i in range(n_layers))
    o_proj_names = tuple(_find_o_proj(model, name) for name in layer_names)

    head_dim = getattr(config, "head_dim", None)
    if head_dim is None:
        # Never hidden_size / H: several models make their heads wider than that.
        in_features, _ = _widths(model, o_proj_names[0])
        if in_features % n_heads:
            raise GeometryError(
                f"{o_proj_names[0]} takes {in_features} features, which {n_heads} heads "
                "(num_attention_heads) do not divide, and the text config has no head_dim."
            )
        head_dim = in_features // n_heads

    for name in o_proj_names:
        found = _widths(model, name)
        wanted = (n_heads * head_dim, hidden_size)
        if found != wanted:
            raise GeometryError(
                f"{name} maps {found[0]} -> {found[1]} features; the text config "
                f"({type(config).__name__}: {n_heads} heads of width {head_dim}, hidden size "
                f"{hidden_size}) calls for {wanted[0]} -> {wanted[1]}."
            )
    return Geometry(
        n_layers=n_layers,
        n_heads=n_heads,
        head_dim=head_dim,
        hidden_size=hidden_size,
        n_kv_heads=getattr(config, "num_key_value_heads", None) or n_heads,
        layer_names=layer_names,
        o_proj_names=o_proj_names,
    )


def slice_width(geometry: Geometry, site: str) -> int:
    """Width of one head's slice at a site: D at `head_out`, hidden / H elsewhere.

    Raises:
        GeometryError: H does not divide the hidden size at a site that is cut in slices.
    """
    if site == HEAD_OUT:
        return geometry.head_dim
    if geometry.hidden_size % geometry.n_heads:
        raise GeometryError(
            f"site {site!r} cuts the hidden size {geometry.hidden_size} in {geometry.n_heads} "
            f"equal slices, which it does not divide into. Use site {HEAD_OUT!r}."
        )
    return geometry.hidden_size // geometry.n_heads


def site_module(geometry: Geometry, layer: int, site: str) -> str:
    """The module whose input (`head_out`) or output (elsewhere) is a layer's activation there."""
    return (geometry.layer_names if site == RESID else geometry.o_proj_names)[layer]


def layers(model: nn.Module) -> list[nn.Module]:
    """The L decoder layers of `model`, in order. Raises GeometryError as `find_geometry`."""
    return [model.get_submodule(name) for name in find_geometry(model).layer_names]


def o_projs(model: nn.Module) -> list[nn.Module]:
    """The L attention output projections W_o, in order. Raises GeometryError as `find_geometry`."""
    return [model.get_submodule(name) for name in find_geometry(model).o_proj_names]


def _text_config(model: nn.Module) -> Any:
    config: Any = getattr(model, "config", None)
    if config is None:
        raise GeometryError(
            f"{type(model).__name__} has no `config`; looked for a Hugging Face decoder."
        )
    if not hasattr(config, "get_text_config"):
        return getattr(config, "text_config", config)
    try:
        return config.get_text_config(decoder=True)
    except ValueError as error:
        raise GeometryError(f"{type(config).__name__}: which text config? {error}") from error


def _required(config: Any, field: str) -> int:
    value = getattr(config, field, None)
    if not isinstance(value, int):
        raise GeometryError(
            f"looked for `{field}` in the text config {type(config).__name__}, found {value!r}."
        )
    return value


def _find_layer_list(model: nn.Module, n_layers: int) -> str:
    get_decoder: Any = getattr(model, "get_decoder", None)
    root: nn.Module = (get_decoder() if get_decoder is not None else None) or model
    prefix = next((name for name, module in model.named_modules() if module is root), "")

    lists = {
        ".".join(filter(None, (prefix, name))): module
        for name, module in root.named_modules()
        if isinstance(module, nn.ModuleList)
    }
    fitting = [
        name
        for name, module in lists.items()
        if len(module) == n_layers
        and not _TOWER.search(name)
        and any(_o_proj_children(layer) for layer in module)
    ]
    if len(fitting) != 1:
        seen = ", ".join(f"{name} ({len(module)})" for name, module in lists.items()) or "none"
        matched = ", ".join(fitting) or "none"
        raise GeometryError(
            f"{type(model).__name__}: looked below `{prefix or '(the model)'}` for one list of "
            f"{n_layers} layers (num_hidden_layers) whose attention has an `o_proj`; "
            f"fitting: {matched}; lists found: {seen}."
        )
    return fitting[0]


def _o_proj_children(layer: nn.Module) -> list[str]:
    return [
        name for name, _ in layer.named_modules() if name == "o_proj" or name.endswith(".o_proj")
    ]


def _find_o_proj(model: nn.Module, layer_name: str) -> str:
    layer = model.get_submodule(layer_name)
    found = _o_proj_children(layer)
    if len(found) != 1:
        children = ", ".join(name for name, _ in layer.named_children())
        raise GeometryError(
            f"{layer_name}: looked for one `o_proj`, found {found or 'none'} "
            f"(its children: {children})."
        )
    return f"{layer_name}.{found[0]}"


def _widths(model: nn.Module, name: str) -> tuple[int, int]:
    # Features, not the weight's shape: a quantised weight is packed and shaped otherwise.
    module = model.get_submodule(name)
    in_features = getattr(module, "in_features", None)
    out_features = getattr(module, "out_features", None)
    if not isinstance(in_features, int) or not isinstance(out_features, int):
        raise GeometryError(
            f"{name} is a {type(module).__name__} without in_features and out_features; "
            "looked for a linear layer."
        )
    return in_features, out_features
