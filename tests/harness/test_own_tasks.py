"""Tasks of one's own: a file of JSON lines, an object of a module, one of an installed package."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from sally_anne.core.errors import HarnessError, RecordError
from sally_anne.experiments.train_tiny.families import Family
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.tasks import TASKS, find_task, load_items, short_name
from tests.made_replies import replied

ROOT = Path(__file__).parents[2]
FILM_TASK = ROOT / "docs" / "examples" / "film_task.jsonl"
MODULE = """
from dataclasses import replace
from sally_anne.data.bigtom import BIGTOM

MINE = replace(BIGTOM, name="mine")
OTHER = 3
"""


def write(path: Path, *lines: dict[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_tasks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in __import__("sys").path if path])
    return "my_tasks"


def test_a_module_of_the_working_folder(module: str) -> None:
    assert find_task(f"{module}:MINE").name == "mine"
    assert short_name(f"{module}:MINE") == "MINE"
    with pytest.raises(HarnessError, match=r"my_tasks:OTHER: is a int, not a .*items\.Benchmark"):
        find_task(f"{module}:OTHER")
    with pytest.raises(HarnessError, match=r"has no attribute 'NONE'.*one of gridtom, moments"):
        find_task(f"{module}:NONE")


def test_an_installed_task(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", f"{module}:MINE", "sally_anne.tasks")
    monkeypatch.setattr("sally_anne.harness.tasks.entry_points", lambda group: [point])
    import sys

    sys.path.append(str(Path.cwd()))
    assert find_task("theirs").name == "mine"
    with pytest.raises(HarnessError, match=f"none of {', '.join(TASKS)}, theirs; no package"):
        find_task("nowhere")


def test_a_file_and_its_replies(tmp_path: Path) -> None:
    closed = write(tmp_path / "a.jsonl", {"question": "Who?", "options": ["x", "y"], "answer": 0})
    asked = write(tmp_path / "b.jsonl", {"question": "Who?", "answer": "Ann."})
    assert (
        EvalConfig(task=str(closed)).reply_tokens,
        EvalConfig(task=str(asked)).reply_tokens,
    ) == (32, 128)
    assert EvalConfig(task=str(closed)).folder.name.endswith("-a")
    before = find_task(str(closed))
    assert find_task(str(closed)) is before
    assert write(closed, {"question": "Who is it?", "answer": "Ann."}) == closed
    assert find_task(str(closed)).open_ended and not before.open_ended
    with pytest.raises(RecordError, match="nowhere.jsonl"):
        find_task(str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(HarnessError, match="--data is for other tasks"):
        load_items(EvalConfig(task=str(closed), data=tmp_path))


@pytest.mark.integration
def test_a_file_from_questions_to_numbers(
    folders: dict[Family, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        {"question": "Where?", "options": ["red", "blue"], "answer": "blue", "tags": {"kind": k}}
        for k in ("a", "a", "b", "c")
    ]
    config = EvalConfig(
        model=str(folders["qwen2-vl"]),
        task=str(write(tmp_path / "mine.jsonl", *lines)),
        out=tmp_path / "run",
    )
    replies = iter("BBAB")
    monkeypatch.setattr(
        SteeredModel, "replies", lambda self, prompts, n: replied(next(replies) for _ in prompts)
    )
    printed = io.StringIO()
    evaluate(config, console=Console(file=printed, width=60))
    saved = json.loads((config.folder / "results.json").read_text())
    found = saved["results"]["robust"]
    assert found["overall"]["value"] == 0.75 and found["invalid"]["value"] == 0
    assert {k: v["value"] for k, v in found["groups"]["kind"].items()} == {
        "a": 1.0,
        "b": 0.0,
        "c": 1.0,
    }
    said = " ".join(printed.getvalue().split())
    assert "mine, text, not steered" in said
    kept = json.loads((config.folder / "config.json").read_text())["config"]
    assert kept == saved["config"] and kept["task"] == config.task
    # Another question under the same name is another evaluate.
    write(tmp_path / "mine.jsonl", *[{**line, "question": "Who?"} for line in lines])
    with pytest.raises(HarnessError, match="holds another run: data is"):
        evaluate(replace(config), console=Console(file=printed))


@pytest.mark.e2e
def test_the_example_of_the_docs_plain_and_steered_by_commands_alone(tmp_path: Path) -> None:
    import subprocess
    import sys

    def command(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "sally_anne", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=1800,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    evaluate, vector = str(tmp_path / "run"), str(tmp_path / "vector")
    few = ("--stories", "20", "--no-patching", "--no-figures", "--permutations", "20")
    command("probe", "--model", "tiny-qwen2-vl", *few, "--out", evaluate)
    fitted = ("--run", evaluate, "--K", "4", "--alpha", "1", "--out", vector)
    command("steer", *fitted)
    asked = ("evaluate", "--model", "tiny-qwen2-vl", "--task", str(FILM_TASK))
    for name, more in (("plain", ()), ("steered", ("--steer", vector))):
        said = command(*asked, *more, "--out", str(tmp_path / name))
        saved = json.loads((tmp_path / name / "results.json").read_text())
        cut = int(pd.read_parquet(tmp_path / name / "answers.parquet")["cut"].sum())
        assert saved["counts"] == {"asked": 10, "hidden": 0, "cut": cut, "missing": 0}
        found = saved["results"]["robust"]
        assert set(found["groups"]["condition"]) == {"TB", "FB"}
        assert found["overall"]["n"] == 10 and "condition: FB" in said
        assert ("steered by vector" in " ".join(said.split())) is (name == "steered")
    assert json.loads((tmp_path / "steered" / "config.json").read_text())["config"]["steer"]
