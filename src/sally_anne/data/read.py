"""Reading JSON, JSON lines, CSV and text, with errors that name file, record and field."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from sally_anne.core.errors import RecordError
from sally_anne.core.files import LFS, POINTER, text_of

T = TypeVar("T")
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class Field:
    """A value of a record and its place: file and record, and the path of field names to it."""

    value: Any
    where: str
    path: str = ""

    def fail(self, problem: str) -> NoReturn:
        raise RecordError(f"{self.where}: {f'field {self.path} ' if self.path else ''}{problem}")

    def get(self, name: str) -> Field:
        self._require(isinstance(self.value, dict), "an object")
        path = f"{self.path}.{name}" if self.path else name
        if name not in self.value:
            replace(self, path=path).fail("is missing")
        return replace(self, value=self.value[name], path=path)

    def has(self, name: str) -> bool:
        """Whether an optional field is present and not null."""
        return isinstance(self.value, dict) and self.value.get(name) is not None

    def opt(self, name: str, read: Callable[[Field], T]) -> T | None:
        """An optional field, read if it is present and not null."""
        return read(self.get(name)) if self.has(name) else None

    def only(self, names: Collection[str]) -> None:
        if unknown := [name for name in self.value if name not in names]:
            self.get(unknown[0]).fail(f"is not known; the fields are {', '.join(names)}")

    def items(self, count: int | None = None) -> list[Field]:
        """The elements of a list, exactly ``count`` if given."""
        self._require(isinstance(self.value, list), "a list")
        if count is not None and len(self.value) != count:
            self.fail(f"must have {count} elements, has {len(self.value)}")
        return [replace(self, value=v, path=f"{self.path}[{i}]") for i, v in enumerate(self.value)]

    def several(self) -> list[Field]:
        """The elements of a list, or the single value."""
        return self.items() if isinstance(self.value, list) else [self]

    def entries(self) -> dict[str, Field]:
        self._require(isinstance(self.value, dict), "an object")
        return {name: self.get(name) for name in self.value}

    def text(self) -> str:
        """A non-blank string without the white space at its end, which would be the last token."""
        self._require(isinstance(self.value, str) and self.value.strip(), "a text")
        try:
            self.value.encode()
        except UnicodeEncodeError as error:
            self.fail(f"holds half of a surrogate pair at {error.start}")
        return self.value.rstrip()

    def stripped(self) -> str:
        return self.text().strip()

    def name(self) -> str:
        return str(self.number()) if isinstance(self.value, int) else self.text()

    def file(self, folder: Path) -> Path:
        """An existing file, by its path from ``folder``."""
        path = folder / self.text()
        if not os.path.isfile(path):
            self.fail(f"names a file that is not there: {path}")
        return path

    def flag(self) -> bool:
        self._require(isinstance(self.value, bool), "true or false")
        return self.value

    def number(self) -> int:
        self._require(type(self.value) is int and self.value >= 0, "a whole number from 0 on")
        return self.value

    def seconds(self) -> float:
        number = type(self.value) in (int, float)
        self._require(number and 0 <= self.value < 10**300, "a finite number from 0 on")
        return float(self.value)

    def one_of(self, allowed: Collection[str]) -> str:
        known = isinstance(self.value, str) and self.value in tuple(allowed)
        self._require(known, f"one of {', '.join(allowed)}")
        return str(self.value)

    def spelt(self, names: Collection[str], others: Mapping[str, str]) -> str:
        """One of the names, whatever its case and punctuation, or other spellings, as letters."""
        known = {letters(name): name for name in names} | dict(others)
        return known.get(letters(self.text())) or self.one_of(names)

    def _require(self, condition: object, what: str) -> None:
        if not condition:
            self.fail(f"must be {what}, is {self.value!r:.60}")


def letters(text: str) -> str:
    """The letters of an English text alone, in lower case."""
    return re.sub("[^a-z]", "", text.casefold().replace("&", "and"))


def one_line(text: str) -> str:
    return " ".join(text.split())


def find_files(
    folder: Path,
    patterns: Iterable[str],
    layout: str,
    fits: Callable[[Path], object] = Path.is_file,
) -> list[Path]:
    """The files of the first pattern that fit, sorted; RecordError says what a folder must hold."""
    for pattern in patterns:
        if found := sorted(path for path in Path(folder).glob(pattern) if fits(path)):
            return found
    raise RecordError(f"{folder}: must hold {layout}")


def read_bytes(path: Path, hint: str = "") -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}){hint}") from error
    if data.startswith(LFS):
        raise RecordError(f"{path}: {POINTER}")
    return data


def read_text(path: Path) -> str:
    return decoded(read_bytes(path), path)


def decoded(data: bytes, path: Path | str) -> str:
    """Text in UTF-8, or in UTF-16 with a byte order mark; RecordError names the line."""
    try:
        return text_of(data)
    except UnicodeDecodeError as error:
        line = data[: error.start].decode(error.encoding, "replace").count("\n") + 1
        raise RecordError(
            f"{path}, line {line}: is not {error.encoding} ({error.reason}); save the file as UTF-8"
        ) from error
    except ValueError as error:
        raise RecordError(f"{path}: {error}") from error


def parse_json(text: str | bytes, where: Path | str) -> Any:
    """RecordError for bad JSON, bad UTF-8 and endless nesting."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: is not usable as JSON ({error})") from error


def read_json(path: Path) -> Field:
    return Field(parse_json(read_text(path), path), str(path))


def read_list(path: Path) -> list[Field]:
    """The elements of a JSON file that holds a list; RecordError if it is empty."""
    return some(read_json(path).items(), path)


def some(records: list[T], path: Path | str, what: str = "questions") -> list[T]:
    if not records:
        raise RecordError(f"{path}: has no {what}")
    return records


def json_lines(content: bytes, path: Path, what: str) -> Iterator[Field]:
    """The objects of a JSON-lines file, one ``what`` a line; blank lines are skipped."""
    for number, line in enumerate(decoded(content, path).encode().splitlines(), start=1):
        if line.strip():
            record = Field(parse_json(line, where := f"{path}, line {number}"), where)
            if not isinstance(record.value, dict):
                record.fail(f"must be an object with the fields of one {what}")
            yield record


def named_lines(
    path: Path, what: str, name: str, unnamed: str, fields: Collection[str], alike: str = ""
) -> dict[str, Field]:
    """The lines of a user's JSON-lines file by unique name; RecordError names the field.

    A line without a field ``name`` is called ``unnamed``, in which ``{}`` stands for its number. Of
    the fields named in ``alike`` every line has the same; a bar parts those of which one will do.
    """
    lines: dict[str, Field] = {}
    for record in json_lines(read_bytes(path), path, what):
        record.only(fields)
        first = next(iter(lines.values()), record)
        for field in alike.split():
            has, had = (any(map(r.has, field.split("|"))) for r in (record, first))
            if has != had:
                named, there = field.replace("|", " or "), "there" if has else "missing"
                unlike = f"unlike in {first.where.rpartition(', ')[2]}; give it in all or in none"
                record.fail(f"field {named} is {there}, {unlike}")
        key = record.opt(name, Field.name)
        key = key or unnamed.format(int(record.where.rpartition(" ")[2]))
        if key in lines:
            record.get(name).fail(f"repeats {key!r}")
        lines[key] = record
    some([*lines], path, f"{what}s")
    return lines


def csv_rows(data: bytes, where: str, delimiter: str = ",") -> Iterator[Field]:
    """Each row's cells (RFC 4180), with the row's first line as its place; no blank lines."""
    text = io.StringIO(decoded(data, where), newline="")
    rows = csv.reader(text, delimiter=delimiter, strict=True)
    line = 1
    try:
        for row in rows:
            # A row of blank columns is one that cannot be used.
            if len(row) > 1 or any(map(str.strip, row)):
                yield Field(row, f"{where}, line {line}")
            line = rows.line_num + 1
    except csv.Error as error:
        raise RecordError(f"{where}, line {line}: is no row of columns ({error})") from error
