"""Reading JSON, JSON lines, CSV and text, with errors that name file, record and field."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from sally_anne.core.errors import RecordError

T = TypeVar("T")
_BREAK = re.compile(r"\r\n|\r|\n")
# Bytes that are not UTF-8 are read as lone surrogates, so that their cell can be named.
_UNREADABLE = re.compile(r"[\0\ud800-\udfff]")
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class Field:
    """A value of a record and its place: file and record, and the path of field names to it."""

    value: Any
    where: str
    path: str = ""

    def fail(self, problem: str) -> NoReturn:
        """Raise a RecordError that names the place."""
        raise RecordError(f"{self.where}: {f'field {self.path} ' if self.path else ''}{problem}")

    def get(self, name: str) -> Field:
        """A required field."""
        self._require(isinstance(self.value, dict), "an object")
        path = f"{self.path}.{name}" if self.path else name
        if name not in self.value:
            replace(self, value=None, path=path).fail("is missing")
        return replace(self, value=self.value[name], path=path)

    def has(self, name: str) -> bool:
        """Whether an optional field is present and not null."""
        return isinstance(self.value, dict) and self.value.get(name) is not None

    def opt(self, name: str, read: Callable[[Field], T]) -> T | None:
        """An optional field, read if it is present and not null."""
        return read(self.get(name)) if self.has(name) else None

    def only(self, names: Collection[str]) -> None:
        """Refuse fields of other names."""
        if unknown := [name for name in self.value if name not in names]:
            self.get(unknown[0]).fail(f"is not known; the fields are {', '.join(names)}")

    def items(self, count: int | None = None) -> list[Field]:
        """The elements of a list, exactly ``count`` if given."""
        self._require(isinstance(self.value, list), "a list")
        if count is not None and len(self.value) != count:
            self.fail(f"must have {count} elements, has {len(self.value)}")
        return [replace(self, value=v, path=f"{self.path}[{i}]") for i, v in enumerate(self.value)]

    def several(self) -> list[Field]:
        """The elements of a list; a single value counts as a list of one."""
        return self.items() if isinstance(self.value, list) else [self]

    def entries(self) -> dict[str, Field]:
        """The fields of an object by name."""
        self._require(isinstance(self.value, dict), "an object")
        return {name: self.get(name) for name in self.value}

    def text(self) -> str:
        """A non-blank string without the white space at its end.

        A trailing blank would change the last token, at which activations are read.
        """
        self._require(isinstance(self.value, str) and self.value.strip(), "a text")
        try:
            self.value.encode()
        except UnicodeEncodeError as error:
            self.fail(f"holds half of a surrogate pair at {error.start}")
        return self.value.rstrip()

    def stripped(self) -> str:
        """As :meth:`text`, without white space on either side."""
        return self.text().strip()

    def name(self) -> str:
        """A text, or a whole number as text."""
        return str(self.number()) if isinstance(self.value, int) else self.text()

    def file(self, folder: Path) -> Path:
        """An existing file, by its path from ``folder``."""
        path = folder / self.text()
        try:
            if not path.is_file():
                self.fail(f"names a file that is not there: {path}")
        # A name with NUL, or one that is too long.
        except (OSError, ValueError) as error:
            self.fail(f"is no name of a file ({error})")
        return path

    def flag(self) -> bool:
        """True or false."""
        self._require(isinstance(self.value, bool), "true or false")
        return self.value

    def number(self) -> int:
        """A whole number of at least 0."""
        whole = isinstance(self.value, int) and not isinstance(self.value, bool)
        self._require(whole and self.value >= 0, "a whole number from 0 on")
        return self.value

    def seconds(self) -> float:
        """A finite number of at least 0."""
        number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        self._require(number and 0 <= self.value < 10**300, "a finite number from 0 on")
        return float(self.value)

    def one_of(self, allowed: Collection[str]) -> str:
        """One of the given words."""
        known = isinstance(self.value, str) and self.value in tuple(allowed)
        self._require(known, f"one of {', '.join(allowed)}")
        return str(self.value)

    def _require(self, condition: object, what: str) -> None:
        if not condition:
            try:
                text = repr(self.value)
            except ValueError:  # a number of thousands of digits
                text = "a number"
            self.fail(f"must be {what}, is {text if len(text) <= 60 else text[:57] + '...'}")


def find_file(folder: Path, names: Collection[str], layout: str) -> Path:
    """The first of these files in a folder; RecordError describes what the folder must hold."""
    for name in names:
        if (path := Path(folder) / name).is_file():
            return path
    raise RecordError(f"{folder}: must hold {layout}")


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
            f"{path}, line {line}: is not {encoding[:6]} ({error.reason}); save the file as UTF-8"
        ) from error


def read_json(path: Path) -> Any:
    """The value of a JSON file; RecordError names the line, or a name that an object repeats."""
    return parse_json(read_text(path), path)


def parse_json(text: str, path: Path | str) -> Any:
    """The value of a JSON text, see :func:`read_json`."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise RecordError(f"{path}, line {error.lineno}: is not JSON ({error.msg})") from error
    # Numbers of thousands of digits, repeated names, endless nesting.
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: is not usable as JSON ({error})") from error


def read_list(path: Path, what: str = "questions") -> list[Field]:
    """The elements of a JSON file that holds a list; RecordError if it is empty."""
    records = Field(read_json(path), str(path)).items()
    if not records:
        raise RecordError(f"{path}: has no {what}")
    return records


def json_lines(content: bytes, path: Path, what: str) -> Iterator[Field]:
    """The objects of a JSON-lines file, one ``what`` a line; blank lines are skipped."""
    for number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).splitlines(), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode(), object_pairs_hook=_unique)
        # ValueError covers bad JSON, bad UTF-8 and numbers of thousands of digits.
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{where}: is not JSON ({error}); give one {what} a line") from error
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
    """The lines of a user's JSON-lines file by unique name; RecordError names the field.

    Args:
        what: one line holds.
        name: field with a line's name.
        unnamed: name of a line without one; ``{}`` stands for the line's number.
        fields: those that a line may have.
        alike: of each of these groups, some field is in all lines or in none.
    """
    lines: dict[str, Field] = {}
    first: Field | None = None
    for record in json_lines(read_bytes(path), path, what):
        record.only(fields)
        first = first or record
        for names in alike:
            has, had = (any(r.has(name) for name in names) for r in (record, first))
            if has != had:
                record.fail(
                    f"field {' or '.join(names)} is {'there' if has else 'missing'}, unlike in "
                    f"{first.where.removeprefix(f'{path}, ')}; give it in all lines or in none"
                )
        number = int(record.where.rpartition(" ")[2])
        key = record.opt(name, Field.name) or unnamed.format(number)
        if key in lines:
            record.get(name).fail(f"repeats {key!r}")
        lines[key] = record
    if not lines:
        raise RecordError(f"{path}: has no {what}s")
    return lines


def csv_rows(data: bytes, where: str, delimiter: str = ",") -> Iterator[list[Field]]:
    """Each row's cells (RFC 4180), which name the lines they begin in; blank lines are skipped."""
    text = io.StringIO(data.decode("utf-8-sig", errors="surrogateescape"), newline="")
    rows = csv.reader(text, delimiter=delimiter, strict=True)
    line = 1
    try:
        for row in rows:
            cells = []
            for cell in row:
                cells.append(Field(cell, f"{where}, line {line}"))
                line += len(_BREAK.findall(cell))
            # A row of blank columns is one that cannot be used.
            if len(row) > 1 or any(map(str.strip, row)):
                yield cells
            line = rows.line_num + 1
    except csv.Error as error:
        raise RecordError(f"{where}, line {line}: is no row of columns ({error})") from error


def cell_text(cell: Field) -> str:
    """A cell's text without white space around it; RecordError for NUL and what is not UTF-8."""
    if _UNREADABLE.search(cell.value):
        cell.fail("holds NUL or bytes that are not UTF-8; save the file as UTF-8")
    return cell.value.strip()


def needed(cell: Field) -> str:
    """As :func:`cell_text`; an empty cell is an error, too."""
    if not (text := cell_text(cell)):
        cell.fail("is empty")
    return text


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        name = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"an object has {name[:40]!r} twice")
    return record
