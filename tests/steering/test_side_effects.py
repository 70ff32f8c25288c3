"""What side effects are measured on, and what is refused before a model is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from sally_anne.core.errors import SteeringError
from steering.config import NEUTRAL, SideEffectsConfig
from steering.measuring import evaluation, read_prompts

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
        ("chess", "there is no task 'chess'"),
        ("gridtom:3", "orders 1, 2 and initial"),
        ("bigtom:1=x", "others none"),
        ("mimeqa=x", "open"),
    ],
)
def test_tasks_that_cannot_be_asked(task: str, message: str) -> None:
    with pytest.raises(SteeringError, match=message):
        evaluation(CONFIG, task)


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
