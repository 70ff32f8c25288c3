"""What side effects are measured on, and what is refused before a model is loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sally_anne.core.errors import HarnessError, SteeringError
from sally_anne.steering.measuring import evaluation, measure, read_prompts
from sally_anne.steering.prepare import probing_of
from sally_anne.steering.side_effects import NEUTRAL, SideEffectsConfig
from sally_anne.steering.sweep import SweepConfig

QUESTION = (
    '{"question": "Where is Ann?", "options": ["red", "blue"], "answer": "red", "group": "1"}\n'
)
CONFIG = SideEffectsConfig(Path("v"), limit=7, batch_size=3, setting="text")


def test_tasks_by_name_order_and_folder() -> None:
    found = evaluation(CONFIG, "gridtom:initial")
    assert (found.task, found.order, found.setting, found.limit) == (
        "gridtom",
        "initial",
        "text",
        7,
    )
    found = evaluation(CONFIG, "bigtom=some/folder")
    assert (found.task, found.data, found.batch_size) == ("bigtom", Path("some/folder"), 3)
    assert evaluation(CONFIG, "gridtom").order == "1"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("chess", "chess: it is none of gridtom, moments"),
        ("gridtom:3", "orders 1, 2, initial, reality"),
        ("bigtom:1=x", "others none"),
        ("mimeqa=x", "open; ask them by `sally-anne evaluate`"),
    ],
)
def test_tasks_that_cannot_be_asked(task: str, message: str) -> None:
    with pytest.raises((SteeringError, HarnessError), match=message):
        evaluation(CONFIG, task)


def test_tasks_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    (tmp_path / "odd_tasks.py").write_text("from sally_anne.data.bigtom import BIGTOM as ODD\n")
    own = tmp_path / "a=1" / "film.jsonl"
    own.parent.mkdir()
    own.write_text(QUESTION)
    for task in (str(own), "odd_tasks:ODD"):
        assert (evaluation(CONFIG, task).task, evaluation(CONFIG, task).data) == (task, None)
    found = evaluation(CONFIG, "odd_tasks:ODD=some/folder")
    assert (found.task, found.data) == ("odd_tasks:ODD", Path("some/folder"))


def test_tasks_of_one_name_are_told_apart(tmp_path: Path) -> None:
    tasks = []
    for name in ("a", "b"):
        tasks.append(str(tmp_path / name / "film.jsonl"))
        Path(tasks[-1]).parent.mkdir()
        Path(tasks[-1]).write_text(QUESTION)
    config = SideEffectsConfig(Path("v"), tasks=tuple(tasks), out=tmp_path / "out")
    with pytest.raises(SteeringError, match="another one is kept as film already"):
        measure(config)


def test_default_folders_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert SweepConfig(data=Path(".")).folder.name.endswith(f"-data-{tmp_path.name}")
    assert SweepConfig(data=Path("..")).folder.name.endswith(f"-data-{tmp_path.parent.name}")
    assert SideEffectsConfig(Path(".")).folder.name.endswith(f"-{tmp_path.name}")
    assert SweepConfig(label="mood", towards="glad").folder.name.endswith("labelmood-towardsglad")


def test_the_sweeps_probing_run_reads_batches_of_its_size() -> None:
    assert probing_of(SweepConfig(batch_size=2), 30).batch_size == 2


def test_neutral_prompts(tmp_path: Path) -> None:
    own = read_prompts(NEUTRAL)
    assert len(own) == len(set(own)) > 20
    path = tmp_path / "prompts.txt"
    path.write_text("\n one \n\ntwo\n")
    assert read_prompts(path) == ["one", "two"]
    path.write_text(" \n")
    with pytest.raises(SteeringError, match="holds no prompt"):
        read_prompts(path)
    with pytest.raises(SteeringError, match="none.txt is missing"):
        read_prompts(tmp_path / "none.txt")
