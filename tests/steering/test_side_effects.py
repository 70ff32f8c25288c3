"""What side effects are measured on, and what is refused before a model is loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sally_anne.steering.config import SideEffectsConfig, SweepConfig
from sally_anne.steering.side_effects import evaluation
from sally_anne.steering.sweep import probing_of

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


def test_tasks_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    (tmp_path / "odd_tasks.py").write_text("from sally_anne.data.text_sets import BIGTOM as ODD\n")
    own = tmp_path / "a=1" / "film.jsonl"
    own.parent.mkdir()
    own.write_text(QUESTION)
    for task in (str(own), "odd_tasks:ODD"):
        assert (evaluation(CONFIG, task).task, evaluation(CONFIG, task).data) == (task, None)
    found = evaluation(CONFIG, "odd_tasks:ODD=some/folder")
    assert (found.task, found.data) == ("odd_tasks:ODD", Path("some/folder"))


def test_the_sweeps_probing_run_reads_batches_of_its_size() -> None:
    assert probing_of(SweepConfig(batch_size=2), 30).batch_size == 2
