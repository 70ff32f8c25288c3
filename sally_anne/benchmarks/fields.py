"""Typed reading of text and JSON files, with errors that name file, line and field."""

from __future__ import annotations

import codecs
import json
import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
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


def read_text(path: Path) -> str:
    """A text file in UTF-8, or in UTF-16 with a byte order mark.

    Raises:
        RecordError: it cannot be read, or is in another encoding; names the line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from error
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if wide else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].decode(encoding, "replace").count("\n") + 1
        raise RecordError(
            f"{path}, line {line}: is not {'UTF-16' if wide else 'UTF-8'} ({error.reason}); "
            "save the file as UTF-8"
        ) from error


def read_json(path: Path) -> Any:
    """The value of a JSON file; a name that an object has twice is an error.

    Raises:
        RecordError: as :func:`read_text`, or not JSON; names the line.
    """
    return parse_json(read_text(path), path)


def parse_json(text: str, path: Path | str) -> Any:
    """The value of a JSON text, see :func:`read_json`."""
    try:
        return json.loads(text, object_pairs_hook=_unrepeated)
    except json.JSONDecodeError as error:
        raise RecordError(f"{path}, line {error.lineno}: is not JSON ({error.msg})") from error
    # Numbers of thousands of digits, names that repeat; nesting without end.
    except ValueError as error:
        raise RecordError(f"{path}: is not usable as JSON ({error})") from error
    except RecursionError as error:
        raise RecordError(f"{path}: is nested too deeply") from error


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(n for n, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"an object has {twice[:40]!r} twice")
    return found
