"""Install the lowest versions that pyproject.toml declares, or the newest there are, and try them.

    python tools/versions.py lowest    # on the oldest Python that is declared
    python tools/versions.py newest    # on the newest that PATH has
    python tools/versions.py bounds    # only: do the lowest resolve, each at its declared bound?

The first two make a virtual environment of their own and run the unit tier, a probing run and
questions about films in it: half an hour on two cores, and 3 GB of downloads, as uv takes torch
with CUDA (``UV_TORCH_BACKEND=cpu`` where PyTorch's own index can be reached). What fails is
listed at the end, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNIT = "not (integration or plugins or published or e2e or fuzz or gpu or every_type)"
# What the unit tier takes next to the package and the docs.
TESTS = ("hypothesis", "import-linter", "pytest")
MODEL = ["--model", "tiny-qwen2-vl"]
SMALL = ["--stories", "20", "--permutations", "20"]
STEPS = {
    "dependencies agree": ["uv", "pip", "check"],
    "unit tier": ["pytest", "-n", "2", "-m", UNIT, "-p", "no:cacheprovider", "tests"],
    "probe": ["sally-anne", "probe", *MODEL, "--setting", "text", *SMALL, "--out", "OUT/probe"],
    "films": ["sally-anne", "evaluate", *MODEL, "--task", "docs/examples/film_task.jsonl"],
}
STEPS["films"] += ["--out", "OUT/films"]


def main() -> int:
    """Do what the command line asks; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=("lowest", "newest", "bounds"))
    which = parser.parse_args().which
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    python = interpreter(project["requires-python"], which == "newest")
    with tempfile.TemporaryDirectory() as folder:
        return run(project, which, python, Path(folder).resolve())


def interpreter(declared: str, newest: bool) -> str:
    """The oldest Python that is declared, or the newest that starts here."""
    oldest = int(declared.removeprefix(">=3."))
    for minor in range(30, oldest - 1, -1) if newest else [oldest]:
        command = [f"python3.{minor}", "-c", "import sys; print(sys.executable)"]
        try:
            # A shim of pyenv is on PATH for versions that do not start, too.
            return subprocess.run(command, capture_output=True, check=True, text=True).stdout[:-1]
        except (OSError, subprocess.CalledProcessError):
            pass
    raise SystemExit(f"no python3.{oldest}{' or newer' if newest else ''} on PATH")


def run(project: dict, which: str, python: str, folder: Path) -> int:
    """Make the environment, then try every step; 1 if one failed."""
    bin = folder / "venv" / "bin"
    subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
    subprocess.run([bin / "python", "-m", "pip", "install", "-q", "uv"], check=True)
    environment = os.environ | {"VIRTUAL_ENV": str(bin.parent), "PATH": f"{bin}:{os.defpath}"}
    # What is tried is the installed package, as a user has it.
    environment |= {"PYTHONPATH": "", "OMP_NUM_THREADS": "1"}

    def call(*words: str | Path) -> int:
        print("$", *words, flush=True)
        return subprocess.run(list(words), cwd=ROOT, env=environment).returncode

    extras = project["optional-dependencies"]
    tests = [one for one in extras["dev"] if one.startswith(TESTS)] + extras["docs"]
    direct = project["dependencies"] + tests
    (folder / "direct.txt").write_text("\n".join([*direct, "peft>=0.21"]) + "\n")
    resolution = "highest" if which == "newest" else "lowest-direct"
    how = ["--resolution", resolution, "--python", bin / "python", "--quiet", "--no-header"]
    pins = folder / "pins.txt"
    if call(bin / "uv", "pip", "compile", folder / "direct.txt", *how, "-o", pins):
        return 1
    failed = [] if which == "newest" else false_bounds(direct, pins)
    if which == "bounds":
        print("\n".join(failed) or "every lower bound is the version that is installed with it")
        return bool(failed)
    if call(bin / "uv", "pip", "install", "--quiet", "-r", pins, ROOT):
        return 1
    for name, words in STEPS.items():
        start = time.monotonic()
        words = [word.replace("OUT", str(folder)) for word in words]
        code = call(bin / words[0], *words[1:])
        print(f"== {name}: exit {code}, {time.monotonic() - start:.0f} s", flush=True)
        failed += [f"{name}: exit {code}"] if code else []
    kept = json.loads((folder / "probe" / "run.json").read_text())["versions"]
    print(which, "on", ", ".join(f"{name} {version}" for name, version in kept.items()))
    print("\n".join(failed) or "all passed")
    return bool(failed)


def false_bounds(declared: list[str], pins: Path) -> list[str]:
    """Lower bounds that no installation has, as something else asks for more."""
    found = dict(re.findall(r"^([\w.-]+)==(\S+)", pins.read_text(), re.MULTILINE))

    def numbers(version: str) -> list[str]:
        return re.sub(r"(\.0)+$", "", version).split(".")

    wrong = []
    for one in declared:
        name, bound = re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", one).groups()
        there = found[name.replace("_", "-").lower()]
        if numbers(there) != numbers(bound):
            wrong.append(f"{name}>={bound} is declared, {there} is the lowest that resolves")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
