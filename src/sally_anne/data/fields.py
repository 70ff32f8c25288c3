"""Typed reading of text, JSON and JSON-lines files, with errors that name file, line and field."""

from __future__ import annotations

import codecs
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from sally_anne.core.errors import RecordError

T = TypeVar("T")


@dataclass(frozen=True)
class Field:
    """A JSON value, and its place: file and record, and field names from the record down to it."""

    value: Any
    where: str
    path: str = ""

    def fail(self, problem: str) -> NoReturn:
        """Raise a RecordError that names the place."""
        raise RecordError(f"{self.where}: {f'field {self.path} ' if self.path else ''}{problem}")

    def get(self, name: str) -> Field:
        """A field that must be there."""
        self._be(isinstance(self.value, dict), "an object")
        path = f"{self.path}.{name}" if self.path else name
        if name not in self.value:
            replace(self, value=None, path=path).fail("is missing")
        return replace(self, value=self.value[name], path=path)

    def has(self, name: str) -> bool:
        """Whether an optional field is there and not null."""
        return isinstance(self.value, dict) and self.value.get(name) is not None

    def opt(self, name: str, read: Callable[[Field], T]) -> T | None:
        """An optional field, read if it is there and not null."""
        return read(self.get(name)) if self.has(name) else None

    def only(self, names: Collection[str]) -> None:
        """Refuse fields of other names."""
        if unknown := [name for name in self.value if name not in names]:
            self.get(unknown[0]).fail(f"is not known; the fields are {', '.join(names)}")

    def items(self, count: int | None = None) -> list[Field]:
        """The elements of a list, of which there must be ``count`` if given."""
        self._be(isinstance(self.value, list), "a list")
        if count is not None and len(self.value) != count:
            self.fail(f"must have {count} elements, has {len(self.value)}")
        return [replace(self, value=v, path=f"{self.path}[{i}]") for i, v in enumerate(self.value)]

    def several(self) -> list[Field]:
        """The elements of a list, or the one value that stands in place of a list."""
        return self.items() if isinstance(self.value, list) else [self]

    def entries(self) -> dict[str, Field]:
        """The named values of an object."""
        self._be(isinstance(self.value, dict), "an object")
        return {name: self.get(name) for name in self.value}

    def text(self) -> str:
        """A string that is not blank, without the white space at its end."""
        self._be(isinstance(self.value, str) and self.value.strip(), "a text")
        # A trailing blank would change the last token, at which activations are read.
        return self.value.rstrip()

    def encodable(self) -> str:
        """A text that a tokenizer takes: JSON can spell half of a character."""
        text = self.text()
        try:
            text.encode()
        except UnicodeEncodeError as error:
            self.fail(f"holds half of a character at {error.start} (half of a surrogate pair)")
        return text

    def name(self) -> str:
        """A text or whole number."""
        return str(self.number()) if isinstance(self.value, int) else self.encodable()

    def file(self, folder: Path) -> Path:
        """A file, by its path from ``folder``."""
        path = folder / self.encodable()
        try:
            there = path.is_file()
        # A name with NUL, or one that is too long.
        except (OSError, ValueError) as error:
            self.fail(f"is no name of a file ({error})")
        if not there:
            self.fail(f"names a file that is not there: {path}")
        return path

    def number(self) -> int:
        """A whole number from 0 on."""
        value = self.value
        whole = isinstance(value, int) and not isinstance(value, bool)
        self._be(whole and value >= 0, "a whole number from 0 on")
        return value

    def seconds(self) -> float:
        """A finite number from 0 on."""
        value = self.value
        self._be(isinstance(value, int | float) and not isinstance(value, bool), "a number")
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        self._be(math.isfinite(found) and found >= 0, "a finite number from 0 on")
        return found

    def one_of(self, allowed: Collection[str]) -> str:
        """One of the given words."""
        known = isinstance(self.value, str) and self.value in tuple(allowed)
        self._be(known, f"one of {', '.join(allowed)}")
        return str(self.value)

    def _be(self, so: object, what: str) -> None:
        if not so:
            text = repr(self.value)
            self.fail(f"must be {what}, is {text if len(text) <= 60 else text[:57] + '...'}")


def find_file(folder: Path, names: Collection[str], layout: str) -> Path:
    """The first of these files that is in a folder; RecordError says what the folder must hold."""
    paths = [Path(folder) / name for name in names]
    if (found := next((path for path in paths if path.is_file()), None)) is None:
        raise RecordError(f"{folder}: must hold {layout}")
    return found


def read_bytes(path: Path, hint: str = "") -> bytes:
    """A file's bytes; RecordError names it and ends with the hint."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}){hint}") from error


def read_text(path: Path) -> str:
    """A text file in UTF-8, or in UTF-16 with a byte order mark; RecordError names the line."""
    data = read_bytes(path)
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
    """The value of a JSON file; RecordError names the line, also where a name stands twice."""
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


def json_lines(content: bytes, path: Path, what: str) -> Iterator[Field]:
    """The objects of a JSON-lines file, one ``what`` a line; blank lines are passed over."""
    for number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).splitlines(), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode(), object_pairs_hook=_unrepeated)
        # ValueError covers bad JSON, bad UTF-8 and numbers with thousands of digits.
        except (ValueError, RecursionError) as error:
            raise RecordError(
                f"{where}: is not valid JSON ({error}); each line must be one {what}"
            ) from error
        if not isinstance(value, dict):
            raise RecordError(f"{where}: must be an object with the fields of one {what}")
        yield Field(value, where)


def named_lines(
    path: Path,
    what: str,
    name: str,
    unnamed: str,
    fields: Collection[str],
    alike: Collection[Collection[str]],
) -> dict[str, Field]:
    """The lines of a user's JSON-lines file by their unique names; RecordError names the field.

    Args:
        what: one line holds.
        name: field with a line's name.
        unnamed: the name of a line without it, in which ``{}`` stands for the line's number.
        fields: those that a line may have.
        alike: of each of these some field stands in all lines, or in none.
    """
    found: dict[str, Field] = {}
    first: Field | None = None
    for record in json_lines(read_bytes(path), path, what):
        record.only(fields)
        first = first or record
        for names in alike:
            has = [any(r.has(name) for name in names) for r in (record, first)]
            if has[0] != has[1]:
                record.fail(
                    f"field {' or '.join(names)} is {'there' if has[0] else 'missing'}, unlike in "
                    f"{first.where.removeprefix(f'{path}, ')}; give it in all lines or in none"
                )
        number = int(record.where.rpartition(" ")[2])
        key = record.opt(name, Field.name) or unnamed.format(number)
        if key in found:
            record.get(name).fail(f"repeats {key!r}")
        found[key] = record
    if not found:
        raise RecordError(f"{path}: has no {what}s")
    return found


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(n for n, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"an object has {twice[:40]!r} twice")
    return found
