"""The benchmark that CONTRIBUTING.md adds is found, read and asked as it says."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from sally_anne.cli import main
from sally_anne.core.errors import RecordError
from sally_anne.harness.tasks import find_task

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROWS = """scene,question,answer,foil,kind
Ann put the ball away.,Where does Bob look?,the box,the basket,belief
Ann left.,Where is Ann?,outside,inside,place
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the page's module lies beside its data."""
    found = re.search(r"<!-- riddles.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert found
    assert found[1].count("\n") < 60
    (tmp_path / "riddles.py").write_text(found[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "riddles", raising=False)
    return tmp_path


def test_a_benchmark_in_under_sixty_lines(folder: Path) -> None:
    task = find_task("riddles:RIDDLES")
    with pytest.raises(RecordError, match="riddles.csv is missing"):
        task.load(folder)
    (folder / "riddles.csv").write_text(ROWS)
    first, second = task.load(folder)
    assert [option.text for option in second.options] == ["inside", "outside"]
    assert (first.answer, second.answer) == ("A", "B")
    assert first.context.scene == "Ann put the ball away."


@pytest.mark.integration
def test_a_model_is_asked(folder: Path) -> None:
    (folder / "riddles.csv").write_text(ROWS)
    words = ["--task", "riddles:RIDDLES", "--data", ".", "--model", "tiny-qwen2-vl"]
    main(["evaluate", *words, "--out", "run"])
    assert len(pd.read_parquet(folder / "run" / "answers.parquet")) == 2
    assert "results" in json.loads((folder / "run" / "results.json").read_text())


def test_paths_on_the_page_exist() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`((?:sally_anne|hooks|probing|steering|tests)/[\w/.]*)`", PAGE)
    assert len(named) > 8
    assert [name for name in named if not (root / name).exists()] == []
