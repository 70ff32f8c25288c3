"""What the plug-ins have in common: options given in words, and a steered model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from pydantic import FiniteFloat, PositiveInt, TypeAdapter, ValidationError

from sally_anne.core.errors import HarnessError
from sally_anne.harness.evaluate import require_fits
from sally_anne.harness.model import SteeredModel
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.options import ModelOptions

T = TypeVar("T")
_WHOLE: TypeAdapter[int] = TypeAdapter(PositiveInt)
_NUMBER: TypeAdapter[float] = TypeAdapter(FiniteFloat)
_MODEL_OPTIONS = TypeAdapter(ModelOptions)


def open_steered(
    model: str | LoadedModel,
    options: Mapping[str, Any],
    steer: str | Path | SteeringVector | None,
    alpha: Any = None,
    allow_mismatch: bool = False,
) -> SteeredModel:
    """Open a model (catalogue name, hub id, folder), or take a loaded one, and the vector, if any.

    ``options`` are of :class:`sally_anne.models.options.ModelOptions`, None for the default; a
    harness says ``device`` unasked, so ``device_map`` stands before it. ``alpha`` is the vector's
    own by default, and ``allow_mismatch`` steers a model that it was not fitted on.
    """
    # Command lines make numbers of words that look like some, a revision for example.
    given: dict[str, Any] = {n: str(v) for n, v in options.items() if v is not None}
    if "device_map" in given:
        given.pop("device", None)
    given["model"] = "" if isinstance(model, LoadedModel) else str(model)
    known = [field.name for field in fields(ModelOptions)]
    chosen = options_of(_MODEL_OPTIONS, given, known)
    strength = None if alpha is None else _read(_NUMBER, "alpha", alpha)
    if strength is not None and steer is None:
        raise HarnessError("alpha is the strength of a vector: give one with steer")
    if not (steer is None or isinstance(steer, SteeringVector)):
        steer = SteeringVector.load(str(steer), allow_mismatch=bool(allow_mismatch))
    loaded = model if isinstance(model, LoadedModel) else load_model(**chosen.opening())
    if steer is not None:
        require_fits(steer, loaded, strength)
    return SteeredModel(loaded, steer, strength)


def options_of(config: TypeAdapter[T], given: Mapping[str, Any], known: Sequence[str]) -> T:
    if unknown := sorted(set(given) - set(known)):
        raise HarnessError(f"there is no option {unknown[0]!r}; there are {', '.join(known)}")
    return _read(config, "", given)


def whole(name: str, value: Any) -> int:
    """A whole number from 1 on, also written as a word; HarnessError names the option if not."""
    return _read(_WHOLE, name, value)


def _read(kind: TypeAdapter[T], name: str, value: Any) -> T:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise HarnessError(
            f"{name or wrong['loc'][0]} is {wrong['input']!r}: {wrong['msg']}"
        ) from error


@dataclass(frozen=True)
class Decoding:
    """How a reply is written: at most so many tokens, and strings before which it ends."""

    max_new_tokens: int
    until: tuple[str, ...] = ()
