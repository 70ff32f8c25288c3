"""Typed reading of one JSON value after the other, with errors that say where it stands."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from sally_anne.core.errors import BenchmarkError, RecordError


@dataclass(frozen=True)
class Field:
    """A JSON value and its place.

    Attributes:
        value: the parsed value.
        where: file and record.
        path: field names from the record down to this value; empty for the record itself.
        error: what is raised.
    """

    value: Any
    where: str
    path: str = ""
    error: type[BenchmarkError] = RecordError

    def fail(self, problem: str) -> NoReturn:
        """Raise an error that names the place."""
        raise self.error(f"{self.where}: {f'field {self.path} ' if self.path else ''}{problem}")

    def get(self, name: str) -> Field:
        """A field that must be there."""
        if not isinstance(self.value, dict):
            self.fail(f"must be an object, is {_shown(self.value)}")
        path = f"{self.path}.{name}" if self.path else name
        if name not in self.value:
            replace(self, value=None, path=path).fail("is missing")
        return replace(self, value=self.value[name], path=path)

    def has(self, name: str) -> bool:
        """Whether an optional field is there and not null."""
        return isinstance(self.value, dict) and self.value.get(name) is not None

    def items(self, count: int | None = None) -> list[Field]:
        """The elements of a list, of which there must be ``count`` if given."""
        if not isinstance(self.value, list):
            self.fail(f"must be a list, is {_shown(self.value)}")
        if count is not None and len(self.value) != count:
            self.fail(f"must have {count} elements, has {len(self.value)}")
        return [replace(self, value=v, path=f"{self.path}[{i}]") for i, v in enumerate(self.value)]

    def entries(self) -> dict[str, Field]:
        """The named values of an object."""
        if not isinstance(self.value, dict):
            self.fail(f"must be an object, is {_shown(self.value)}")
        return {name: self.get(name) for name in self.value}

    def text(self) -> str:
        """A string that is not blank, without the white space at its end.

        A trailing blank would change the last token, at which activations are read.
        """
        if not isinstance(self.value, str) or not self.value.strip():
            self.fail(f"must be a text, is {_shown(self.value)}")
        return self.value.rstrip()

    def number(self) -> int:
        """A whole number from 0 on."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < 0:
            self.fail(f"must be a whole number from 0 on, is {_shown(self.value)}")
        return self.value

    def seconds(self) -> float:
        """A finite number from 0 on."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(f"must be a number, is {_shown(value)}")
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found) or found < 0:
            self.fail(f"must be a finite number from 0 on, is {_shown(value)}")
        return found

    def one_of(self, allowed: Collection[str]) -> str:
        """One of the given words."""
        # Membership by comparison: the value may be unhashable.
        if not any(isinstance(self.value, str) and self.value == word for word in allowed):
            self.fail(f"must be one of {', '.join(allowed)}, is {_shown(self.value)}")
        return str(self.value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
