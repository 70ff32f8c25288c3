"""Every point of a sweep is what the plain one-by-one evaluation gives."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sally_anne.core import processes
from sally_anne.core.errors import OutOfMemoryError
from sally_anne.core.folder import Journal
from sally_anne.core.processes import BatchSize
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.items import Question, Setting
from sally_anne.harness.gridtom import Wording, items
from sally_anne.harness.model import Prompt, SteeredModel, prefill_prompts
from sally_anne.models.decoding import ROOM, State, extend
from sally_anne.models.estimate import row_bytes_by_device
from sally_anne.models.loading import LoadedModel
from sally_anne.steering import questions as module
from sally_anne.steering.points import grid_of, vectors_of
from sally_anne.steering.questions import answer_points
from tests.steering.made_sweep import vector

pytestmark = pytest.mark.integration


def questions(setting: Setting) -> list[Question]:
    splits = {3: "validation", 77: "validation"}
    return list(items(generated(stories=splits), splits, "1", Wording(setting)))


GRID = grid_of((2, 6), (-20.0, 0.0, 20.0), ("logistic", "random"))


@pytest.mark.parametrize(
    ("setting", "rows", "together"),
    [
        # Nine settings of three items, then of the one that is left.
        ("text", 2, [*[2, 1] * 9, *[1] * 9]),  # a setting's items do not fit
        ("text", 7, [*[6] * 4, 3, *[2] * 4, 1]),  # two settings
        ("multimodal", "auto", [27, 9]),  # all of them
    ],
)
def test_cells_equal_one_by_one(
    lively: LoadedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: Setting,
    rows: BatchSize,
    together: list[int],
) -> None:
    asked = questions(setting)
    vectors = vectors_of(GRID, vector)
    sizes: list[int] = []

    def counted(loaded: LoadedModel, state: State, numbers: list[int], endings: list) -> State:
        sizes.append(len(numbers))
        return extend(loaded, state, numbers, endings)

    monkeypatch.setattr(module, "extend", counted)
    with Journal(tmp_path / "sweep.jsonl", {}) as journal:
        table = answer_points(lively, asked, vectors, journal, 3, rows, 4)
    assert sizes == together
    assert len(table) == len(asked) * len(GRID)
    for point, chosen in vectors.items():
        model = SteeredModel(lively, chosen)
        replies = table[table["point"] == point.name].set_index("item_id")["reply"]
        for item in asked:
            prompt = Prompt(item.text, item.clip() if item.clip else None)
            assert replies[item.item_id] == model.generate([prompt], 4)[0]
    assert table.groupby("item_id")["reply"].nunique().max() > 1


def test_rows_follow_from_memory_and_its_end_is_told(
    lively: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free memory for so many rows beside the batch; then a machine that promised too much."""
    asked = questions("text")
    vectors = vectors_of(GRID, vector)
    (text,) = (item.text for item in [max(asked, key=lambda item: len(item.text))])
    state, (ending,) = prefill_prompts(lively, [Prompt(text)])
    tokens = state.mask.shape[1] + len(ending) + ROOM
    size = sum(row_bytes_by_device(lively.model, tokens).values())
    sizes: list[int] = []

    def crowded(loaded: LoadedModel, state: State, numbers: list[int], endings: list) -> State:
        if len(sizes) == 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
        sizes.append(len(numbers))
        return extend(loaded, state, numbers, endings)

    monkeypatch.setattr(processes, "free_memory", lambda device: (8 + 3) * size / 0.75)
    monkeypatch.setattr(module, "extend", crowded)
    with (
        Journal(tmp_path / "sweep.jsonl", {}) as journal,
        pytest.raises(
            OutOfMemoryError,
            match="smaller --decode-batch-size, then .* --batch-size, .*; what",
        ),
    ):
        answer_points(lively, asked, vectors, journal, 3, "auto", 4)
    assert sizes == [6, 6, 6]
    with Journal(tmp_path / "sweep.jsonl", {}) as journal:
        assert len(journal.answers) == 18
        monkeypatch.setattr(module, "extend", extend)
        resumed = answer_points(lively, asked, vectors, journal, 3, 5, 4)
    with Journal(tmp_path / "whole.jsonl", {}) as journal:
        whole = answer_points(lively, asked, vectors, journal, 3, "auto", 4)
    pd.testing.assert_frame_equal(resumed, whole)
