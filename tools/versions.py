"""Is each lower bound of pyproject.toml a version that an installation can have?

    python tools/versions.py

Resolves the lowest versions on the oldest Python that is declared and lists bounds that something
else raises; the exit status is then 1. To try them, in an environment of that Python:
``uv pip install --resolution lowest-direct ".[dev]" && pytest -m "not (plugins or published)"``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What the unit tier takes next to the package and the docs.
TESTS = ("hypothesis", "import-linter", "pytest")


def false_bounds(folder: Path) -> list[str]:
    """Lower bounds that no installation has, by uv in an environment of its own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    tests = [one for one in extras["dev"] if one.startswith(TESTS)] + extras["docs"]
    declared, given = project["dependencies"] + tests, folder / "direct.txt"
    given.write_text("\n".join([*declared, "peft>=0.21"]) + "\n")
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "uv"], check=True)
    how = ["--resolution", "lowest-direct", "--no-header", "--quiet", "--python-version"]
    how.append(project["requires-python"].removeprefix(">="))
    command = [python, "-m", "uv", "pip", "compile", given, *how]
    pins = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found, wrong = dict(re.findall(r"^([\w.-]+)==(\S+)", pins, re.MULTILINE)), []
    for one in declared:
        name, bound = re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", one).groups()
        there = found[name.replace("_", "-").lower()]
        bound, lowest = (re.sub(r"(\.0)+$", "", version) for version in (bound, there))
        if lowest != bound:
            wrong.append(f"{name}>={bound} is declared, {there} is the lowest that resolves")
    return wrong


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        failures = false_bounds(Path(made).resolve())
    print("\n".join(failures) or "every lower bound is the version that is installed with it")
    sys.exit(bool(failures))
