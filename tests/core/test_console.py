"""What commands show: text a terminal cannot be tricked by, and progress without a terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.markup import escape
from rich.table import Table

from sally_anne.core import console as module
from sally_anne.core.console import Bars, Console, quiet_libraries, stage, visible


class Clock:
    """Monotonic time that a test moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


def written(terminal: bool = False) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=terminal, width=200, color_system=None), file


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    shown = visible(text)
    assert all(c in "\t\n" or (ord(c) >= 32 and not 127 <= ord(c) < 160) for c in shown)
    assert not set(shown) & set("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2069")
    if text.isprintable() and text.isascii():
        assert shown == text


def test_escapes_in_texts_and_tables_are_shown() -> None:
    """A title, a cell and a line that would clear the screen, ring, and go back."""
    evil, shown = "a\x1b[2J\x07\r\x9bb [red]", r"a\x1b[2J\x07\r\x9bb [red]"
    console, file = written()
    table = Table("name", title=escape(evil))
    table.add_row(escape(evil))
    console.print(escape(evil))
    console.print(table)
    with stage(console, evil):
        pass
    with Bars(console) as bars:
        bars.update(bars.add_task(escape(evil), total=1), completed=1)
    assert file.getvalue().count(shown) == 5
    assert not set(file.getvalue()) & set("\x1b\x07\r\x9b")


def test_without_a_terminal_a_line_comes_now_and_then(clock: Clock) -> None:
    console, file = written()
    with Bars(console) as bars:
        task = bars.add_task("items", total=None)
        for done in range(1, 1001):
            clock.now += 0.2
            bars.update(task, completed=done, total=1000)
        slow = bars.add_task("stories", total=1000)
        bars.update(slow, completed=0)
        for _ in range(3):
            clock.now += 40
            bars.advance(slow)
    lines = file.getvalue().splitlines()
    # A tenth takes 20 s; the last line comes when all is done. Then one every 30 s at most.
    assert [line.partition(",")[0] for line in lines] == [
        *(f"items: {n} of 1000 ({n // 10} %)" for n in range(100, 1000, 100)),
        "items: 1000 of 1000 (100 %)",
        *(f"stories: {n} of 1000 (0 %)" for n in (1, 2, 3)),
    ]


def test_short_work_leaves_one_line(clock: Clock) -> None:
    console, file = written()
    with Bars(console) as bars:
        task = bars.add_task("items")
        for done in (1, 2, 3):
            bars.update(task, completed=done, total=3)
        bars.update(task, completed=3)
    assert file.getvalue() == "items: 3 of 3 (100 %), 0 s\n"


def test_long_work_that_counts_nothing_says_that_it_goes_on(monkeypatch, clock: Clock) -> None:
    monkeypatch.setattr(module, "_FIRST", 0.01)
    monkeypatch.setattr(module, "_LATEST", 0.02)
    console, file = written()
    with pytest.raises(RuntimeError, match="mine"), stage(console, "fitting [all]"):
        clock.now += 12
        deadline = time.monotonic() + 10
        while file.getvalue().count("\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        raise RuntimeError("mine")
    lines = file.getvalue().splitlines()
    assert lines[:3] == ["fitting [all] ...", *["fitting [all]: 12 s"] * 2]
    time.sleep(0.1)
    assert file.getvalue().splitlines() == lines


def test_a_terminal_has_bars_and_a_quiet_console_nothing() -> None:
    for console, expected in ((written(terminal=True)), True), ((Console(quiet=True), None), False):
        with Bars(console[0]) as bars:
            assert bars.disable is not expected
            bars.update(bars.add_task("items", total=1), completed=1)
        with stage(console[0], "reading"):
            pass
        if expected:
            assert "1/1" in console[1].getvalue() and "1 of 1" not in console[1].getvalue()


@pytest.mark.integration
def test_other_libraries_draw_no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    quiet_libraries()
    code = "from huggingface_hub.utils import are_progress_bars_disabled as off; print(off())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ),
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout == "True\n"
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "0")
    quiet_libraries()
    assert os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] == "0"
