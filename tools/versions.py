"""Install the lowest versions that pyproject.toml declares, or the newest there are, and try them.

    python3.11 tools/versions.py lowest    # with the oldest Python that is declared
    python3.13 tools/versions.py newest
    python tools/versions.py bounds        # only: do the lowest resolve, each as it is declared?

The first two make a virtual environment of their own and run the unit tier, a probing run and
questions about films in it: half an hour on two cores, and 3 GB of downloads, as uv takes torch
with CUDA (``UV_TORCH_BACKEND=cpu`` where PyTorch's own index can be reached). What fails is
listed at the end, and the exit status is 1.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNIT = "not (integration or plugins or published or e2e or fuzz or gpu or every_type)"
# What the unit tier takes next to the package and the docs.
TESTS = ("hypothesis", "import-linter", "pytest")
MODEL = "--model tiny-qwen2-vl"
STEPS = {
    "dependencies agree": ["uv", "pip", "check"],
    "unit tier": ["pytest", "-n", "2", "-m", UNIT, "-p", "no:cacheprovider", "tests"],
    "probe": f"sally-anne probe {MODEL} --setting text --stories 20 --permutations 20".split(),
    "films": f"sally-anne evaluate {MODEL} --task docs/examples/film_task.jsonl".split(),
}


def run(which: str, folder: Path) -> list[str]:
    """Make the environment in a folder and try every step; what failed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bin = folder / "venv" / "bin"
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    subprocess.run([bin / "python", "-m", "pip", "install", "-q", "uv"], check=True)
    environment = os.environ | {"VIRTUAL_ENV": str(bin.parent), "PATH": f"{bin}:{os.defpath}"}
    # What is tried is the installed package, as a user has it.
    environment |= {"PYTHONPATH": "", "OMP_NUM_THREADS": "1"}

    def call(*words: str | Path) -> int:
        print("$", *words, flush=True)
        return subprocess.run([bin / words[0], *words[1:]], cwd=ROOT, env=environment).returncode

    extras, pins = project["optional-dependencies"], folder / "pins.txt"
    tests = [one for one in extras["dev"] if one.startswith(TESTS)] + extras["docs"]
    direct = project["dependencies"] + tests
    (folder / "direct.txt").write_text("\n".join([*direct, "peft>=0.21"]) + "\n")
    how = ["--resolution", "highest" if which == "newest" else "lowest-direct", "--no-header", "-q"]
    if which == "bounds":
        how += ["--python-version", project["requires-python"].removeprefix(">=")]
    if call("uv", "pip", "compile", folder / "direct.txt", *how, "-o", pins):
        return ["the versions do not resolve"]
    failed = [] if which == "newest" else false_bounds(direct, pins)
    if which == "bounds":
        return failed
    if call("uv", "pip", "install", "--quiet", "-r", pins, ROOT):
        return [*failed, "installation"]
    for name, words in STEPS.items():
        more = ["--out", folder / name] if "sally-anne" in words else []
        failed += [name] if call(*words, *more) else []
    return failed


def false_bounds(declared: list[str], pins: Path) -> list[str]:
    """Lower bounds that no installation has, as something else asks for more."""
    found = dict(re.findall(r"^([\w.-]+)==(\S+)", pins.read_text(), re.MULTILINE))
    wrong = []
    for one in declared:
        name, bound = re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", one).groups()
        there = found[name.replace("_", "-").lower()]
        bound, lowest = (re.sub(r"(\.0)+$", "", version) for version in (bound, there))
        if lowest != bound:
            wrong.append(f"{name}>={bound} is declared, {there} is the lowest that resolves")
    return wrong


if __name__ == "__main__":
    if sys.argv[1:] not in (["lowest"], ["newest"], ["bounds"]):
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as made:
        failures = run(sys.argv[1], Path(made).resolve())
    print("\n".join(failures) or "all is well")
    sys.exit(bool(failures))
