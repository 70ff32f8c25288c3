"""Options by words and from files are checked before any work; errors end in one line."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal

import grimp
import numpy as np
import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st
from rich.markup import escape
from rich.table import Table

from sally_anne.cli import COMMANDS, main
from sally_anne.core.console import Bars, Console, many, plain_errors, stage, visible
from sally_anne.core.errors import HookError, OptionError
from sally_anne.core.folder import save_config
from sally_anne.core.options import Natural, Positive, Seed, check_options, checked, read_options
from sally_anne.harness.config import EvalConfig
from sally_anne.probing.config import ProbeConfig
from sally_anne.steering.config import SweepConfig


@dataclass(frozen=True)
class Options:
    """Do something.

    Attributes:
        run: a folder.
        k: counts.
        c: positive.
        label: one of two.
        full: yes or no.
        out: a folder.
        batch_size: a count or a word.
        data_seed: a seed.
        layer: a number from 0.
        alpha: strengths.
    """

    run: tyro.conf.Positional[Path] = Path("r")
    k: Annotated[tuple[int, ...] | None, tyro.conf.arg(name="K")] = None
    c: Positive = 1.0
    label: Literal["y_p", "y_o"] = "y_p"
    full: bool = False
    out: Path | None = None
    batch_size: int | str = "auto"
    data_seed: Seed = 0
    layer: Natural = 0
    alpha: tuple[float, ...] | float | int | None = -2


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": -3}, "--batch-size must be at least 1, got -3"),
        ({"data_seed": 2**32}, "--data-seed must be from 0 to 4294967295, got 4294967296"),
        ({"layer": -1}, "--layer must be at least 0, got -1"),
        ({"k": (4, 0)}, "--K must be at least 1, got 0"),
        ({"alpha": (1.0, NAN)}, "--alpha must be finite, got nan"),
        ({"alpha": -INF}, "--alpha must be finite, got -inf"),
        ({"c": INF}, "--c must be finite, got inf"),
        ({"c": -1.0}, "--c must be positive, got -1.0"),
        ({"c": "1"}, "--c must be a number, got '1'"),
        ({"data_seed": True}, "--data-seed must be a whole number, got True"),
        ({"layer": 1.5}, "--layer must be a whole number, got 1.5"),
        ({"k": ("4",)}, "--K must be a whole number or none, got '4'"),
        ({"out": 3}, "--out must be a path or none, got 3"),
        ({"label": "y"}, "--label must be one of y_p, y_o, got 'y'"),
    ],
)
def test_numbers_out_of_range_are_named(wrong: dict[str, Any], message: str) -> None:
    for right in ({}, {"batch_size": 1, "k": (1,), "alpha": (-3.0, 0.0), "data_seed": 2**32 - 1}):
        check_options(Options(**right))
    with pytest.raises(OptionError) as caught:
        check_options(Options(**wrong))
    assert str(caught.value) == message


def test_functions_check_their_arguments_in_the_same_way() -> None:
    @checked
    def function(text: str, n: int | Literal["auto"] = 1, more: Any = None) -> tuple[Any, ...]:
        return text, n, more

    assert function("a", np.int64(3), more=[1]) == ("a", 3, [1])
    assert function("a", "auto")[1] == "auto"
    for how, wrong in (
        ({"text": ["a"]}, "text must be a text, got"),
        ({"text": "a", "n": 0}, "n must be at least 1, got 0"),
        ({"text": "a", "n": "all"}, "n must be a whole number or one of auto, got 'all'"),
        ({"text": "a", "m": 1}, "unexpected keyword argument 'm'; it takes text, n, more"),
    ):
        with pytest.raises(OptionError, match=wrong):
            function(**how)


def read(*words: str) -> Options:
    with plain_errors():
        return read_options(Options, "sally-anne it", words)
    raise AssertionError


FILES = {
    "options.yaml": "run: a\nk: [1, 2]\nc: 1e-3\nlabel: y_o\nfull: true\n",
    "config.json": '{"config": {"run": "a", "k": [1, 2], "c": 0.001, "label": "y_o", "full": true,'
    ' "out": null}, "versions": {"torch": "2"}, "sha256": "0"}',
}


@pytest.mark.parametrize("name", FILES)
def test_options_from_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    given = tmp_path if name == "config.json" else path
    assert read("--config", str(given)) == Options(Path("a"), (1, 2), 0.001, "y_o", True)
    found = read(f"--config={given}", "b", "--K", "3", "--no-full", "--out", "o")
    assert found == Options(Path("b"), (3,), 0.001, "y_o", False, Path("o"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: a\nkk: 3", "has no option 'kk'"),
        ("- run", "it holds a list"),
        ("run: [", "is damaged"),
        ("run: a\nc: -1", "--c must be positive, got -1.0"),
        ("r\0u\0n\0:\0 \0a\0", r"options\.yaml .*UTF-16 without"),
        (None, "is missing"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "options.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit, match=f"error: .*{message}"):
        read("--config", str(path))


@pytest.mark.parametrize(
    "config",
    [
        ProbeConfig(stories=20, c=0.1, figures=False, device="cpu"),
        EvalConfig(task="mimeqa", data=Path("d"), judge="a", judge_key="KEY"),
        SweepConfig(
            k=(1, 2), alpha=(-1.0, 2.5), order="2", decode_batch_size="auto", controls=False
        ),
    ],
    ids=lambda config: type(config).__name__,
)
def test_a_saved_run_is_repeated(tmp_path: Path, config: Any) -> None:
    save_config(tmp_path, asdict(config), model="m")
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["device"] and saved["dtype"] == "auto"
    assert saved["versions"].keys() >= {"python", "torch", "transformers", "numpy", "sally-anne"}
    assert read_options(type(config), "sally-anne it", ["--config", str(tmp_path)]) == config


def test_expected_errors_end_in_one_line_and_mistakes_of_ours_are_shown_whole() -> None:
    for error, line in (
        (HookError("this and that"), "error: this and that"),
        (PermissionError(errno.EACCES, "Not allowed", "a/b"), "error: a/b: Not allowed"),
    ):
        with pytest.raises(SystemExit) as ended, plain_errors():
            raise error
        assert ended.value.code == line
    for mistake in (ValueError("a mistake of ours"), BrokenPipeError(32, "pipe")):
        with pytest.raises(type(mistake)), plain_errors():
            raise mistake


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


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.config])
def test_every_option_has_its_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # no text is broken
    with redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit):
        main([name, "--help"])
    options, config = re.split(r"\n  (?=\S)", said.getvalue())[1:], COMMANDS[name].options
    known = {"help", "config", *(option.name for option in fields(config))}
    known |= {"as_published"} if hasattr(config, "as_published") else set()
    assert len(options) == len(known)
    for option in options:
        assert re.match(r"\S+(?: \S+)*\s{2,}\w", option), option


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


def test_one_is_no_plural() -> None:
    said = [many(n, "test stories") for n in (0, 1, 2)]
    assert said == ["0 test stories", "1 test story", "2 test stories"]
    assert many(1, "maps or groups") == "1 map or group"


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
