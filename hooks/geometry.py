"""Where the heads of a decoder are: its layers, their W_o and sites, the numbers L, H, D."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sally_anne.core.errors import HookError

if TYPE_CHECKING:
    from torch import Tensor, dtype, nn

# Where in a layer activations are read and edited.
HEAD_OUT = "head_out"
ATTN_OUT = "attn_out"
RESID = "resid"
SITES = (HEAD_OUT, ATTN_OUT, RESID)

# W_o as the classes of transformers call it; a wrapper has its weights in `linear`.
_W_O = re.compile(
    r"(^|\.)(o_proj|out_proj|c_proj|dense|out_lin|wo|o|attention_out)(\.linear)?$", re.IGNORECASE
)
# Classes of attention, and those among them that keep a state in place of weighing tokens.
_ATTENTION = re.compile("Attention|Attn|MLA")
_RECURRENT = re.compile("Delta|Lightning|(?<!Kimi)Linear|Rwkv")
# Attention to something else than the decoder's own tokens, by names of modules and classes.
_CROSS = re.compile("cross|enc_?dec|encoder_(decoder_)?att", re.IGNORECASE)
_OTHER = re.compile(
    r"cross|(^|[._])(vision|visual|image|img|audio|speech|vit)([._]|$)", re.IGNORECASE
)
_HEADS = ("num_heads", "num_attn_heads", "num_attention_heads", "n_heads", "n_head")
_WIDTHS = ("head_dim", "v_head_dim", "dim_head", "head_size", "attention_head_size")
# Of a model that was looked through before.
_KNOWN: WeakKeyDictionary[Any, Geometry] = WeakKeyDictionary()


@dataclass(frozen=True)
class Geometry:
    """The attention heads of one decoder; the names are module paths below the model.

    `head_dim` is the width D of one head as W_o reads it, not always `hidden_size / n_heads`. L
    counts the layers that have such heads; `left_out` are names of the others, each with why.
    """

    n_layers: int
    n_heads: int
    head_dim: int
    hidden_size: int
    n_kv_heads: int
    layer_names: tuple[str, ...]
    o_proj_names: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.n_layers} layers x {self.n_heads} heads x {self.head_dim}"

    @property
    def note(self) -> str:
        """Which of the model's layers L0, L1, ... are, and why others are not; empty if all are."""
        kept = ", ".join(name.rpartition(".")[2] for name in self.layer_names)
        counts = Counter(why for _, why in self.left_out)
        why = ", ".join(f"{count} {why}" for why, count in counts.items())
        return why and f"L0 to L{self.n_layers - 1} are the model's layers {kept}; left out: {why}"


def find_geometry(model: nn.Module) -> Geometry:
    """The decoder layers and attention heads of a Hugging Face model; HookError says why not.

    In each layer W_o is looked for in what attends to the decoder's own tokens, never in a vision
    or audio tower; also on the meta device. Layers without are left out, and where heads differ
    in number or width from layer to layer, all but those of the most frequent shape.
    """
    if (known := _KNOWN.get(model)) is not None:
        return known
    config = text_config(model)
    layer_list = _find_layer_list(model, config)
    shapes: dict[str, tuple[str, tuple[int, int, int]]] = {}
    left_out = {}
    for number, layer in model.get_submodule(layer_list).named_children():
        name = f"{layer_list}.{number}"
        left_out[name] = "without self-attention"
        for below, attention in _w_o_in(layer).items():
            o_proj = f"{name}.{below}".removesuffix(".")
            holders = attention, getattr(attention, "config", None), config
            shapes[o_proj] = name, _shape(model, o_proj, *holders)
            left_out[name] = "with {} heads of width {}".format(*shapes[o_proj][1])
    shape = Counter(shape for _, shape in shapes.values()).most_common(1)[0][0]
    kept = {o_proj: name for o_proj, (name, own) in shapes.items() if own == shape}
    others = ((name, why) for name, why in left_out.items() if name not in kept.values())
    n_kv_heads = _number(("num_key_value_heads",), *holders) or shape[0]
    names = tuple(kept.values()), tuple(kept)
    found = _KNOWN[model] = Geometry(len(kept), *shape, n_kv_heads, *names, tuple(others))
    return found


def slice_width(geometry: Geometry, site: str) -> int:
    """Width of one head's slice at a site: D at `head_out`; hidden / H, or an error, elsewhere."""
    if site == HEAD_OUT:
        return geometry.head_dim
    if site == RESID and geometry.o_proj_names[0].rpartition(".")[0] == geometry.layer_names[0]:
        raise HookError(f"the model's layers are no modules: choose {HEAD_OUT} or {ATTN_OUT}.")
    width, rest = divmod(geometry.hidden_size, geometry.n_heads)
    if rest:
        own = f"{geometry.hidden_size} in {geometry.n_heads}"
        raise HookError(f"site {site!r} cannot cut {own} equal slices.")
    return width


def site_module(geometry: Geometry, layer: int, site: str) -> str:
    """The module whose input (`head_out`) or output (elsewhere) is a layer's activation there."""
    return (geometry.layer_names if site == RESID else geometry.o_proj_names)[layer]


def o_projs(model: nn.Module) -> list[nn.Module]:
    """The L attention output projections W_o, in order."""
    return [model.get_submodule(name) for name in find_geometry(model).o_proj_names]


def plain_weight(linear: Any) -> Tensor | None:
    """The weight of a linear layer as it stands; None of one that is quantised or offloaded."""
    weight: Any = getattr(linear, "weight", None)
    # Quantised ones are of classes of their own, or are numbers of a byte with scales elsewhere.
    own = type(weight).__name__ in ("Tensor", "Parameter") and weight.dtype.itemsize > 1
    return weight if own and weight.is_floating_point() and not weight.is_meta else None


def w_o(o_proj: Any, kind: dtype | None = None) -> Tensor:
    """The weight of an output projection, ``[hidden, H * D]``; Conv1D has it the other way.

    Of quantised and offloaded ones what the module makes of unit vectors, in the dtype ``kind``.
    """
    if (weight := plain_weight(o_proj)) is not None:
        return weight.detach() if hasattr(o_proj, "in_features") else weight.detach().T
    import torch  # the options of commands know sites, and load without it

    width, _ = _features(o_proj) or (0, 0)
    held = next(iter((*o_proj.parameters(), *o_proj.buffers())))
    place = "cpu" if held.is_meta else held.device
    # The last one is zero, of which a bias is left.
    one = torch.eye(width + 1, width, dtype=kind, device=place)
    made = o_proj.forward(one[None])[0].detach()
    return (made[:-1] - made[-1]).T.contiguous()  # in memory as a weight is, to the last bit


def written(o_proj: Any, z: Tensor) -> Tensor:
    """What W_o makes of its heads' outputs ``[..., H * D]``, as it reads them, in float32."""
    weight = w_o(o_proj, z.dtype).float()
    bias = getattr(o_proj, "bias", None)
    return z.to(weight) @ weight.T + (0 if bias is None else bias.detach().to(weight))


def final_norm(model: nn.Module) -> nn.Module:
    """The norm before the unembedding: ``norm`` next to the list of layers, or HookError."""
    parent = find_geometry(model).layer_names[0].rpartition(".")[0].rpartition(".")[0]
    norm = getattr(model.get_submodule(parent), "norm", None)
    if norm is None:
        raise HookError(f"{type(model).__name__} has no module `norm` below `{parent}`.")
    return norm


def text_config(model: nn.Module) -> Any:
    """The config of a Hugging Face model's decoder; HookError if there is none, or several."""
    config: Any = getattr(model, "config", None)
    if not hasattr(config, "get_text_config"):
        raise HookError(f"{type(model).__name__} has no `config` of a Hugging Face decoder.")
    try:
        return config.get_text_config(decoder=True)
    except ValueError as error:
        raise HookError(f"{type(config).__name__}: which text config? {error}") from error


def _find_layer_list(model: nn.Module, config: Any) -> str:
    """The list of layers whose attention has a W_o; of the decoder, if the model names it."""
    lists: dict[str, Any] = {}
    for name, module in model.named_modules():
        inner = any(name.startswith(f"{other}.") for other in lists)
        if type(module).__name__ == "ModuleList" and not (inner or _OTHER.search(name)):
            lists[name] = module
    fitting = [name for name, module in lists.items() if any(map(_w_o_in, module))]
    get_decoder: Any = getattr(model, "get_decoder", None)
    inside = set() if get_decoder is None else set(get_decoder().modules())
    fitting = [name for name in fitting if lists[name] in inside] or fitting
    if len(fitting) > 1:
        n_layers = _number(("num_hidden_layers",), config)
        fitting = [name for name in fitting if len(lists[name]) == n_layers] or fitting
    if len(fitting) == 1:
        return fitting[0]
    kind = type(model).__name__
    if fitting:
        raise HookError(f"{kind} has several lists of layers with attention: {', '.join(fitting)}.")
    for name, module in ((n, m) for each in lists for n, m in lists[each].named_modules()):
        own = type(module).__name__
        if _ATTENTION.search(own) and not (_RECURRENT.search(own) or _CROSS.search(name)):
            parts = ", ".join(part for part, _ in module.named_children())
            raise HookError(f"{kind}: {own} has no output projection that is known ({parts}).")
    there = ", ".join(f"{name} ({len(module)})" for name, module in lists.items()) or "none"
    raise HookError(f"{kind} has no attention, so no heads; its lists of layers: {there}.")


def _w_o_in(layer: nn.Module) -> dict[str, nn.Module]:
    """Names of W_o below a layer, with the attention module that each is in."""
    found: dict[str, nn.Module] = {}
    attentions: dict[str, nn.Module] = {}
    for name, module in layer.named_modules():
        kind = type(module).__name__
        outer = next((a for a in attentions if not a or name.startswith(f"{a}.")), None)
        if outer is None and _ATTENTION.search(kind):
            if not (_RECURRENT.search(kind) or _CROSS.search(f"{name}.{kind}")):
                attentions[name] = module
        elif outer is not None and _W_O.search(name) and _features(module):
            found[name] = attentions[outer]
    return found


def _shape(model: nn.Module, o_proj: str, *holders: Any) -> tuple[int, int, int]:
    """H, D and hidden size of one W_o, by what holds numbers of its attention."""
    width, hidden = _features(model.get_submodule(o_proj)) or (0, 0)
    widths = {n for name in _WIDTHS for holder in holders if (n := _number((name,), holder))}
    pairs = 1 + hasattr(holders[0], "lambda_q1")  # differential attention joins two heads in one
    n_heads = (_number(_HEADS, *holders) or 0) // pairs
    head_dim = width // max(n_heads, 1)
    if not n_heads or width % n_heads or head_dim // pairs not in widths | {hidden // n_heads}:
        called = f"{n_heads} heads of width {' or '.join(map(str, sorted(widths))) or 'unknown'}"
        by = f"{type(holders[0]).__name__} and the config"
        raise HookError(f"{o_proj} reads {width} features; {by} call for {called}.")
    return n_heads, head_dim, hidden


def _number(names: tuple[str, ...], *holders: Any) -> int | None:
    """The first number of one of these names that modules or configs have."""
    for holder, name in ((holder, name) for holder in holders for name in names):
        try:
            number = getattr(holder, name, None)
        except RuntimeError:  # what a config says that differs from layer to layer
            continue
        if isinstance(number, int):
            return number
    return None


def _features(module: Any) -> tuple[int, int] | None:
    """Numbers that a linear layer reads and writes; None of other modules."""
    # Not the weight's shape: a quantised weight is packed and shaped otherwise.
    for names in (("in_features", "out_features"), ("nx", "nf")):
        first, last = (getattr(module, name, None) for name in names)
        if isinstance(first, int) and isinstance(last, int):
            return first, last
    return None
