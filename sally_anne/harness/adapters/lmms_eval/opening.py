"""From the words of ``--model_args`` to a steered model."""

from __future__ import annotations

import math
import os
from typing import Any

import torch

from sally_anne.core.errors import HarnessError
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.vectors import open_vector, require_fits
from sally_anne.models.loading import load_model


def open_model(
    pretrained: str,
    steer: Any,
    alpha: Any,
    dtype: str,
    device_map: str | None,
    revision: Any,
    force: bool | str = False,
) -> SteeredModel:
    """Open a model, and the vector that steers it if there is one.

    Args:
        pretrained: catalogue name, hub id or folder.
        steer: folder of a steering vector; None leaves the model as it is.
        alpha: strength of the vector; its own by default.
        dtype: of the weights.
        device_map: as in accelerate; by default the GPU of this process, or the CPU.
        revision: branch, tag or commit on the hub.
        force: steer a model that the vector was not fitted on.

    Raises:
        HarnessError: alpha is no strength, or there is no vector for it.
        ModelError: no such model.
        SteeringError: no such vector, or one for another model.
    """
    # lmms-eval makes numbers of words that look like some.
    loaded = load_model(
        str(pretrained),
        str(dtype),
        device_map or _own_gpu(),
        None if revision is None else str(revision),
    )
    strength = None if alpha is None else number("alpha", alpha)
    if steer is None:
        if strength is not None:
            raise HarnessError("alpha is the strength of a vector: give one with steer=FOLDER")
        return SteeredModel(loaded)
    vector = open_vector(str(steer), force)
    require_fits(vector, loaded, strength)
    return SteeredModel(loaded, vector, strength)


def number(name: str, value: Any) -> float:
    """A finite number out of ``--model_args``.

    Raises:
        HarnessError: it is none; names the option.
    """
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise HarnessError(f"{name} must be a finite number, is {value!r}")
    return found


def count(name: str, value: Any) -> int:
    """A positive whole number out of ``--model_args``.

    Raises:
        HarnessError: it is none; names the option.
    """
    found = number(name, value)
    if found < 1 or found != int(found):
        raise HarnessError(f"{name} must be a whole number from 1, is {value!r}")
    return int(found)


def _own_gpu() -> str | None:
    """Where several processes share the work, each has its own; else the model chooses."""
    rank = os.environ.get("LOCAL_RANK")
    return f"cuda:{rank}" if rank and torch.cuda.is_available() else None
