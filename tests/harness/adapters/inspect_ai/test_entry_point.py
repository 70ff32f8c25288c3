"""inspect-ai finds provider and task by the entry points that an installation has."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai import score
from inspect_ai.log import read_eval_log

from sally_anne.harness.adapters.inspect_ai import robust

pytestmark = pytest.mark.plugins
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where this checkout counts as installed, with the entry points of its pyproject."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["inspect_ai"]
    folder = tmp_path / "installed" / "plugged-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 0\n")
    lines = "".join(f"{name} = {place}\n" for name, place in points.items())
    (folder / "entry_points.txt").write_text(f"[inspect_ai]\n{lines}")
    paths = [str(folder.parent), str(ROOT)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "INSPECT_DISPLAY": "plain"}


def inspect(environment: dict[str, str], cwd: Path, *arguments: str) -> str:
    found = subprocess.run(
        [sys.executable, "-m", "inspect_ai", *arguments],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return found.stdout + found.stderr


def test_from_the_command_line(environment: dict[str, str], vector_folder, tmp_path: Path) -> None:
    folder = vector_folder("tiny-qwen2-vl")
    task = ("sally_anne/gridtom", "-T", "limit=1", "-T", "order=1", "-T", "setting=text")
    model = ("--model", "sally-anne/tiny-qwen2-vl", "-M", f"steer={folder}", "-M", "alpha=2")
    printed = inspect(environment, tmp_path, "eval", *task, *model, "--log-dir", "logs")
    logs = list((tmp_path / "logs").glob("*.eval"))
    assert len(logs) == 1, printed
    log = read_eval_log(str(logs[0]))
    assert log.status == "success" and log.eval.task == "sally_anne/gridtom"
    assert log.eval.model_args == {"steer": str(folder), "alpha": 2}
    assert log.results is not None
    assert {found.name for found in log.results.scores} == {"robust"}
    # A finished log can be scored anew.
    anew = score(log, robust(), action="overwrite", display="none")
    assert anew.results is not None
    found, again = (results.scores[0].metrics for results in (log.results, anew.results))
    assert {name: m.value for name, m in again.items()} == {n: m.value for n, m in found.items()}
    assert "Both" in again
