"""What the numbers among a command's options may be: each field says it by its type.

An ``int`` is a count and at least 1, unless it is a :data:`Seed` or :data:`Natural`. A ``float`` is
finite; a :data:`Positive` one is more than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

from sally_anne.core.errors import OptionError


@dataclass(frozen=True)
class Range:
    """What a number must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


# What NumPy and scikit-learn take.
Seed = Annotated[int, Range(f"from 0 to {2**32 - 1}", range(2**32).__contains__)]
Natural = Annotated[int, Range("at least 0", lambda number: number >= 0)]
Positive = Annotated[float, Range("positive", lambda number: number > 0)]

_COUNT = Range("at least 1", lambda number: number >= 1)
_FINITE = Range("finite", math.isfinite)


def check_options(config: Any) -> None:
    """OptionError, by its name, for a number among options, or in a tuple, out of its range."""
    hints = get_type_hints(type(config), include_extras=True)
    for field in fields(config):
        value, parts = getattr(config, field.name), list(_parts(hints[field.name]))
        ranges = [_FINITE, *(part for part in parts if isinstance(part, Range))]
        if len(ranges) == 1 and int in parts and float not in parts:
            ranges.append(_COUNT)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, bool) or not isinstance(number, int | float):
                continue
            wrong = next((range for range in ranges if not range.holds(number)), None)
            if wrong is not None:
                raise OptionError(f"{spelled(field.name)} must be {wrong.words}, got {number}")


def spelled(name: str) -> str:
    """An option as it stands on the command line."""
    return "--K" if name == "k" else f"--{name.replace('_', '-')}"


def _parts(hint: Any) -> Iterator[Any]:
    """A type, and whatever stands in its brackets."""
    yield hint
    for part in get_args(hint):
        yield from _parts(part)
