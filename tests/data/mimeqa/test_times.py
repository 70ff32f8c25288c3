"""Times in a film, in files and in prompts."""

from __future__ import annotations

import pytest

from sally_anne.data.mimeqa import clock, read_range


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("(12.5, 30.0)", (12.5, 30.0)),
        ("[12.5,30]", (12.5, 30.0)),
        ("(1.5e-05, 2e1)", (1.5e-05, 20.0)),
        ("(7.0, 7.0)", (7.0, 7.0)),
    ],
)
def test_reads_a_range(text: str, span: tuple[float, float]) -> None:
    assert read_range(text) == pytest.approx(span)


@pytest.mark.parametrize(
    "text",
    [
        *("", "12", "()", "(12.5, )", "(1, 2, 3)", "(30, 12)", "(1, 2]", "(1, 2", "a to b"),
        *("(nan, 3)", "(1, inf)", "(-1, 2)", "(1, 1e9)", "0:12-0:30"),
    ],
)
def test_what_is_no_range(text: str) -> None:
    assert read_range(text) is None


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
