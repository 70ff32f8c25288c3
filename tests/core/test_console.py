"""What commands show: text a terminal cannot be tricked by, and progress without a terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.markup import escape
from rich.table import Table

from sally_anne.core.console import Bars, Console, stage, visible


def written() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=200, color_system=None), file


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


def test_without_a_terminal_a_line_comes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("sally_anne.core.console.time.monotonic", lambda: now)
    console, file = written()
    with Bars(console) as bars:
        task = bars.add_task("items", total=None)
        for done in range(1, 101):
            now += 1
            bars.update(task, completed=done, total=100)
        bars.update(task, completed=100)
    lines = [line.partition(",")[0] for line in file.getvalue().splitlines()]
    assert lines == [f"items: {n} of 100" for n in (31, 61, 91, 100)]


@pytest.mark.integration
def test_nobody_reads_what_is_printed() -> None:
    code = (
        "from sally_anne.core.console import plain_errors\n"
        "with plain_errors():\n    for n in range(20_000): print('one', n)\n"
    )
    ended = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "$CODE" | head -1'],
        env={**os.environ, "CODE": code},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout == "one 0\n" and not ended.stderr
