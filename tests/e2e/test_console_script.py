"""The package as pip installs it: the wheel, and commands beside the user's own files."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from itertools import islice
from pathlib import Path

import pytest

from sally_anne.data.gridtom import samples
from sally_anne.data.gridtom.stories import generated
from sally_anne.experiments.train_tiny import evaluate
from sally_anne.models.loading import load_model

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
# The rooms of the package, and where their files stand in the clone.
ROOMS = {"sally_anne": "src/sally_anne"} | {
    f"sally_anne/{room}": room
    for room in ("hooks", "probing", "steering", "figures", "experiments")
}
# What is loaded from a folder of the user's own ends the command.
TRAP = "raise SystemExit('the user has a module of this name, and it was loaded')\n"


def pip(python: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
        + ["--no-build-isolation", "--no-index", "--ignore-installed", *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that git knows; building writes beside them."""
    folder = tmp_path_factory.mktemp("source")
    names = subprocess.check_output(["git", "ls-files", "-z", "-c"], cwd=ROOT, text=True)
    for name in names.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    run(folder, sys.executable, "-m", "pip", "wheel", *options, source)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory) -> Path:
    """The Python of an environment with the package, and what it needs from this one's."""
    return environment(tmp_path_factory.mktemp("installed"), str(wheel))


def environment(venv: Path, *what: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    packages = next((venv / "lib").glob("python*")) / "site-packages"
    (packages / "zz-outer.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = venv / "bin" / "python"
    pip(python, *what)
    return python


def run(folder: Path, *words: str | Path) -> str:
    env = {n: v for n, v in os.environ.items() if n not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


FEW = ["--stories", "20", "--permutations", "20", "--pairs", "2", "--validation-pairs", "2"]


def test_one_name_is_installed(python: Path) -> None:
    code = "import sally_anne.probing.config, sally_anne.hooks, sally_anne.figures; import probing"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=python.parent)
    assert "No module named 'probing'" in done.stderr.splitlines()[-1]


def test_commands_among_the_users_own_files(python: Path, tmp_path: Path) -> None:
    for name in ("models", "harness", "utils", "core", "tests"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    words = [*FEW, "--random-sets", "4", "--setting", "text", "--out"]
    run(tmp_path, python, "-m", "sally_anne.probing.run", *words, "by-module", "--no-figures")
    for name in ("probing", "hooks", "figures", "steering", "experiments"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    script = python.with_name("sally-anne")
    assert "probe" in run(tmp_path, script, "--help")
    run(tmp_path, script, "probe", *words, "by-name")
    made = [tmp_path / name / "heads.parquet" for name in ("by-module", "by-name")]
    assert made[0].read_bytes() == made[1].read_bytes()
    # Worker processes start afresh.
    run(tmp_path, script, "build", "--stories", "2", "--out", "built")


def test_the_command_of_the_clone(python: Path, source: Path, tmp_path: Path) -> None:
    editable = environment(tmp_path / "editable", "-e", str(source))
    words = ["-m", "probing.run", *FEW, "--no-figures", "--no-patching", "--out", tmp_path / "run"]
    run(source, python, *words)
    run(source, editable, *words, "--dry-run")
    assert (tmp_path / "run" / "heads.parquet").exists()


def test_what_is_in_the_wheel(source: Path, wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"sally_anne"}
    modules = {name for name in names if name.endswith(".py")}
    for room, place in ROOMS.items():
        for path in (source / place).rglob("*.py"):
            assert f"{room}/{path.relative_to(source / place).as_posix()}" in modules
    for name in ("py.typed", "experiments/recipes/figure-5.yaml", "figures/page.html"):
        assert f"sally_anne/{name}" in names
    assert "sally_anne/models/tiny/tiny-qwen2-vl/model.safetensors" in names


TINY = ("tiny-qwen2-vl", "tiny-llava-next-video")


@pytest.mark.parametrize("name", TINY)
def test_abilities_in_the_multimodal_setting(name: str, monkeypatch) -> None:
    test = samples.members(generated(), "test")[::10]
    # Of each story initial beliefs and the first order.
    whole = evaluate.contexts
    monkeypatch.setattr(evaluate, "contexts", lambda *case: islice(whole(*case), 3))
    right = evaluate.measure(load_model(name), generated(stories=test), "multimodal")
    assert right["initial belief"] >= 0.98
    assert right["statements TB"] >= 0.9
    assert right["statements FB"] >= 0.9
    assert right["belief FB"] >= 0.9
    assert 0.05 <= right["belief TB"] <= 0.5
    # What was said before, true or false, decides about the habit.
    after = "belief TB after {} statements"
    assert right[after.format("true")] >= right[after.format("false")] + 0.5


@pytest.mark.parametrize("name", [*TINY, *(f"{name}-text" for name in TINY)])
def test_size_and_card(name: str) -> None:
    import sally_anne.models as models

    folder = Path(models.__file__).parent / "tiny" / name
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 12e6
    card = (folder / "README.md").read_text()
    assert f"sally-anne evaluate-tiny --model {name}" in card
    assert list(folder.glob("loss-*.csv"))
