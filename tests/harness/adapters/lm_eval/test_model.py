"""How lm-eval makes the model, names it and keeps its answers."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import partial

import peft
import pytest

pytest.importorskip("lm_eval")

from datasets import Dataset
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager

from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters import task_files
from sally_anne.harness.adapters.lm_eval import main
from sally_anne.harness.adapters.lm_eval.model import SallyAnneLM
from sally_anne.models.loading import LoadedModel, load_model

pytestmark = pytest.mark.plugins


@pytest.fixture(scope="module")
def loaded(folders) -> LoadedModel:
    return load_model(str(folders["qwen2-vl"]))


@pytest.fixture(scope="module")
def tasks() -> Iterator[TaskManager]:
    with task_files("sally_anne.harness.adapters.lm_eval.model.Questions") as folder:
        yield TaskManager(include_path=str(folder), include_defaults=False, metadata={"limit": 1})


@pytest.fixture(scope="module")
def saved(loaded, vector, tmp_path_factory) -> str:
    return str(vector.save(tmp_path_factory.mktemp("vector")))


def test_it_is_registered_beside_lm_evals_own(loaded) -> None:
    assert get_model("sally-anne") is SallyAnneLM
    assert get_model("hf").__name__ == "HFLM"


def test_it_is_made_from_a_line_of_options(loaded, vector, saved) -> None:
    lm = SallyAnneLM.create_from_arg_string(
        f"pretrained={loaded.source},steer={saved},alpha=2,dtype=float32",
        {"batch_size": "4", "max_batch_size": None, "device": "cpu"},
    )
    assert (lm.steered.alpha, lm.batch_size, lm.max_length) == (2.0, 4, 2048)
    assert lm.steered.steering.heads == vector.heads
    assert lm.loaded.source == loaded.source and str(lm.loaded.model.device) == "cpu"
    assert SallyAnneLM(loaded, batch_size="auto:4", max_batch_size=64).batch_size == 16


def test_an_adapter_is_not_lost(loaded, tmp_path) -> None:
    config = peft.LoraConfig(r=2, lora_alpha=64, target_modules=["o_proj"], init_lora_weights=False)
    wrapped = peft.get_peft_model(load_model(loaded.source).model, config)
    adapter = {"adapter": str(tmp_path / "adapter")}
    wrapped.save_pretrained(adapter["adapter"])
    asked = [Instance("loglikelihood", {}, ("red", " blue"), 0)]
    opened = load_model(loaded.source, **adapter)
    plain, by_name, by_model = (
        SallyAnneLM(model, **more).loglikelihood(asked, disable_tqdm=True)
        for model, more in ((loaded, {}), (loaded.source, adapter), (opened, {}))
    )
    assert by_name == by_model != plain
    # Trained on in its folder, it is another one.
    for parameter in wrapped.parameters():
        parameter.data.mul_(1.5)
    wrapped.save_pretrained(adapter["adapter"])
    assert load_model(loaded.source, **adapter).about != opened.about


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": "some"},
        {"alpha": 2},
        {"trust_remote_code": True},
        {"max_length": 0},
    ],
)
def test_options_that_cannot_be_used_are_named(loaded, options) -> None:
    with pytest.raises(HarnessError, match=next(iter(options))):
        SallyAnneLM(loaded, **options)


def test_conversations_are_laid_out_in_the_models_own_way(loaded) -> None:
    lm = SallyAnneLM(loaded)
    turns = [
        {"role": "user", "content": "Where is the red agent?"},
        {"role": "assistant", "content": "In the"},
    ]
    opened = lm.apply_chat_template(turns[:1])
    assert opened == loaded.processor.apply_chat_template(
        turns[:1], add_generation_prompt=True, tokenize=False
    )
    left_open = lm.apply_chat_template(turns, add_generation_prompt=False)
    assert left_open.startswith(opened.rstrip()) and left_open.endswith("In the")
    assert lm.chat_template(True) == loaded.processor.chat_template
    assert lm.chat_template(False) is None


def words(text: str, add_special_tokens: bool = True) -> list[int]:
    """A tokenizer that joins a blank to the next letter, and takes line breaks for themselves."""
    found, rest = [], text
    while rest:
        size = 2 if rest[0] == " " and len(rest) > 1 else 1
        found.append(hash(rest[:size]) % 10_000)
        rest = rest[size:]
    return found


@pytest.mark.parametrize(
    ("context", "continuation", "kept"),
    [("ab", " c", "ab"), ("ab ", "c", "ab"), ("ab\n", "c", "ab\n")],
)
def test_a_context_ends_at_its_own_last_token(
    loaded, monkeypatch, context, continuation, kept
) -> None:
    monkeypatch.setattr(SallyAnneLM, "tok_encode", lambda self, text: words(text))
    begun, ending = SallyAnneLM(loaded)._encode_pair(context, continuation)
    assert begun == words(kept) and begun + ending == words(context + continuation)


def rooms(**_) -> dict[str, Dataset]:
    """Two questions as a task of lm-eval offers them."""
    return {
        "test": Dataset.from_list(
            [
                {"text": "Where is the red agent?", "choices": ["blue", "green room"], "answer": 1},
                {"text": "Where is the agent?", "choices": ["red", "purple"], "answer": 0},
            ]
        )
    }


def test_multiple_choice_is_scored_by_name(loaded, vector, saved, tasks) -> None:
    task = {
        "task": "rooms",
        "custom_dataset": rooms,
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}}",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    found = simple_evaluate(
        model="sally-anne",
        model_args={"pretrained": loaded.source, "steer": saved, "alpha": 2},
        tasks=[task],
        task_manager=tasks,
        bootstrap_iters=0,
    )
    lm, right = SallyAnneLM(loaded, vector, 2), 0
    for document, sample in zip(rooms()["test"], found["samples"]["rooms"], strict=True):
        requests = [
            Instance("loglikelihood", {}, (document["text"], f" {choice}"), 0)
            for choice in document["choices"]
        ]
        sums = [total for total, _ in lm.loglikelihood(requests)]
        assert [reply[0][0] for reply in sample["resps"]] == pytest.approx(sums, abs=1e-4)
        right += sums.index(max(sums)) == document["answer"]
    assert found["results"]["rooms"]["acc,none"] == right / 2
    assert found["config"]["sally_anne"]["alpha"] == 2.0


def test_perplexity_is_that_of_the_text(loaded, tasks) -> None:
    task = {
        "task": "rooms",
        "custom_dataset": rooms,
        "test_split": "test",
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "text",
    }
    lm = SallyAnneLM(loaded)
    found = simple_evaluate(model=lm, tasks=[task], task_manager=tasks, bootstrap_iters=0)
    texts = rooms()["test"]["text"]
    total = sum(lm.loglikelihood_rolling([Instance("", {}, (text,), 0) for text in texts]))
    words = sum(len(text.split()) for text in texts)
    wanted = math.exp(-total / words)
    assert found["results"]["rooms"]["word_perplexity,none"] == pytest.approx(wanted, rel=1e-5)


def answered(lm, tasks, **options):
    return simple_evaluate(
        model=lm,
        tasks=["gridtom_order1_text"],
        task_manager=tasks,
        apply_chat_template=True,
        **options,
    )


def test_answers_are_kept_for_one_model_and_vector(
    loaded, vector, tasks, tmp_path, monkeypatch
) -> None:
    kept = str(tmp_path / "answers")
    lm = SallyAnneLM(loaded, vector, 2)
    first = answered(lm, tasks, use_cache=kept)["samples"]["gridtom_order1_text"]

    def unasked(*args):
        raise AssertionError("it is asked again")

    monkeypatch.setattr(SallyAnneLM, "generate_until", unasked)
    again = answered(SallyAnneLM(loaded, vector, 2), tasks, use_cache=kept)
    samples = again["samples"]["gridtom_order1_text"]
    assert [s["resps"] for s in samples] == [s["resps"] for s in first]
    for other in (SallyAnneLM(loaded, vector, 3), SallyAnneLM(loaded)):
        with pytest.raises(HarnessError, match="answers of another model or vector"):
            answered(other, tasks, use_cache=kept)


def run_main(monkeypatch, *options: str) -> None:
    """The command, without the minute in which lm-eval reads its own 14,000 tasks."""
    without = partial(TaskManager, include_defaults=False)
    monkeypatch.setattr("lm_eval.tasks.TaskManager", without)
    monkeypatch.setattr(sys, "argv", ["lm_eval", *options])
    main()


def test_the_command_line_finds_model_and_tasks(loaded, saved, monkeypatch, capsys) -> None:
    run_main(
        monkeypatch,
        *("--model", "sally-anne", "--tasks", "gridtom_order1_text"),
        *("--model_args", f"pretrained={loaded.source},steer={saved},alpha=2"),
        *("--limit", "2", "--metadata", "limit=1", "--apply_chat_template"),
    )
    shown = capsys.readouterr().out
    assert "sally-anne" in shown and "Both" in shown
