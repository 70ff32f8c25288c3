"""``sally-anne``: commands, help and what is printed; no two files import each other."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.markup import escape
from rich.table import Table

from sally_anne.cli import COMMANDS, main
from sally_anne.core.console import Bars, Console, stage, visible

# Prints the top help; what it loads, and then the help of every command, is looked at.
CODE = """
import contextlib, io, sys
from sally_anne.cli import COMMANDS, main

def help_of(*words):
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main([*words, "--help"])
    # The help of lm-eval is lm-eval's own.
    assert "lm-eval" in words or f"sally-anne {' '.join(words)}" in said.getvalue(), words
    return said.getvalue()

print(help_of())
heavy = {"torch", "transformers", "sklearn", "matplotlib", "pandas"}
assert not (heavy | {"numpy", "tyro"}) & sys.modules.keys()
for name in COMMANDS:
    help_of(name)
    # lm-eval, whose help is its own, comes last.
    heavy -= {"pandas"} if name.endswith("-eval") else set()
    assert not heavy & sys.modules.keys(), name
"""


@pytest.mark.integration
def test_help_lists_all_commands_and_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == [*COMMANDS]


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["prob"])
    assert ended.value.code == 2
    assert "did you mean probe" in capsys.readouterr().err


def test_no_circle_of_files() -> None:
    graph = grimp.build_graph("sally_anne", cache_dir=None, exclude_type_checking_imports=True)
    known = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(known).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


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
