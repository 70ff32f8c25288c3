"""Cells of MimeQA's CSV file: read with their places, as times, and as categories.

Cells may be quoted and then hold commas, line breaks and doubled quotes (RFC 4180). A quote in the
middle of an unquoted cell is a character like any other, as spreadsheets and pandas take it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sally_anne.benchmarks.fields import Field, read_bytes
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
    return rows_of(read_bytes(path), str(path))


def rows_of(data: bytes, where: str) -> list[Row]:
    """:func:`read_table` of a file's bytes; ``where`` names it in errors."""
    records = _records(data.decode("utf-8-sig", errors="surrogateescape"), where)
    if not records:
        raise RecordError(f"{where}: is empty; a header is needed in line 1")
    names = [re.sub(r"[\s_-]+", " ", cell).strip().lower() for _, cell in records[0]]
    rows: list[Row] = []
    for record in records[1:]:
        if any(cell.strip() for _, cell in record[len(names) :]):
            raise RecordError(
                f"{where}, line {record[len(names)][0]}: column {len(names) + 1} is one more than "
                f"the header's {len(names)}; is a comma not quoted?"
            )
        # A short row ends in empty cells.
        filled = [*record, *[(record[0][0], "")] * (len(names) - len(record))]
        row: dict[str, Field] = {}
        for name, (line, cell) in zip(names, filled, strict=False):
            # Of columns with one name the first counts; pandas renames the others.
            row.setdefault(name, Field(cell, f"{where}, line {line}", name))
        rows.append(row)
    return rows


def cell_text(cell: Field) -> str:
    """A cell's text without white space around it; empty for an empty one.

    Raises:
        RecordError: it holds NUL, or bytes that are not UTF-8.
    """
    if _UNREADABLE.search(cell.value):
        cell.fail("holds NUL or bytes that are not UTF-8; save the file as UTF-8")
    return cell.value.strip()


def _records(text: str, where: str) -> list[list[tuple[int, str]]]:
    """Cells with the lines they begin in, record by record; blank lines are left out."""
    place, line = 0, 1
    records = []
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
            records.append(record)
        record = []
        place = ended.end() if ended else len(text) + 1
        line += 1
    return records


# Longer than any video; guards against seconds that are really milliseconds.
LONGEST = 24 * 3600.0
# Characters of two times; the pattern between them takes the square of a text's length.
_WIDEST = 100

_CLOCK = r"(?:[0-9]{1,2}:[0-5]?[0-9]|[0-9]{1,3}):[0-5][0-9](?:\.[0-9]{1,6})?"
_SECONDS = r"[0-9]{1,9}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?"
_TIME = re.compile(rf"(?:({_CLOCK})|({_SECONDS})\s*(?:s|sec|secs|seconds)?)\Z", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*[,;–—]\s*|\s+to\s+|(?<![eE])\s*-\s*")
_IN_PROSE = re.compile(
    rf"(?<![0-9:.])(?:(?P<first>{_CLOCK})\s*(?:-|–|—|to|until|till|through)\s*(?P<last>{_CLOCK})"
    rf"|\bbetween\s+(?P<from>{_CLOCK})\s+and\s+(?P<until>{_CLOCK}))(?![0-9:])",
    re.IGNORECASE,
)


def read_time(text: str) -> float | None:
    """Seconds from ``m:ss``, ``mm:ss``, ``h:mm:ss`` or plain seconds, each with decimals or not.

    None if it is none of these, or no time within a day.
    """
    match = _TIME.match(text.strip())
    if match is None:
        return None
    if match[1] is None:
        seconds = float(match[2])
    else:
        seconds = 0.0
        for part in match[1].split(":"):
            seconds = 60 * seconds + float(part)
    return seconds if seconds <= LONGEST else None


def read_range(text: str) -> tuple[float, float] | None:
    """Two times, such as ``(12.5, 30.0)``, ``1:02-1:30`` or ``0:05 to 0:09``, in seconds.

    None if there are not two, or the second is before the first.
    """
    inner = text.strip()
    if len(inner) > _WIDEST:
        return None
    if inner[:1] in ("(", "["):
        if inner[-1:] != {"(": ")", "[": "]"}[inner[0]]:
            return None
        inner = inner[1:-1].strip()
    parts = [read_time(part) for part in _BETWEEN.split(inner)]
    if len(parts) != 2 or parts[0] is None or parts[1] is None or parts[1] < parts[0]:
        return None
    return parts[0], parts[1]


def range_in(prose: str) -> tuple[float, float] | None:
    """The first range of clock times that a sentence names; a single time is none."""
    for match in _IN_PROSE.finditer(prose):
        first, last = match["first"] or match["from"], match["last"] or match["until"]
        start, end = read_time(first), read_time(last)
        if start is not None and end is not None and start < end:
            return start, end
    return None


def clock(seconds: float) -> str:
    """``m:ss``, from an hour on ``h:mm:ss``; tenths are written where there are any.

    Args:
        seconds: finite, from 0 on.
    """
    tenths = round(10 * seconds)
    whole, tenth = divmod(tenths, 10)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    written = f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
    return f"{written}.{tenth}" if tenth else written


# In the order of the paper's figure 9.
LEVELS: dict[str, str] = {
    "Grounding the imagined": "grounding",
    "Intention": "scene",
    "Affect recognition": "scene",
    "Temporal": "scene",
    "Theory of mind": "global",
    "Social judgment": "global",
    "Working memory": "global",
}
CATEGORIES: tuple[str, ...] = tuple(LEVELS)

# The official file calls theory of mind perspective taking.
_SPELLINGS = {
    "Grounding the imagined": "grounding groundingtheimagined gi",
    "Intention": "intention intentions i intentionandbehavior intentionandbehaviour "
    "intentionandbehaviorunderstanding intentionandbehaviourunderstanding",
    "Affect recognition": "affectrecognition affect ar",
    "Temporal": "temporal temporalreasoning t",
    "Theory of mind": "theoryofmind tom perspectivetaking perspectivetakingtheoryofmind "
    "theoryofmindperspectivetaking",
    "Social judgment": "socialjudgment socialjudgement sj",
    "Working memory": "workingmemory wm",
}
_BY_SPELLING = {word: name for name, words in _SPELLINGS.items() for word in words.split()}


def category_of(text: str) -> str | None:
    """The category that a file means; None for none of them.

    Case, spaces, punctuation and the level before it ("Scene-Level: Temporal") do not matter.
    """
    letters = re.sub(r"[^a-z]", "", text.lower())
    for level in ("scenelevel", "globallevel", "groundinglevel", "scene", "global"):
        if letters.startswith(level) and letters != level:
            letters = letters.removeprefix(level)
            break
    return _BY_SPELLING.get(letters)
