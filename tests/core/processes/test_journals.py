"""Journals and sweeps that several processes share, with threads for processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch

from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import Journal
from sally_anne.core.processes import ALONE, ProcessError, Processes
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.items import Question
from sally_anne.harness.gridtom import Wording, items
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.steering.points import grid_of, vectors_of
from sally_anne.steering.questions import answer_points
from tests.core.processes.in_threads import Killed, together
from tests.steering.made_sweep import vector

pytestmark = pytest.mark.integration

ABOUT = {"model": "tiny"}
GRID = grid_of((2,), (-20.0, 20.0), ("logistic", "random"))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads beside each other compute as one of them does alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def asked() -> list[Question]:
    """Fourteen questions: with batches of four, the last one is smaller."""
    splits = dict.fromkeys(range(0, 21, 3), "validation")
    return list(items(generated(stories=splits), splits, "1", Wording("text")))


@pytest.fixture(scope="module")
def models(model_folder: Path) -> list[LoadedModel]:
    """A model for each thread, as they are steered at the same time."""
    loaded = [load_model(str(model_folder)) for _ in range(3)]
    for each in loaded:
        assert not each.model.training  # read now, not by two threads at once
    return loaded


Run = Callable[[Path, Processes, int | None], pd.DataFrame]


@pytest.fixture(scope="module")
def run(asked: list[Question], models: list[LoadedModel]) -> Run:
    """Sweeps as one of the processes; it may die after so many pieces."""

    def go(path: Path, processes: Processes, dies: int | None = None) -> pd.DataFrame:
        loaded = models[processes.rank]

        class Dying(Journal):
            def add(self, answers):
                nonlocal dies
                super().add(answers)
                if dies is not None:
                    dies -= 1
                    if not dies:
                        raise Killed

        with torch.inference_mode(), Dying(path, ABOUT, processes) as journal:
            return answer_points(loaded, asked, vectors_of(GRID, vector), journal, 4, 9, 4)

    return go


@pytest.fixture(scope="module")
def alone(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, pd.DataFrame]:
    """Journal and table of a single process."""
    path = tmp_path_factory.mktemp("alone") / "alone.jsonl"
    table = run(path, ALONE, None)
    assert table["reply"].nunique() > 3
    return path.read_bytes(), table


@pytest.mark.parametrize(("dying", "then"), [(0, 2), (1, 1)])
def test_whoever_dies_any_number_goes_on(
    run: Run, alone, tmp_path: Path, dying: int, then: int
) -> None:
    path = tmp_path / "killed.jsonl"
    ends = together(
        3, lambda processes: run(path, processes, 1 if processes.rank == dying else None)
    )
    assert isinstance(ends[dying], Killed)
    assert all(isinstance(e, ProcessError) for rank, e in enumerate(ends) if rank != dying)
    kept = Journal(path, ABOUT).answers
    assert len(kept) > 4
    assert len(list(tmp_path.glob("*rank*"))) == 2

    again = [run(path, ALONE, None)] if then == 1 else None
    for table in again or together(then, lambda processes: run(path, processes, None)):
        assert isinstance(table, pd.DataFrame), table
        pd.testing.assert_frame_equal(table, alone[1])
    assert path.read_bytes() == alone[0]
    assert not list(tmp_path.glob("*rank*"))


def test_files_beside_a_journal_must_be_of_its_run(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"

    def answer(processes: Processes) -> None:
        with Journal(path, ABOUT, processes) as journal:
            journal.add([{"item_id": f"item-{processes.rank}", "reply": "red"}])

    assert together(2, answer) == [None, None]
    assert Journal(path, ABOUT).answers.keys() == {"item-0", "item-1"}
    path.unlink()
    with pytest.raises(HarnessError, match="answers.rank1.jsonl holds another run"):
        Journal(path, {"model": "other"})
    # Cut in the middle of a line, as by a kill; nothing but that line is lost.
    part = tmp_path / "answers.rank1.jsonl"
    part.write_bytes(part.read_bytes() + b'{"item_id": "item-2", "re')
    with Journal(path, ABOUT) as journal:
        assert journal.answers.keys() == {"item-1"}
        assert not part.exists()
    assert Journal(path, ABOUT).answers.keys() == {"item-1"}


def test_answers_of_others_are_kept_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with Journal(path, ABOUT) as journal:
        journal.add({"item_id": name, "reply": ""} for name in "dcba")
        journal.gather(["a", "x", "b"])
        assert list(journal.answers) == ["a", "b", "d", "c"]
        journal.add([{"item_id": "x", "reply": ""}])
    assert list(Journal(path, ABOUT).answers) == ["a", "b", "d", "c", "x"]
