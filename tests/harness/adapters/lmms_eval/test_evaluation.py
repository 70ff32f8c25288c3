"""Through lmms-eval's own evaluator, GridToM comes out as in the project's harness."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lmms_eval")

from lmms_eval import evaluator  # noqa: E402
from lmms_eval.tasks import TaskManager  # noqa: E402

from sally_anne.core.folder import Journal  # noqa: E402
from sally_anne.harness.adapters.task_files import task_files  # noqa: E402
from sally_anne.harness.config import EvalConfig  # noqa: E402
from sally_anne.harness.evaluate import ask, prompt_of  # noqa: E402
from sally_anne.harness.model import SteeredModel  # noqa: E402
from sally_anne.harness.score import results_of  # noqa: E402
from sally_anne.harness.tasks import load_items  # noqa: E402
from sally_anne.hooks.vector import SteeringVector  # noqa: E402

pytestmark = pytest.mark.plugins

BATCH = 4
PER_STORY = {"1": 2, "2": 4, "initial": 3}
METRICS = {"1": ("TB", "FB", "Both", "invalid"), "initial": ("accuracy", "invalid")}
METRICS["2"] = METRICS["1"]


@pytest.fixture(scope="module")
def evaluate() -> Iterator[Callable[..., tuple[dict[str, Any], dict[str, list[Any]]]]]:
    """``evaluate(task, limit, folder, **model_args)``: results and samples of one task."""
    whole = {}

    def run(task: str, limit: int, folder: Path | None = None, **options: Any):
        folder = folder or ours
        if folder not in whole:
            whole[folder] = TaskManager(include_path=str(folder), include_defaults=False)
        found = evaluator.simple_evaluate(
            "sally_anne",
            model_args=",".join(f"{name}={value}" for name, value in options.items()),
            tasks=[task],
            task_manager=whole[folder],
            batch_size=BATCH,
            limit=limit,
            bootstrap_iters=0,
        )
        assert found is not None
        return found["results"][task], found["samples"][task]

    with task_files("sally_anne.harness.adapters.lmms_eval.questions.Questions") as ours:
        yield run


def replies(samples: list[Any]) -> dict[str, str]:
    return {sample["doc"]["item_id"]: sample["resps"][0][0] for sample in samples}


def our_own(config: EvalConfig, model: SteeredModel, folder: Path, count: int):
    """Replies to the first so many items, and their metrics; lmms-eval's limit takes these."""
    items = load_items(config).items[:count]
    with Journal(folder / "answers.jsonl", {}) as journal:
        table = ask(model, items, journal, BATCH, config.reply_tokens)
    replies = dict(zip(table["item_id"], table["reply"], strict=True))
    return replies, results_of(table, beliefs=config.order != "initial")


def assert_same(found: dict[str, Any], expected: dict[str, Any], order: str) -> None:
    for metric in METRICS[order]:
        name = "overall" if metric == "accuracy" else metric
        assert found[f"{metric},none"] == expected["robust"][name]["value"]


@pytest.mark.parametrize("name", ["tiny-qwen2-vl", "tiny-llava-next-video"])
def test_a_steered_model_scores_as_in_the_harness(
    evaluate, loaded, vectors, tmp_path: Path, name: str
) -> None:
    """Item by item, on six stories with frames and words."""
    found, samples = evaluate(
        "gridtom_order1_multimodal", 12, pretrained=name, steer=vectors[name], alpha=300
    )
    config = EvalConfig(setting="multimodal")
    steered = SteeredModel(loaded(name), SteeringVector.load(vectors[name]), 300.0)
    expected, metrics = our_own(config, steered, tmp_path, 12)
    assert replies(samples) == expected and len(expected) == 12
    assert_same(found, metrics, "1")
    items = load_items(config).items[:12]
    plain = SteeredModel(loaded(name)).generate([prompt_of(item) for item in items])
    assert plain != list(expected.values())


@pytest.mark.parametrize("name", ["tiny-qwen2-vl", "tiny-llava-next-video"])
def test_strength_zero_is_no_steering(evaluate, vectors, name: str) -> None:
    task = "gridtom_order1_video"
    plain, said = evaluate(task, 4, pretrained=name)
    zero, said_zero = evaluate(task, 4, pretrained=name, steer=vectors[name], alpha=0)
    assert replies(said_zero) == replies(said)
    assert zero == plain


def test_choices_are_chosen_by_probability(evaluate, loaded, tmp_path: Path) -> None:
    """A task of lmms-eval's kind multiple_choice picks what the harness's options reader picks."""
    items = load_items(EvalConfig(setting="text", limit=6)).items
    options = [[option.text for option in item.options] for item in items]
    model = SteeredModel(loaded("tiny-qwen2-vl"))
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
    _, samples = evaluate("choices", len(items), tmp_path, pretrained="tiny-qwen2-vl")
    picked = [
        row["answer"] if sample["acc"] == 1 else 1 - row["answer"]
        for row, sample in zip(rows, samples, strict=True)
    ]
    assert picked == best
    assert len({sample["acc"] for sample in samples}) == 2
