"""An evaluation from config to files."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from sally_anne.core.errors import HarnessError
from sally_anne.data.gridtom.stories import generated
from sally_anne.experiments.train_tiny.families import Family
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
from sally_anne.harness.gridtom import GridToM, items_of
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.score import results_of, score
from sally_anne.harness.tasks import TaskItems

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(folders: dict[Family, Path], tmp_path: Path) -> EvalConfig:
    return EvalConfig(
        model=str(folders["qwen2-vl"]), setting="text", limit=3, out=tmp_path / "run", batch_size=4
    )


def outcome(config: EvalConfig) -> str:
    printed = io.StringIO()
    evaluate(config, console=Console(file=printed, width=160))
    return printed.getvalue()


@pytest.mark.parametrize(("order", "n"), [("1", 6), ("2", 12), ("initial", 9)])
def test_leaves_answers_and_results(config: EvalConfig, order: str, n: int) -> None:
    config = replace(config, order=order)  # type: ignore[arg-type]
    printed = outcome(config)
    table = pd.read_parquet(config.folder / "answers.parquet")
    assert len(table) == n
    saved = json.loads((config.folder / "results.json").read_text())
    assert set(saved["results"]) == {"robust", "official"}
    assert ("Both" in printed) == (order != "initial")


def test_goes_on_where_it_was_stopped(config: EvalConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = SteeredModel.replies
    calls: list[int] = []

    def once(self: SteeredModel, prompts, max_new_tokens=16):
        if calls:
            raise KeyboardInterrupt
        calls.append(len(prompts))
        return replies(self, prompts, max_new_tokens)

    monkeypatch.setattr(SteeredModel, "replies", once)
    with pytest.raises(KeyboardInterrupt):
        outcome(config)
    kept = (config.folder / "answers.jsonl").read_text()
    assert len(kept.splitlines()) == 1 + 4
    monkeypatch.setattr(SteeredModel, "replies", replies)
    outcome(config)
    whole = (config.folder / "answers.jsonl").read_text()
    assert whole.startswith(kept) and len(whole.splitlines()) == 1 + 6
    monkeypatch.setattr(SteeredModel, "replies", once)
    outcome(config)


def test_auto_tries_before_the_first_answer_and_never_after_the_last(
    config: EvalConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = SteeredModel.replies
    sizes: list[int] = []

    def watched(self: SteeredModel, prompts, max_new_tokens=16):
        sizes.append(len(prompts))
        return replies(self, prompts, max_new_tokens)

    def four_fit(model, trial, on_cpu, processes):
        assert on_cpu == 16
        trial(64)
        return 4

    monkeypatch.setattr(SteeredModel, "replies", watched)
    monkeypatch.setattr("sally_anne.harness.evaluate.fitting", four_fit)
    outcome(replace(config, batch_size="auto"))
    assert sizes == [6, 4, 2]
    monkeypatch.setattr(
        "sally_anne.harness.evaluate.fitting", lambda *_: pytest.fail("tried again")
    )
    outcome(replace(config, batch_size="auto"))


def test_options_are_scored_on_request(config: EvalConfig) -> None:
    outcome(replace(config, options=True))
    table = pd.read_parquet(config.folder / "answers.parquet")
    assert not table["options_invalid"].any()
    assert table["options_correct"].dtype == bool


def test_another_run_in_the_folder_is_refused(config: EvalConfig) -> None:
    outcome(config)
    with pytest.raises(HarnessError, match="setting is 'text' there, 'video' here"):
        outcome(replace(config, setting="video"))


def test_answer_sheets_by_hand(config: EvalConfig) -> None:
    items = items_of(config, generated(config.data_seed))
    right = [{"item_id": i.item_id, "reply": f" {i.answer[0]}."} for i in items]
    other = [
        {
            "item_id": i.item_id,
            "reply": next(o.text for o in i.options if o.label not in i.answer),
        }
        for i in items
    ]
    silent = [{"item_id": i.item_id, "reply": "the"} for i in items]
    always_first = [
        {"item_id": i.item_id, "reply": i.answer[0] if i.condition == "FB" else o["reply"]}
        for i, o in zip(items, other, strict=True)
    ]
    for sheet, expected in (
        (right, (1, 1, 1, 0)),
        (other, (0, 0, 0, 0)),
        (silent, (0, 0, 0, 1)),
        (always_first, (0, 1, 0, 0)),
    ):
        metrics = results_of(score(items, sheet), beliefs=True)["robust"]
        found = tuple(metrics[m]["value"] for m in ("TB", "FB", "Both", "invalid"))
        assert found == expected
    in_json = [{"item_id": i.item_id, "reply": json.dumps({"answer": i.answer[0]})} for i in items]
    for parser in ("robust", "official"):
        assert results_of(score(items, in_json), beliefs=True)[parser]["Both"]["value"] == 1
    assert results_of(score(items, right), beliefs=True)["official"]["invalid"]["value"] == 1


def test_unknown_words_are_said_and_saved(
    config: EvalConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = GridToM.load

    def with_giraffes(task: GridToM, config: EvalConfig, fitted: object = None) -> TaskItems:
        work = load(task, config)
        return replace(work, items=[replace(i, text=f"Giraffe {i.text}") for i in work.items])

    monkeypatch.setattr(GridToM, "load", with_giraffes)
    printed = outcome(config)
    saved = json.loads((config.folder / "results.json").read_text())["unknown_words"]
    assert saved["prompts"] == saved["of"] > 0 and saved["examples"][0] == "Giraffe"
    warning = f"{saved['prompts']} of {saved['of']} prompts hold {saved['tokens']} tokens"
    assert warning in printed and "'Giraffe'" in printed
