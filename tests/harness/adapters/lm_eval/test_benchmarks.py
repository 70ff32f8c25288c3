"""Every benchmark in lm-eval: the prompts, replies and scores of our own harness, item by item."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lm_eval")

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from sally_anne.harness.adapters import task_files, tasks
from sally_anne.harness.adapters.lm_eval.model import SallyAnneLM
from sally_anne.harness.adapters.questions import pictures
from sally_anne.harness.model import laid_out
from sally_anne.harness.tasks import TASKS
from sally_anne.models.loading import load_model
from tests.harness.adapters.benchmarks import (
    ANSWERED,
    CASES,
    MODEL,
    Case,
    Expected,
    expected,
    name_of,
    speak,
)

pytestmark = pytest.mark.plugins

CLASS = "sally_anne.harness.adapters.lm_eval.model.Questions"


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    with task_files(CLASS) as folder:
        yield folder


@pytest.fixture(scope="module")
def model() -> SallyAnneLM:
    return SallyAnneLM(load_model(MODEL))


def evaluated(model: SallyAnneLM, files: Path, task: str, options: dict[str, Any]) -> Any:
    """A task by its name, or of a file of one's own."""
    if (name := name_of(task, options)) is None:
        options = {"task": task} | options
        kwargs = "".join(f"  {name}: {value}\n" for name, value in options.items())
        files = files / "own"
        files.mkdir(exist_ok=True)
        text = f"class: !function {CLASS}\ntask: own\ndataset_kwargs:\n{kwargs}"
        (files / "own.yaml").write_text(text)
        name, options = "own", {}
    manager = TaskManager(include_path=str(files), include_defaults=False, metadata=options)
    results = simple_evaluate(
        model=model,
        tasks=[name],
        task_manager=manager,
        apply_chat_template=True,
        bootstrap_iters=0,
    )
    return results["results"][name], results["samples"][name]


def assert_same(
    model: SallyAnneLM, files: Path, case: Case, folder: Path, **steering: Any
) -> Expected:
    own = expected(case, folder, **steering)
    found, samples = evaluated(model, files, own.task, own.options)
    assert [sample["doc"]["item_id"] for sample in samples] == [i.item_id for i in own.items]
    for sample in samples:
        prompt = own.prompts[sample["doc"]["item_id"]]
        shown = pictures(sample["doc"])
        if prompt.clip is None:
            assert not shown
        else:
            assert np.array_equal(prompt.clip, [np.asarray(picture) for picture in shown])
        assert sample["doc"]["text"] == "<image>" * len(shown) + prompt.text
        if not shown:
            assert sample["arguments"][0][0] == laid_out(model.loaded, prompt)
    assert {s["doc"]["item_id"]: s["resps"][0][0] for s in samples} == own.replies
    numbers = {
        name.removesuffix(",none"): value
        for name, value in found.items()
        if name.endswith(",none") and not name.endswith("_stderr,none")
    }
    unscored = [item.hidden or not item.options for item in own.items]
    assert numbers.pop("unscored", 0) == any(unscored)
    wanted = own.numbers["robust"] if own.numbers else {}
    official = own.numbers.get("official", {})
    assert numbers == wanted | {f"official_{name}": value for name, value in official.items()}
    return own


@pytest.mark.parametrize("name", ANSWERED)
def test_replies_and_scores_are_those_of_evaluate(model, files, name, tmp_path) -> None:
    assert_same(model, files, CASES[name], tmp_path)


def test_steered_replies_and_scores_are_those_of_evaluate(files, make_vector, tmp_path) -> None:
    vector = make_vector(load_model(MODEL).skeleton)
    folder = vector.save(tmp_path / "vector")
    case = CASES["gridtom"]
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
    assert_same(model, files, CASES[name], tmp_path)


def test_all_benchmarks_are_tasks(files) -> None:
    manager = TaskManager(include_path=str(files), include_defaults=False)
    assert set(TASKS[1:]) <= set(tasks()) == set(manager.all_subtasks) - {"own"}
