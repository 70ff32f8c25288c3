"""``sally-anne export-lm-eval``: a vector as a file for lm-eval's own ``steered``.

lm_eval --model steered --model_args pretrained=TEXT_MODEL,steer_path=vector.pt --tasks ...
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic
from sally_anne.harness.evaluate import open_vector, require_fits
from sally_anne.harness.method_config import ExportConfig
from sally_anne.hooks.geometry import HEAD_OUT, RESID, plain_weight, w_o
from sally_anne.hooks.positions import ALL
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import load_model

SUFFIXES = (".pt", ".pth")
_ADDED = {"steering_coefficient": 1.0, "action": "add", "bias": None, "head_index": None}


def steer_config(
    vector: SteeringVector, model: Any, alpha: float | None = None, all_positions: bool = False
) -> dict[str, dict[str, Any]]:
    """What the file holds, of a vector and the Hugging Face model it is for, with its weights.

    ``steered`` (lm_eval/models/hf_steered.py in 0.4.13) adds a vector to the output of a named
    module, at every token of prompt and reply. So a file can hold, but for rounding: of
    ``head_out`` ``W_o delta``, added to the output of ``o_proj``, which is what a vector at all
    positions adds to that of attention; of ``attn_out`` the slices side by side, added there; of
    ``resid`` the same, added to the output of the layer. It cannot hold other positions, nor a
    head's own vector: its ``head_index`` takes ``[batch, tokens, heads, width]``, which no module
    of these decoders has.

    It opens models with ``AutoModelForCausalLM``: text decoders alone, or in Python a loaded one as
    ``pretrained``; and the file as a pickle. Ours also opens with ``weights_only=True``.

    Returns:
        By module, named as below ``model.base_model``: ``steering_vector`` (``float32 [hidden]``),
        ``steering_coefficient`` 1.0, ``action`` "add", ``bias`` and ``head_index`` None. Layers to
        which nothing is added are left out.
    """
    if vector.gate is not None:
        raise HarnessError(
            "lm-eval's `steered` has no gates, and would steer everywhere: export a vector that "
            "`sally-anne steer` made without --gate"
        )
    if vector.positions != ALL and not all_positions:
        raise HarnessError(
            f"the vector was made for positions {vector.positions!r}, and lm-eval's `steered` adds "
            "at all of them; say --all-positions to allow that"
        )
    geometry = vector.check(model)
    delta = vector.delta(alpha)
    names = geometry.layer_names if vector.site == RESID else geometry.o_proj_names
    inside = next(name for name, module in model.named_modules() if module is model.base_model)
    found = {}
    for name, o_proj, slices in zip(names, geometry.o_proj_names, delta.double(), strict=True):
        if not bool(slices.any()):
            continue
        added = slices.flatten()
        if vector.site == HEAD_OUT:
            module = model.get_submodule(o_proj)
            if plain_weight(module) is None:
                raise HarnessError(f"the weights of {o_proj} are quantised or not in memory")
            added = w_o(module).cpu().double() @ added
        added = added.float().clone()
        if not bool(torch.isfinite(added).all()):
            raise HarnessError(f"what is added at {name} is too large for float32")
        place = name.removeprefix(f"{inside}." if inside else "")
        found[place] = {**_ADDED, "steering_vector": added}
    return found


def export(
    vector: SteeringVector,
    model: Any,
    out: Path,
    alpha: float | None = None,
    all_positions: bool = False,
) -> Path:
    """Write :func:`steer_config` to the file ``out``, which is returned."""
    _check_name(out)
    held = io.BytesIO()
    torch.save(steer_config(vector, model, alpha, all_positions), held)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, held.getvalue())
    except OSError as error:
        raise HarnessError(f"{out} cannot be written ({error.strerror})") from error
    return out


def run(config: ExportConfig) -> None:
    """Read vector and model, write the file, say what it does."""
    _check_name(config.out)
    vector = open_vector(config.vector, config.allow_mismatch)
    loaded = load_model(**config.opening())
    if loaded.adapter is not None:
        raise HarnessError(
            f"lm-eval's `steered` would open {loaded.location} without the adapter "
            f"{loaded.adapter}: save the two merged (load_model(...).model.save_pretrained) and "
            "export for that, or run `sally-anne lm-eval`, which takes adapter="
        )
    mismatch = require_fits(vector, loaded, config.alpha)
    export(vector, loaded.model, config.out, config.alpha, config.all_positions)
    own = "" if vector.positions == ALL else f", not at {vector.positions} as it was made for"
    if mismatch:
        print(f"mismatch: {mismatch}")
    print(f"{config.out}: acts at ALL positions{own}")


def _check_name(out: Path) -> None:
    if out.suffix not in SUFFIXES:
        raise HarnessError(f"{out}: lm-eval's `steered` reads files that end in .pt or .pth")
