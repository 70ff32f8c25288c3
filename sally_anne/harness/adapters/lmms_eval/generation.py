"""How a task wants replies to be generated, as far as this model does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from loguru import logger

from sally_anne.core.errors import HarnessError

# As the models of lmms-eval have it where a task says nothing.
DEFAULT_LENGTH = 128
# They say how to draw or search, of which there is none here, or nothing about the words.
_WITHOUT_EFFECT = frozenset(
    {"do_sample", "temperature", "top_p", "top_k", "num_beams", "seed", "use_cache"}
)
_READ = frozenset({"max_new_tokens", "until"})
_GREEDY = "this model decodes greedily alone; set --gen_kwargs"


@dataclass(frozen=True)
class Generation:
    """Length of a reply in tokens, and strings before which it ends."""

    max_new_tokens: int = DEFAULT_LENGTH
    until: tuple[str, ...] = ()


def generation_of(options: Mapping[str, Any]) -> Generation:
    """Read a task's ``generation_kwargs``; replies are greedy.

    Options that are not known are passed over with a warning, since many are meant for one model
    alone.

    Raises:
        HarnessError: sampling, beams, or a value that is of no use; names the option.
    """
    temperature = _number("temperature", options.get("temperature"))
    if temperature is None and options.get("do_sample"):
        raise HarnessError(f"do_sample is on: {_GREEDY} do_sample=False")
    if temperature:
        raise HarnessError(f"temperature is {temperature:g}: {_GREEDY} temperature=0")
    if _number("num_beams", options.get("num_beams")) not in (None, 1):
        raise HarnessError(f"num_beams is {options['num_beams']}: {_GREEDY} num_beams=1")
    for name in sorted(set(options) - _READ - _WITHOUT_EFFECT):
        _pass_over(name, repr(options[name]))
    length = options.get("max_new_tokens", DEFAULT_LENGTH)
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise HarnessError(f"max_new_tokens must be a number of tokens, is {length!r}")
    return Generation(length, _stops(options.get("until")))


@lru_cache
def _pass_over(name: str, value: str) -> None:
    """Warn once, not for every document."""
    logger.warning(f"generation option {name}={value} is passed over: sally_anne has none")


def _number(name: str, value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError) as error:
        raise HarnessError(f"{name} must be a number, is {value!r}") from error


def _stops(until: Any) -> tuple[str, ...]:
    stops = [until] if isinstance(until, str) else (until or [])
    if not isinstance(stops, (list, tuple)) or not all(isinstance(s, str) for s in stops):
        raise HarnessError(f"until must be a string or a list of strings, is {until!r}")
    return tuple(stop for stop in stops if stop)
