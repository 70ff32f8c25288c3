"""Times in a film, in files, in prose and in prompts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.benchmarks.mimeqa import clock, range_in, read_range, read_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1:23", 83.0),
        ("01:23", 83.0),
        ("0:05.25", 5.25),
        ("12:00", 720.0),
        ("1:02:03", 3723.0),
        ("1:2:03", 3723.0),
        ("90:00", 5400.0),
        ("83.5", 83.5),
        ("83", 83.0),
        (" 12 s ", 12.0),
        ("1.5e-05", 1.5e-05),
    ],
)
def test_reads_a_time(text: str, seconds: float) -> None:
    assert read_time(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "1:75", "1:2", "-3", "nan", "inf", "1e9", "1:60:00", "1:2:3", "٣:٢٠", "0:1:2:3", "x"],
)
def test_what_is_no_time(text: str) -> None:
    assert read_time(text) is None


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("(12.5, 30.0)", (12.5, 30.0)),
        ("[12.5,30]", (12.5, 30.0)),
        ("(1.5e-05, 2e1)", (1.5e-05, 20.0)),
        ("0:12-0:30", (12.0, 30.0)),
        ("0:12 – 1:00:30", (12.0, 3630.0)),
        ("0:12 to 0:30", (12.0, 30.0)),
        ("7, 7", (7.0, 7.0)),
    ],
)
def test_reads_a_range(text: str, span: tuple[float, float]) -> None:
    assert read_range(text) == pytest.approx(span)


@pytest.mark.parametrize(
    "text", ["", "12", "(12.5, )", "(1, 2, 3)", "(30, 12)", "(1, 2]", "(1, 2", "a to b", "(nan, 3)"]
)
def test_what_is_no_range(text: str) -> None:
    assert read_range(text) is None


@pytest.mark.parametrize(
    ("prose", "span"),
    [
        ("What does he hold from 1:02 to 1:30?", (62.0, 90.0)),
        ("What is done between 0:05 and 1:00:00 of the film?", (5.0, 3600.0)),
        ("(0:05-0:09) Who falls?", (5.0, 9.0)),
        ("From 1:75 to 2:00, later 3:00–3:20, who falls?", (180.0, 200.0)),
        ("Why does she cry at 1:23?", None),
        ("Is she sadder at 1:23 and 2:10?", None),
        ("They won 5 to 3. What now?", None),
        ("From 2:00 to 1:00?", None),
    ],
)
def test_a_range_in_a_question(prose: str, span: tuple[float, float] | None) -> None:
    assert range_in(prose) == span


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0:00"),
        (83, "1:23"),
        (59.96, "1:00"),
        (4.29, "0:04.3"),
        (3599.96, "1:00:00"),
        (3723.5, "1:02:03.5"),
        (599, "9:59"),
    ],
)
def test_writes_a_time(seconds: float, written: str) -> None:
    assert clock(seconds) == written


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 863_999))
def test_what_is_written_is_read(tenths: int) -> None:
    assert read_time(clock(tenths / 10)) == pytest.approx(tenths / 10)
