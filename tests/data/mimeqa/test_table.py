"""CSV with places: what stands where, also after line breaks in cells."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import RecordError
from sally_anne.data.mimeqa import rows_of


def values(data: str | bytes) -> list[dict[str, str]]:
    raw = data.encode() if isinstance(data, str) else data
    return [{name: cell.value for name, cell in row.items()} for row in rows_of(raw, "t.csv")]


def test_every_cell_knows_its_line_and_column() -> None:
    rows = rows_of(b'A_b,c\n"1\r\n2\n3",x\n\n4,y\n', "t.csv")
    places = [(cell.where, cell.path) for row in rows for cell in row.values()]
    assert places == [
        ("t.csv, line 2", "a b"),
        ("t.csv, line 4", "c"),
        ("t.csv, line 6", "a b"),
        ("t.csv, line 6", "c"),
    ]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\xef\xbb\xbfa,b\n1,2", [{"a": "1", "b": "2"}]),
        (b"a,b\r1,2\r3,4\r", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        (b"a,b\n1\n", [{"a": "1", "b": ""}]),
        (b"a,b\n1,\n", [{"a": "1", "b": ""}]),
        (b"a,b\n1,", [{"a": "1", "b": ""}]),
        (b"a,b\n1,2,,\n", [{"a": "1", "b": "2"}]),
        (b"a,b\n\n , \n1,2\n\n", [{"a": "1", "b": "2"}]),
        (b"a,a\n1,2\n", [{"a": "1"}]),
        (b"a\n", []),
    ],
)
def test_traps_that_are_no_errors(data: bytes, found: list[dict[str, str]]) -> None:
    assert values(data) == found


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "t.csv: is empty"),
        (b"\xef\xbb\xbf\n\n", "t.csv: is empty"),
        (b'a,b\n1,"2\n3,4\n', "t.csv, line 2: is no row of columns"),
        (b'a,b\n"1"x,2\n', "t.csv, line 2: .* one inside a column is doubled"),
        (b"a,b\n1,2,3\n", "t.csv, line 2: column 3 is one more than the header's 2"),
    ],
)
def test_traps_that_are_errors(data: bytes, message: str) -> None:
    with pytest.raises(RecordError):
        values(data)


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@pytest.mark.fuzz
@settings(max_examples=400, deadline=None)
@given(st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1, max_size=5))
def test_what_the_csv_module_writes_is_read(records: list[list[str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["a", "b", "c"], *records])
    kept = [record for record in records if any(cell.strip() for cell in record)]
    assert [list(row.values()) for row in values(file.getvalue())] == kept
