"""CSV files (RFC 4180) as cells that know their places."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from sally_anne.core.errors import RecordError
from sally_anne.data.fields import Field

_BREAK = re.compile(r"\r\n|\r|\n")
# Bytes that are not UTF-8 are read as lone surrogates, so that their cell can be named.
_UNREADABLE = re.compile(r"[\0\ud800-\udfff]")
# Of a cell; 131,072 otherwise.
csv.field_size_limit(2**31 - 1)


def csv_rows(data: bytes, where: str, delimiter: str = ",") -> Iterator[list[Field]]:
    """Each row's cells with ``where`` and the lines they begin in; blank lines are left out."""
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
        raise RecordError(
            f"{where}, line {line}: is no row of columns ({error}); check its quotation marks: one "
            "inside a column is doubled"
        ) from error


def cell_text(cell: Field) -> str:
    """A cell's text without white space around it; RecordError for NUL and what is not UTF-8."""
    if _UNREADABLE.search(cell.value):
        cell.fail("holds NUL or bytes that are not UTF-8; save the file as UTF-8")
    return cell.value.strip()


def needed(cell: Field) -> str:
    """As :func:`cell_text`; an empty cell is an error, too."""
    text = cell_text(cell)
    if not text:
        cell.fail("is empty")
    return text
