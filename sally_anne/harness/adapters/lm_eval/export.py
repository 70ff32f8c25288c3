"""``sally-anne export-lm-eval``: a vector as a file for lm-eval's own ``steered``.

    lm_eval --model steered --model_args pretrained=TEXT_MODEL,steer_path=vector.pt --tasks ...

That model type (lm_eval/models/hf_steered.py in 0.4.13) adds a vector to the output of a named
module, at every token. So a file can hold, exactly but for rounding in the model's dtype:

- ``head_out``: ``W_o delta`` of each layer, added to the output of ``o_proj``. That is what a
  vector at all positions adds to the output of attention, the same as :mod:`steering.baking`.
- ``attn_out``: the slices side by side, added to the output of ``o_proj``.
- ``resid``: the slices side by side, added to the output of the layer.

It cannot hold

- positions: a vector acts at ALL tokens, those of the prompt included. One that was made for other
  positions is refused, unless this is said to be wanted;
- the vector of a head as such: its ``head_index`` takes outputs of shape [batch, tokens, heads,
  width], which no module of these decoders has. Strengths per row and gates have no place either.

``steered`` opens models with ``AutoModelForCausalLM``, which knows text decoders but neither
Qwen2-VL nor LLaVA-NeXT-Video; in Python it also takes one of these, loaded, as ``pretrained``. It
opens the file as a pickle (``weights_only=False``); ours holds tensors, numbers, texts and None
alone, and opens with ``weights_only=True`` as well.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sally_anne.core.commands import command
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic
from sally_anne.models.options import ModelOptions

if TYPE_CHECKING:
    from hooks.vector import SteeringVector

SUFFIXES = (".pt", ".pth")


@dataclass(frozen=True, kw_only=True)
class ExportConfig(ModelOptions):
    """Write a steering vector for lm-eval's model type `steered`.

    Attributes:
        vector: folder of a steering vector.
        out: file to write, .pt or .pth.
        alpha: strength, in standard deviations; the vector's own by default.
        all_positions: write a vector that was made for other positions; it will act at all.
        force: export a vector that was fitted on another model.
    """

    vector: Path
    out: Path
    alpha: float | None = None
    all_positions: bool = False
    force: bool = False


def steer_config(
    vector: SteeringVector,
    model: Any,
    alpha: float | None = None,
    all_positions: bool = False,
) -> dict[str, dict[str, Any]]:
    """What the file holds.

    Args:
        vector: the vector.
        model: the Hugging Face model it is for, with its weights.
        alpha: strength; the vector's own by default.
        all_positions: take a vector made for other positions.

    Returns:
        By module, named as below ``model.base_model``: ``steering_vector`` (``float32 [hidden]``),
        ``steering_coefficient`` 1.0, ``action`` "add", ``bias`` and ``head_index`` None. Layers to
        which nothing is added are left out.

    Raises:
        HarnessError: positions other than all, a strength for each row, or weights of W_o that are
            quantised or not in memory.
        SteeringError: the vector does not fit the model.
    """
    import torch

    from hooks.geometry import HEAD_OUT, RESID
    from hooks.positions import ALL

    if vector.positions != ALL and not all_positions:
        raise HarnessError(
            f"the vector was made for positions {vector.positions!r}, and lm-eval's `steered` adds "
            "at all of them; say --all-positions if that is wanted"
        )
    geometry = vector.check(model)
    delta = vector.delta(alpha)
    if delta.ndim != 3:
        raise HarnessError("lm-eval's `steered` takes one strength, not one for each row")
    names = geometry.layer_names if vector.site == RESID else geometry.o_proj_names
    prefix = _prefix(model)
    found = {}
    for name, o_proj, slices in zip(names, geometry.o_proj_names, delta.double(), strict=True):
        if not bool(slices.any()):
            continue
        added = slices.flatten()
        if vector.site == HEAD_OUT:
            added = _weight(model, o_proj).double().cpu() @ added
        added = added.float().clone()
        if not bool(torch.isfinite(added).all()):
            raise HarnessError(f"what is added at {name} is too large for float32")
        found[name.removeprefix(prefix)] = {
            "steering_vector": added,
            "steering_coefficient": 1.0,
            "action": "add",
            "bias": None,
            "head_index": None,
        }
    return found


def export(
    vector: SteeringVector,
    model: Any,
    out: Path,
    alpha: float | None = None,
    all_positions: bool = False,
) -> Path:
    """Write :func:`steer_config` to a file.

    Returns:
        ``out``.

    Raises:
        HarnessError: as :func:`steer_config`; the file has another suffix or cannot be written.
        SteeringError: the vector does not fit the model.
    """
    import torch

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
    """Read vector and model, write the file, say what it does.

    Raises:
        HarnessError, SteeringError, ModelError: bad input, named.
    """
    _check_name(config.out)
    # Heavy libraries are imported here, so that --help answers at once.
    from sally_anne.harness.vectors import open_vector, require_fits
    from sally_anne.models.loading import load_model

    vector = open_vector(config.vector, config.force)
    loaded = load_model(**config.opening())
    forced = require_fits(vector, loaded, config.alpha)
    export(vector, loaded.model, config.out, config.alpha, config.all_positions)
    own = "" if vector.positions == "all" else f", not at {vector.positions} as it was made for"
    if forced:
        print(f"forced: {forced}")
    print(f"{config.out}: acts at ALL positions{own}")


main = command("sally-anne export-lm-eval", ExportConfig, run)


def _check_name(out: Path) -> None:
    if out.suffix not in SUFFIXES:
        raise HarnessError(f"{out}: lm-eval's `steered` reads files that end in .pt or .pth")


def _prefix(model: Any) -> str:
    """What stands before a module's name in ``model.base_model`` to make its name in ``model``."""
    base = model.base_model
    name = next(name for name, module in model.named_modules() if module is base)
    return f"{name}." if name else ""


def _weight(model: Any, name: str) -> Any:
    """The weight of W_o, ``[hidden, H * D]``."""
    from torch import nn

    linear = model.get_submodule(name)
    # A quantised layer is a subclass.
    if type(linear) is not nn.Linear or not linear.weight.is_floating_point():
        raise HarnessError(
            f"{name} is not a plain linear layer but {type(linear).__name__}; export with weights "
            "that are not quantised"
        )
    if linear.weight.is_meta:
        raise HarnessError(
            f"the weights of {name} are not in memory (offloaded); load the model onto one device"
        )
    return linear.weight.detach()


if __name__ == "__main__":
    main()
