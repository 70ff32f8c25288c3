"""A CSV file read so that every cell knows its line and its column.

Cells may be quoted and then hold commas, line breaks and doubled quotes (RFC 4180). A quote in the
middle of an unquoted cell is a character like any other, as spreadsheets and pandas take it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from sally_anne.benchmarks.fields import Field
from sally_anne.core.errors import RecordError

Row = Mapping[str, Field]

_QUOTED = re.compile(r'"([^"]*+(?:""[^"]*+)*+)"')
_PLAIN = re.compile(r"[^,\r\n]*+")
_BREAK = re.compile(r"\r\n|\r|\n")
# Bytes that are not UTF-8 are read as lone surrogates, so that their cell can be named.
_UNREADABLE = re.compile(r"[\0\ud800-\udfff]")


def read_table(path: Path) -> list[Row]:
    """All rows of a file with a header, blank lines aside.

    Column names are lower-cased, and ``_``, ``-`` and spaces in them are the same.

    Raises:
        RecordError: the file cannot be read or is no CSV; names file, line and column.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from error
    return rows_of(data, str(path))


def rows_of(data: bytes, where: str) -> list[Row]:
    """:func:`read_table` of a file's bytes; ``where`` names it in errors."""
    text = data.decode("utf-8-sig", errors="surrogateescape")
    records = _records(text, where)
    first = next(records, None)
    if first is None:
        raise RecordError(f"{where}: is empty; a header is needed in line 1")
    names = [column_name(cell) for _, cell in first]
    rows: list[Row] = []
    for record in records:
        row: dict[str, Field] = {}
        for number, (line, cell) in enumerate(record):
            if number >= len(names):
                if cell.strip():
                    raise RecordError(
                        f"{where}, line {line}: column {number + 1} is one more than the header's "
                        f"{len(names)}; is a comma not quoted?"
                    )
                continue
            # Of columns with one name the first counts; pandas renames the others.
            row.setdefault(names[number], Field(cell, f"{where}, line {line}", names[number]))
        # A short row ends in empty cells.
        for name in names:
            row.setdefault(name, Field("", f"{where}, line {record[0][0]}", name))
        rows.append(row)
    return rows


def column_name(cell: str) -> str:
    """A column's name as it is looked up."""
    return re.sub(r"[\s_-]+", " ", cell).strip().lower()


def cell_text(cell: Field) -> str:
    """A cell's text without white space around it; empty for an empty one.

    Raises:
        RecordError: it holds NUL, or bytes that are not UTF-8.
    """
    if _UNREADABLE.search(cell.value):
        cell.fail("holds NUL or bytes that are not UTF-8; save the file as UTF-8")
    return cell.value.strip()


def _records(text: str, where: str) -> Iterator[list[tuple[int, str]]]:
    """Cells with the lines they begin in, record by record; blank lines are left out."""
    place, line = 0, 1
    record: list[tuple[int, str]] = []
    while place <= len(text):
        quoted = text.startswith('"', place)
        match = (_QUOTED if quoted else _PLAIN).match(text, place)
        if match is None:
            raise RecordError(
                f"{where}, line {line}, column {len(record) + 1}: a quote is opened and not closed"
            )
        record.append((line, match[1].replace('""', '"') if quoted else match[0]))
        line += len(_BREAK.findall(match[0])) if quoted else 0
        place = match.end()
        if text.startswith(",", place):
            place += 1
            continue
        ended = _BREAK.match(text, place)
        if ended is None and place < len(text):
            raise RecordError(
                f"{where}, line {line}, column {len(record)}: text follows a closing quote; a "
                "quote inside a cell is doubled"
            )
        if any(cell.strip() for _, cell in record):
            yield record
        record = []
        place = ended.end() if ended else len(text) + 1
        line += 1
