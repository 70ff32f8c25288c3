"""``sally-anne``: every command under one name, its help at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sally_anne.cli import COMMANDS, main

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
