"""The questions of every task in lm-eval: prompts, replies and scores are those of evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval")

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from sally_anne.harness.adapters import tasks
from sally_anne.harness.adapters.lm_eval.model import SallyAnneLM
from sally_anne.harness.model import laid_out
from sally_anne.harness.tasks import TASKS
from sally_anne.models.loading import load_model
from tests.harness.adapters.benchmarks import (
    CASES,
    MODEL,
    Case,
    Expected,
    assert_results,
    expected,
    name_of,
    own_task,
    speak,
)

pytestmark = pytest.mark.plugins
CLASS = "sally_anne.harness.adapters.lm_eval.model.Questions"


@pytest.fixture(scope="module")
def model() -> SallyAnneLM:
    return SallyAnneLM(load_model(MODEL))


def assert_same(
    model: SallyAnneLM, files: Path, case: Case, folder: Path, **steering: Any
) -> Expected:
    own = expected(case, folder, **steering)
    options = own.options
    if (name := name_of(own.task, options)) is None:
        name, files, options = own_task(folder, CLASS, own), folder, {}
    manager = TaskManager(include_path=str(files), include_defaults=False, metadata=options)
    found = simple_evaluate(
        model=model, tasks=[name], task_manager=manager, apply_chat_template=True, bootstrap_iters=0
    )
    assert_results(own, found, name)
    for sample in found["samples"][name]:
        prompt = own.prompts[sample["doc"]["item_id"]]
        frames = 0 if prompt.clip is None else len(prompt.clip)
        assert sample["doc"]["text"] == "<image>" * frames + prompt.text
        if not frames:
            assert sample["arguments"][0][0] == laid_out(model.loaded, prompt)
    return own


@pytest.mark.parametrize("name", ("gridtom 2", "own"))
def test_replies_and_scores_are_those_of_evaluate(model, files, name, tmp_path) -> None:
    assert_same(model, files, CASES[name], tmp_path)


def test_steered_replies_and_scores_are_those_of_evaluate(files, make_vector, tmp_path) -> None:
    vector = make_vector(load_model(MODEL).skeleton)
    folder = vector.save(tmp_path / "vector")
    case = CASES["gridtom 2"]
    steered = SallyAnneLM(load_model(MODEL), str(folder), 300.0)
    own = assert_same(steered, files, case, tmp_path, steer=folder, alpha=300.0)
    assert own.replies != expected(case, tmp_path / "plain").replies


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_by_hand_has_the_scores_of_evaluate(
    model, files, name, tmp_path, monkeypatch
) -> None:
    reply = speak(monkeypatch)
    monkeypatch.setattr(
        SallyAnneLM,
        "generate_until",
        lambda self, requests, disable_tqdm=False: [reply(r.args[0]) for r in requests],
    )
    # As another model of lm-eval, which takes pictures.
    monkeypatch.setattr(SallyAnneLM, "MULTIMODAL", True, raising=False)
    assert_same(model, files, CASES[name], tmp_path)


def test_all_benchmarks_are_tasks(files) -> None:
    manager = TaskManager(include_path=str(files), include_defaults=False)
    assert set(TASKS[1:]) <= set(tasks()) == set(manager.all_subtasks) - {"own"}
