"""README and docs: every command is one that there is, and every Python block runs as it says.

``sh`` blocks are read by the commands' own parsers; those of the tutorial run as its notebook.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import sally_anne as sa
from sally_anne.cli import COMMANDS, options
from sally_anne.core.options import flag_name

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
# A fence, what it is of, and what it holds.
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
# A command of ours in a line of the shell: by its name, or as a module that a launcher may start.
OURS = re.compile(
    r"(?:^|\s)(?:sally-anne|-m(?=\s+(?:bench|experiments|probing|sally_anne|steering)\b))\s+(\S+)(.*)"
)
INLINE = re.compile(r"`sally-anne\s+([^`]+)`")
NUMBER = re.compile(r"-?\d*\.?\d+")
# Modules that are a command.
MODULES = {
    f"{place}{room}.run": name
    for place in ("", "sally_anne.")
    for room, name in (("probing", "probe"), ("steering", "steer"))
}
# Commands of ours whose options are another harness's.
THEIRS = ("lm-eval", "lmms-eval")
FOLLOWED = DOCS / "tutorial.md"
PYTHON = [p for p in PAGES if p != FOLLOWED and "```python\n" in p.read_text(encoding="utf-8")]
# Its section that fetches weights is followed by tests/published.
FETCHES = re.compile("^## A published model\n.*?(?=^## )", re.DOTALL | re.MULTILINE)
# What it does needs a hub; tests/sharing does it with one on this machine.
AWAY = DOCS / "sharing.md"
named = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def shell_commands(text: str) -> list[tuple[str, list[str]]]:
    """Name and words of each command of ours in a page's blocks, but for other harnesses'."""
    shells = [code for _, kind, code in BLOCK.findall(text) if kind == "sh"]
    lines = "\n".join(shells).replace("\\\n", " ").splitlines()
    parts = (part for line in lines for part in re.split(r"&&|\||;|>", line))
    found = [match.groups() for part in parts if (match := OURS.search(part))]
    return [(name, shlex.split(rest, comments=True)) for name, rest in found if name not in THEIRS]


@named
def test_commands_are_read_by_their_own_parsers(page: Path) -> None:
    for name, words in shell_commands(page.read_text(encoding="utf-8")):
        command = MODULES.get(name, name)
        if command == "sally_anne":
            command, *words = words
        if COMMANDS[command].config:
            options(command, words)


@named
def test_commands_in_the_text_have_the_options_that_they_name(page: Path) -> None:
    for words in map(str.split, INLINE.findall(page.read_text(encoding="utf-8"))):
        name, *options = words
        if name in ("NAME", "--help", *THEIRS):
            continue
        assert name in COMMANDS, f"there is no command {name}"
        known = {"--help", "--config"}
        if not COMMANDS[name].config:
            continue
        for field in fields(COMMANDS[name].options):
            known |= {flag_name(field.name), flag_name(f"no_{field.name}")}
        unknown = {word for word in options if word.startswith("--")} - known
        assert not unknown, (name, unknown)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere_in_a_clone(page: Path) -> None:
    """On the site `mkdocs build --strict` holds it, also of headings."""
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_no_page_lacks_a_command() -> None:
    """Every command stands on a page, beside the generated list of all."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in COMMANDS if f"sally-anne {name}" not in text] == []


def test_the_reference_has_every_name() -> None:
    paths = re.findall(r"^::: (\S+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    found = {path.rpartition(".")[2]: pkgutil.resolve_name(path) for path in paths}
    assert found == {name: getattr(sa, name) for name in sa.__all__ if name != "__version__"}


def notebook(page: str) -> dict[str, Any]:
    """The notebook that the site's script makes of a page."""
    return runpy.run_path(str(DOCS / "made.py"))["notebook"](page)


def test_the_notebook_holds_what_the_tutorial_runs() -> None:
    """`python docs/made.py` writes it anew."""
    page = FOLLOWED.read_text(encoding="utf-8")
    kept, cells = json.loads(FOLLOWED.with_suffix(".ipynb").read_text()), notebook(page)["cells"]
    assert kept["cells"] == cells
    mark = {"sh": "%%bash\n", "python": ""}
    runs = [f"{mark[kind]}{code}" for _, kind, code in BLOCK.findall(page) if kind in mark]
    assert [f"{cell['source']}\n" for cell in cells if cell["cell_type"] == "code"] == runs
    told = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    assert re.findall("^#.*", told, re.MULTILINE) == re.findall("^#.*", page, re.MULTILINE)
    assert "](" not in told


@pytest.mark.e2e
@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.name)
def test_python_of_a_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks run one after the other, and print what stands below them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(DOCS)
    names: dict[str, Any] = {"__name__": "page"}
    said = ""
    for _, kind, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python" and page == AWAY:
            compile(code, str(page), "exec")
        elif kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, str(page), "exec"), names)
            said = out.getvalue()
        elif kind == "text":
            assert_shown(code, said)
    if page.name == "README.md":
        assert {"heatmap.png", "my-vector"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.e2e
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch) -> None:
    page = FETCHES.sub("", FOLLOWED.read_text(encoding="utf-8"))
    ours = tmp_path / "sally-anne"
    ours.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m sally_anne "$@"\n')
    ours.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "100")
    made = pytest.importorskip("nbformat").from_dict(notebook(page))
    place = {"metadata": {"path": str(tmp_path)}}
    pytest.importorskip("nbclient").NotebookClient(made, timeout=600, resources=place).execute()
    cells, said = iter(cell for cell in made["cells"] if cell["cell_type"] == "code"), ""
    for _, kind, code in BLOCK.findall(page):
        if kind == "text":
            assert_shown(code, said)
        elif kind in ("python", "sh"):
            told = (o["text"] for o in next(cells)["outputs"] if o.get("name") == "stdout")
            said = re.sub(r"\x1b\[[\d;]*m", "", "".join(told))  # a kernel asks for colours


def shell(code: str) -> str:
    """What the commands of a block print."""
    ours = f'sally-anne() {{ {shlex.quote(sys.executable)} -m sally_anne "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-euc", ours + code],
        env=os.environ | {"COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_shown(shown: str, printed: str) -> None:
    """Each line that a page shows is printed, in this order, however the lines are wrapped.

    Numbers are within a quarter, or a tenth.
    """
    words, begin = printed.split(), 0
    for line in shown.splitlines():
        if line.strip() not in ("", "..."):
            n = len(line.split())
            at = next(
                (i for i in range(begin, len(words)) if fits(line, " ".join(words[i : i + n]))),
                None,
            )
            assert at is not None, f"{line!r} is not in\n{printed}"
            begin = at + n


def fits(wanted: str, line: str) -> bool:
    numbers = [map(float, NUMBER.findall(text)) for text in (wanted, line)]
    words = [NUMBER.sub("#", text).split() for text in (wanted, line)]
    return words[0] == words[1] and all(
        abs(a - b) <= max(0.1, abs(a) / 4) for a, b in zip(*numbers, strict=True)
    )
