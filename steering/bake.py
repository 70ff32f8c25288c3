"""A steering vector at all positions as a part of a model's weights, up to rounding in its dtype.

Where o_proj can have a bias, it takes ``W_o delta``. Else v_proj's takes delta, as attention
weights sum to one; heads that share keys and values then get their own, and a larger KV cache.
"""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from sally_anne.core.console import Console, print_lines
from sally_anne.core.errors import SteeringError
from sally_anne.harness.evaluate import fitted_on
from sally_anne.hooks.geometry import HEAD_OUT, Geometry, find_geometry, plain_weight, text_config
from sally_anne.hooks.identity import require_fitted
from sally_anne.hooks.positions import ALL
from sally_anne.hooks.vector import RECORD, SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.processor import forget, teach
from sally_anne.steering.config import BakeConfig


def run(config: BakeConfig) -> None:
    """Read model and vector, write the checkpoint, print where it acts."""
    out = config.out
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise SteeringError(f"{out} exists and is not an empty folder; give a new one with --out")
    vector = SteeringVector.load(config.vector, allow_mismatch=config.allow_mismatch)
    loaded = load_model(config.model, config.dtype, revision=config.revision)
    bake(loaded, vector, config.alpha, out)
    acts = f"not at {vector.positions} alone, for which it was made"
    acts = "as it was made for" if vector.positions == ALL else acts
    line = f"The vector acts at ALL positions, those of the prompt included, {acts}."
    print_lines(Console(), [line, f"the checkpoint is in {out}"])


def bake(loaded: LoadedModel, vector: SteeringVector, alpha: float | None, out: Path) -> Path:
    """Write a checkpoint that acts as the model does with the vector at all positions.

    Processor, chat template and generation config are saved with it, and a ``steering.json``.
    ``out`` appears when it is whole, and is returned.
    """
    if vector.gate is not None or vector.site != HEAD_OUT:
        raise SteeringError(f"weights carry a vector at {HEAD_OUT} alone, and without a gate")
    strength = float(vector.alpha if alpha is None else alpha)
    vector.check(loaded.skeleton)
    # Weights do not depend on what stands around a text.
    mismatch = require_fitted(vector, replace(loaded.identity, prompt=""))
    baked = bake_model(loaded.model, vector.delta(strength))
    folder = Path(loaded.source).expanduser()
    # Also what one has seen that is baked in already.
    fitted = fitted_on(loaded.source, vector.fitted) or {}
    record: dict[str, Any] = {
        "model": folder.resolve().name if folder.exists() else loaded.source,
        "revision": loaded.revision,
        "dtype": loaded.dtype,
        "acts_at": ALL,
        "vector": vector.describe() | {"alpha": strength, "fitted": dict(fitted)},
        **({"mismatch": mismatch} if mismatch else {}),
    }
    _write(out.resolve(), baked, loaded.processor, record)
    return out


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


def bake_model(model: Any, delta: Tensor) -> Any:
    """A model that adds ``delta [L, H, D]`` at every position without hooks; zeros change nothing.

    It is of the same class and shares all unchanged weights with ``model``, which stays as it is.
    """
    geometry = find_geometry(model)
    shape = [geometry.n_layers, geometry.n_heads, geometry.head_dim]
    if list(delta.shape) != shape or not bool(torch.isfinite(delta).all()):
        raise SteeringError(f"weights take one finite vector {shape}, not {list(delta.shape)}")
    # What is in the memo is shared, not copied.
    kept = {id(t): t for t in (*model.parameters(), *model.buffers())}
    baked = copy.deepcopy(model, kept)
    if not bool(delta.any()):
        return baked
    attention = _attention(model, geometry.o_proj_names[0])
    has_switch = getattr(text_config(model), "attention_bias", None) is not None
    o_proj = getattr(attention, "o_proj", None)
    with torch.no_grad():
        if o_proj and (has_switch or o_proj.bias is not None):
            _into_o_proj(baked, delta.double(), geometry)
        elif getattr(getattr(attention, "v_proj", None), "bias", None) is not None:
            _into_v_proj(baked, delta.double(), geometry)
        else:
            raise SteeringError(f"{type(attention).__name__} has no bias that could carry it")
    # transformers' own class has a place for every weight.
    with torch.device("meta"):
        plain = type(baked)(copy.deepcopy(baked.config))
    own, expected = ({n: t.shape for n, t in m.state_dict().items()} for m in (baked, plain))
    if differ := sorted(set(own.items()) ^ set(expected.items())):
        raise SteeringError(f"{type(baked).__name__} has no place for {differ[0][0]}")
    return baked


def _into_o_proj(model: nn.Module, delta: Tensor, geometry: Geometry) -> None:
    for name, vectors in zip(geometry.o_proj_names, delta, strict=True):
        linears = [_linear(_attention(model, name), f"{part}_proj") for part in "qkvo"]
        for linear in linears:
            if linear.bias is None:
                linear.bias = _parameter(linear.weight.new_zeros(linear.out_features))
        weight = linears[-1].weight
        _add_to_bias(linears[-1], weight.double() @ vectors.flatten().to(weight.device), name)
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
