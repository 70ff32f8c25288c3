"""Every benchmark in lmms-eval: the prompts, replies and scores of our own harness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lmms_eval")

import lmms_eval.__main__
from lmms_eval import evaluator
from lmms_eval.tasks import TaskManager

from sally_anne.harness.adapters import tasks
from sally_anne.harness.adapters.lmms_eval import main
from sally_anne.harness.adapters.questions import METADATA, documents, from_environment
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import prompt_of
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.tasks import load_items
from tests.harness.adapters.benchmarks import (
    ANSWERED,
    CASES,
    MODEL,
    SYSTEM,
    Case,
    Expected,
    assert_results,
    expected,
    name_of,
    own_task,
    speak,
)
from tests.harness.adapters.conftest import SEEN

pytestmark = pytest.mark.plugins
CLASS = "sally_anne.harness.adapters.lmms_eval.model.Questions"
OFFERED = [name for name in CASES if name != SYSTEM]


def run(files: Path, task: str, **steering: Any) -> dict[str, Any]:
    found = evaluator.simple_evaluate(
        "sally_anne",
        model_args=",".join(f"{n}={v}" for n, v in ({"pretrained": MODEL} | steering).items()),
        tasks=[task],
        task_manager=TaskManager(include_path=str(files), include_defaults=False),
        batch_size=4,
        bootstrap_iters=0,
    )
    assert found is not None
    return found


def assert_same(
    files: Path, case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, **steering: Any
) -> Expected:
    own = expected(case, folder, **steering)
    if (task := name_of(own.task, own.options)) is not None:
        monkeypatch.setenv(METADATA, json.dumps(own.options))
    else:
        task, files = own_task(folder, CLASS, own), folder
    found = run(files, task, **steering)
    assert_results(own, found, task)
    for sample in found["samples"][task]:
        text = own.prompts[sample["doc"]["item_id"]].text
        assert sample["doc"]["text"] == sample["arguments"][0] == text
    return own


@pytest.mark.parametrize("name", ANSWERED)
def test_replies_and_scores_are_those_of_evaluate(files, name, tmp_path, monkeypatch) -> None:
    assert_same(files, CASES[name], tmp_path, monkeypatch)


def test_steered_replies_and_scores_are_those_of_evaluate(
    files, vectors, tmp_path, monkeypatch
) -> None:
    case, steering = CASES["gridtom"], {"steer": vectors[MODEL], "alpha": 300.0}
    own = assert_same(files, case, tmp_path, monkeypatch, **steering)
    assert own.replies != expected(case, tmp_path / "plain").replies


def test_choices_are_chosen_by_probability(loaded, tmp_path: Path) -> None:
    """A task of lmms-eval's kind multiple_choice picks what the harness's options reader picks."""
    items = load_items(EvalConfig(setting="text", limit=6)).items
    options = [[option.text for option in item.options] for item in items]
    model = SteeredModel(loaded(MODEL))
    scores = model.option_log_probs([prompt_of(item) for item in items], options)
    best = [max(range(2), key=row.__getitem__) for row in scores]
    rows: list[dict[str, Any]] = [
        {"text": item.text, "options": given, "answer": given.index(item.key[0])}
        for item, given in zip(items, options, strict=True)
    ]
    (tmp_path / "choices.json").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "choices.yaml").write_text(
        "task: choices\ndataset_path: json\ntest_split: test\noutput_type: multiple_choice\n"
        "dataset_kwargs:\n  data_files:\n    test: choices.json\n"
        "doc_to_text: text\ndoc_to_choice: options\ndoc_to_target: answer\n"
        "metric_list:\n  - metric: acc\n    aggregation: mean\n    higher_is_better: true\n"
    )
    found = run(tmp_path, "choices")
    picked = [
        row["answer"] if sample["acc"] == 1 else 1 - row["answer"]
        for row, sample in zip(rows, found["samples"]["choices"], strict=True)
    ]
    assert picked == best


@pytest.mark.parametrize("name", OFFERED)
def test_what_is_said_by_hand_has_the_scores_of_evaluate(
    files, name, tmp_path, monkeypatch
) -> None:
    speak(monkeypatch)
    assert_same(files, CASES[name], tmp_path, monkeypatch)


def test_the_command_says_what_is_asked(monkeypatch, seen_vector: str) -> None:
    """Options, vector and model reach all tasks, GridToM's as well, and its names are found."""
    seen: dict[str, Any] = {}

    def evaluate() -> None:
        manager = lmms_eval.__main__.TaskManager(include_defaults=False)
        seen["tasks"] = set(manager.all_subtasks) | {
            name for name, entry in manager.task_index.items() if entry["type"] == "python_task"
        }
        seen["options"] = from_environment()
        seen["stories"] = set(documents(from_environment() | {"setting": "text"})["story"])

    monkeypatch.setenv(METADATA, "")
    monkeypatch.setattr(lmms_eval.__main__, "cli_evaluate", evaluate)
    monkeypatch.setattr(lmms_eval.__main__, "TaskManager", TaskManager)
    words = ["--model_args", f"pretrained={MODEL},steer={seen_vector}", "--metadata", "limit=3"]
    main([*words, "--tasks", "bigtom"])
    assert {*tasks()} <= seen["tasks"]
    assert seen["options"] == {"limit": "3", "model": MODEL, "steer": seen_vector}
    # Stories that were seen in fitting are not asked about.
    assert len(seen["stories"]) == 3 and not seen["stories"].intersection(SEEN)
    with pytest.raises(SystemExit, match="--metadata limit: write name=value"):
        main(["--metadata", "limit"])
