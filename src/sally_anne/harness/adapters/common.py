"""What the plug-ins have in common: options given in words, a steered model, clips."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import TemplateError
from PIL import Image

from sally_anne.core.errors import HarnessError, MediaError
from sally_anne.core.media import check_opened
from sally_anne.harness.evaluate import open_vector, require_fits
from sally_anne.harness.model import SteeredModel
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.options import ModelOptions

# How a sample is drawn or searched for, of which greedy decoding does nothing.
SAMPLING = frozenset(
    {"do_sample", "temperature", "num_beams", "top_p", "top_k", "min_p", "seed", "use_cache"}
)


def open_steered(
    model: str | LoadedModel,
    options: Mapping[str, Any],
    steer: str | Path | SteeringVector | None,
    alpha: Any = None,
    allow_mismatch: bool | str = False,
) -> SteeredModel:
    """Open a model (catalogue name, hub id, folder), or take a loaded one, and the vector, if any.

    ``options`` are of :class:`sally_anne.models.options.ModelOptions`, None for the default; a
    harness says ``device`` unasked, so ``device_map`` stands before it. ``alpha`` is the vector's
    own by default, and ``allow_mismatch`` steers a model that it was not fitted on.
    """
    known = [field.name for field in fields(ModelOptions) if field.name != "model"]
    if unknown := sorted(set(options) - set(known)):
        raise HarnessError(
            f"there is no model option {unknown[0]!r}; there are steer, alpha, allow_mismatch, "
            f"{', '.join(known)}"
        )
    strength = None if alpha is None else _finite("alpha", alpha)
    if strength is not None and steer is None:
        raise HarnessError("alpha is the strength of a vector: give one with steer")
    if not (steer is None or isinstance(steer, SteeringVector)):
        steer = open_vector(str(steer), allow_mismatch)
    if not isinstance(model, LoadedModel):
        # Command lines make numbers of words that look like some, a revision for example.
        given: dict[str, Any] = {n: str(v) for n, v in options.items() if v is not None}
        if "device_map" in given:
            given.pop("device", None)
        if "max_pixels" in given:
            given["max_pixels"] = whole("max_pixels", given["max_pixels"])
        model = load_model(**ModelOptions(model=str(model), **given).opening())
    if steer is not None:
        require_fits(steer, model, strength)
    return SteeredModel(model, steer, strength)


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number, also written as a word; HarnessError names the option if it is none."""
    found = _number(value)
    if not found.is_integer() or found < least:
        raise HarnessError(f"{name} must be a whole number from {least} on, is {value!r}")
    return int(found)


def _finite(name: str, value: Any) -> float:
    found = _number(value)
    if not math.isfinite(found):
        raise HarnessError(f"{name} must be a finite number, is {value!r}")
    return found


def _number(value: Any) -> float:
    """A number, also written as a word; NaN if it is none."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan


@dataclass(frozen=True)
class Decoding:
    """How a reply is written: at most so many tokens, and strings before which it ends."""

    max_new_tokens: int
    until: tuple[str, ...] = ()


def decoding(
    settings: Mapping[str, Any], length: int, names: Sequence[str] = ("max_new_tokens",)
) -> Decoding:
    """A task's ``generation_kwargs``; replies are greedy, as many tasks mean by temperature 0.

    ``length`` is that of a reply if they do not say, by one of ``names``, which stand in their
    order of precedence.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    temperature = _finite("temperature", given.get("temperature", 0))
    sampled = given.get("do_sample", False)
    if temperature or (sampled and "temperature" not in given):
        raise HarnessError(
            f"decoding is greedy, but temperature is {temperature:g} and do_sample {sampled}; set "
            "--gen_kwargs do_sample=False,temperature=0"
        )
    if _finite("num_beams", given.get("num_beams", 1)) != 1:
        raise HarnessError(f"decoding is greedy, but num_beams is {given['num_beams']}, not 1")
    said = next((name for name in names if name in given), None)
    length = length if said is None else whole(said, given[said])
    until = given.get("until", [])
    stops = [until] if isinstance(until, str) else until
    if not isinstance(stops, list | tuple) or not all(isinstance(stop, str) for stop in stops):
        raise HarnessError(f"until must be a string or a list of strings, is {until!r}")
    return Decoding(length, tuple(dict.fromkeys(stop for stop in stops if stop)))


def laid_out(loaded: LoadedModel, turns: Sequence[Mapping[str, Any]], reply: bool = True) -> str:
    """Turns in a chat layout, then the beginning of a reply, or the last turn left open."""
    try:
        return loaded.processor.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=reply, continue_final_message=not reply
        )
    except TemplateError as error:
        roles = ", ".join(str(turn.get("role")) for turn in turns)
        raise HarnessError(
            f"the chat template of {loaded.name} refuses the turns {roles}: {error}"
        ) from error


def one_clip(frames: Sequence[np.ndarray]) -> np.ndarray:
    """Pictures ``uint8 [height, width, 3]`` as frames of one clip; HarnessError if sizes differ."""
    sizes = list(dict.fromkeys(f"{frame.shape[1]} x {frame.shape[0]}" for frame in frames))
    if len(sizes) > 1:
        raise HarnessError(
            f"pictures of different sizes ({', '.join(sizes)}) are not frames of one clip; this "
            "model is shown one clip a question"
        )
    return np.stack(list(frames))


def checked(picture: Image.Image) -> Image.Image:
    """A picture that a task has opened, whose pixels may not be read yet, of a format we read."""
    try:
        check_opened(picture)
    except MediaError as error:
        raise HarnessError(f"a picture of the task {error}") from error
    return picture
