"""Modules that are no commands say what to run."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("probing", "sally_anne", "steering", "figures")
# What looks like a command to somebody who reads the folder.
ENTRIES = {"run", "draw", "draw_all", "main"}


def guarded(path: Path) -> bool:
    """Whether a module does something when it is run."""
    return '\nif __name__ == "__main__":\n' in path.read_text(encoding="utf-8")


def test_every_module_with_an_entry_runs_or_says_what_to_run() -> None:
    found = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            if names & ENTRIES:
                found.append(path)
    assert len(found) > 15
    assert [path for path in found if not guarded(path)] == []


@pytest.mark.parametrize(
    ("module", "instead"),
    [
        ("sally_anne.harness.correlations", "correlations"),
    ],
)
@pytest.mark.integration
def test_a_module_that_is_no_command_says_what_to_run(module: str, instead: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: this module is no command; run sally-anne {instead}")
