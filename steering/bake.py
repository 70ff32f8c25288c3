"""A steering vector at all positions as a part of a model's weights, up to rounding in its dtype.

Where o_proj can have a bias, it takes ``W_o delta``; q, k and v get zero biases with it. Else
v_proj's takes delta, as attention weights sum to one. Heads that share keys and values then get
their own: the KV cache grows by the size of a group.
"""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from rich.markup import escape
from safetensors import SafetensorError
from torch import Tensor, nn

from sally_anne.core.console import Console
from sally_anne.core.errors import SteeringError
from sally_anne.hooks.geometry import (
    ATTN_OUT,
    HEAD_OUT,
    Geometry,
    find_geometry,
    plain_weight,
    slice_width,
    text_config,
)
from sally_anne.hooks.identity import require_fitted
from sally_anne.hooks.vector import RECORD, SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.processor import forget, teach
from sally_anne.steering.config import BakeConfig

Carrier = Literal["o_proj.bias", "v_proj.bias"]


def run(config: BakeConfig) -> None:
    """Read model and vector, write the checkpoint, print where it acts."""
    check_free(config.out)
    vector = SteeringVector.load(config.vector, allow_mismatch=config.allow_mismatch)
    loaded = load_model(config.model, config.dtype, revision=config.revision)
    folder = bake(loaded, vector, config.alpha, config.out)
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    for line in (describe(record), f"the checkpoint is in {folder}"):
        Console().print(escape(line), soft_wrap=True)


def bake(loaded: LoadedModel, vector: SteeringVector, alpha: float | None, out: Path) -> Path:
    """Write a checkpoint that acts as the model does with the vector at all positions.

    Processor, tokenizer, chat template and generation config are saved with the weights, and a
    ``steering.json``. ``out`` appears when it is whole, and is returned. The vector is at site
    ``head_out``, or at ``attn_out`` for classes with a bias on o_proj; its own positions play no
    part.

    Raises:
        ModelError: the vector was fitted on another model.
        SteeringError: it does not fit or cannot be baked, or ``out`` is not empty or not writable.
    """
    check_free(out)
    if vector.gate is not None:
        raise SteeringError("a vector with a gate cannot be baked: weights cannot decide to act")
    strength = float(vector.alpha if alpha is None else alpha)
    where = carrier(loaded.skeleton, vector.site)
    vector.check(loaded.skeleton)
    # Weights do not depend on what stands around a text.
    mismatch = require_fitted(vector, replace(loaded.identity, prompt=""))
    baked = bake_model(loaded.model, vector.delta(strength), vector.site)
    folder = Path(loaded.source).expanduser()
    record: dict[str, Any] = {
        "model": folder.resolve().name if folder.exists() else loaded.source,
        "revision": loaded.revision,
        "dtype": loaded.dtype,
        "acts_at": "all",
        "carried_by": where,
        "n_kv_heads": find_geometry(baked).n_kv_heads,
        "n_kv_heads_before": find_geometry(loaded.model).n_kv_heads,
        "vector": vector.describe() | {"alpha": strength, "fitted": dict(vector.fitted)},
        **({"mismatch": mismatch} if mismatch else {}),
    }
    _write(out.resolve(), baked, loaded.processor, record)
    return out


def check_free(out: Path) -> None:
    """SteeringError if ``out`` is there and not an empty folder."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise SteeringError(f"{out} exists and is not an empty folder; give a new one with --out")


def _write(out: Path, model: Any, processor: Any, record: dict[str, Any]) -> None:
    part = out.with_name(f".{out.name}.tmp")
    # What the last call padded or cut would be saved with it, and what is ours.
    forget(processor.tokenizer)
    processor.tokenizer.backend_tokenizer.no_padding()
    processor.tokenizer.backend_tokenizer.no_truncation()
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        model.save_pretrained(part)
        processor.save_pretrained(part)
        text = json.dumps(record, indent=2, default=dict)
        (part / RECORD).write_text(f"{text}\n", encoding="utf-8")
        part.replace(out)
    except (OSError, SafetensorError) as error:
        raise SteeringError(f"{out} cannot be written: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        teach(processor.tokenizer)


def carrier(model: nn.Module, site: str = HEAD_OUT) -> Carrier:
    """Which bias of plain transformers' class can carry a vector; the weights are not looked at."""
    attention = _attention(model, find_geometry(model).o_proj_names[0])
    has_switch = getattr(text_config(model), "attention_bias", None) is not None
    o_proj = getattr(attention, "o_proj", None)
    if o_proj and (has_switch or o_proj.bias is not None) and site in (HEAD_OUT, ATTN_OUT):
        return "o_proj.bias"
    if getattr(getattr(attention, "v_proj", None), "bias", None) is not None and site == HEAD_OUT:
        return "v_proj.bias"
    raise SteeringError(f"{type(attention).__name__} has no bias that adds at site {site!r}")


def bake_model(model: Any, delta: Tensor, site: str = HEAD_OUT) -> Any:
    """A model that adds ``delta`` at every position without hooks.

    It is of the same class and shares all unchanged weights with ``model``, which stays as it is.
    ``delta`` is ``[L, H, D]``, or slices of hidden / H at ``attn_out``; zeros alone change nothing.

    Raises:
        SteeringError: this class cannot carry the vector, the vector does not fit, or the weights
            are quantised, not in memory, or too small a float for the vector.
    """
    geometry = find_geometry(model)
    where = carrier(model, site)
    shape = [geometry.n_layers, geometry.n_heads, slice_width(geometry, site)]
    if list(delta.shape) != shape or not bool(torch.isfinite(delta).all()):
        raise SteeringError(f"weights take one finite vector {shape}, not {list(delta.shape)}")
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
    # transformers' own class has a place for every weight.
    with torch.device("meta"):
        plain = type(baked)(copy.deepcopy(baked.config))
    own, expected = ({n: t.shape for n, t in m.state_dict().items()} for m in (baked, plain))
    if differ := sorted(set(own.items()) ^ set(expected.items())):
        raise SteeringError(f"{type(baked).__name__} has no place for {differ[0][0]}")
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
    for name, vectors in zip(geometry.o_proj_names, delta, strict=True):
        attention = _attention(model, name)
        v_proj = _linear(attention, "v_proj")
        if group > 1:
            for linear in (_linear(attention, "k_proj"), v_proj):
                for part, tensor in list(linear.named_parameters()):
                    # Each head's rows so many times in a row: the order of ``repeat_kv``.
                    rows = tensor.unflatten(0, (geometry.n_kv_heads, -1))
                    repeated = rows.repeat_interleave(group, dim=0).flatten(0, 1)
                    setattr(linear, part, _parameter(repeated))
                linear.out_features = linear.weight.shape[0]
            counts = {"num_key_value_heads": geometry.n_heads, "num_key_value_groups": 1}
            for number, value in counts.items():
                if hasattr(attention, number):
                    setattr(attention, number, value)
        _add_to_bias(v_proj, vectors.flatten().to(v_proj.weight.device), name)
    _set_everywhere(model, "num_key_value_heads", geometry.n_heads)


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
    if type(linear) is not nn.Linear or plain_weight(linear) is None:
        raise SteeringError(
            f"{part} of {type(attention).__name__} is quantised, offloaded or no linear layer"
        )
    return linear


def _set_everywhere(model: nn.Module, name: str, value: Any) -> None:
    """In the text config, and in the copies of it that modules keep."""
    kind = type(text_config(model))
    setattr(text_config(model), name, value)
    for module in model.modules():
        config = getattr(module, "config", None)
        if type(config) is kind:
            setattr(config, name, value)


def describe(record: dict[str, Any]) -> str:
    """Where a baked vector acts, and a line more if the model takes more memory by it."""
    positions, alpha = record["vector"]["positions"], record["vector"]["alpha"]
    before, after = record["n_kv_heads_before"], record["n_kv_heads"]
    acts = (
        f"The steering vector (alpha {alpha:g}) acts at ALL positions, those of the prompt included"
    )
    acts += "." if positions == "all" else f", not at {positions} alone, for which it was made."
    if before == after:
        return acts
    return (
        f"{acts}\nHeads that shared keys and values have their own now ({after} instead of "
        f"{before} a layer): the KV cache takes {after / before:g} times the memory."
    )
