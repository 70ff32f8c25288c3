"""How questions are put: what is sent to the model, and what is read of its replies."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from sally_anne.core.errors import HarnessError
from sally_anne.experiments.train_tiny.families import Family
from sally_anne.harness.config import EvalConfig, check
from sally_anne.harness.evaluate import evaluate
from sally_anne.harness.model import Completion, Prompt, SteeredModel
from sally_anne.harness.protocols import THOUGHTS
from sally_anne.harness.tasks import load_items
from tests.harness import made_benchmarks as made
from tests.harness.chat_server import Server, completion
from tests.made_replies import replied

TASKS = ("gridtom", "bigtom", "mmtom_qa", "muma_tom", "moments", "mimeqa")


@dataclass
class Recorder:
    """A model that keeps what it is asked; ``say`` makes its reply from the prompt's text."""

    say: Callable[[str], str] = lambda text: "Hm."
    asked: list[tuple[Prompt, int]] = field(default_factory=list)
    ended: bool = True

    @property
    def texts(self) -> list[str]:
        return [prompt.text for prompt, _ in self.asked]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    kept = Recorder()

    def replies(self: Any, prompts: Sequence[Prompt], max_new_tokens: int) -> list[Completion]:
        kept.asked += [(prompt, max_new_tokens) for prompt in prompts]
        return replied((kept.say(prompt.text) for prompt in prompts), kept.ended)

    monkeypatch.setattr(SteeredModel, "replies", replies)
    return kept


def config_of(task: str, tmp_path: Path, **options: Any) -> EvalConfig:
    """A small evaluation of a task, with films in its default view where the task has them."""
    if task == "gridtom":
        options = {"setting": "text", "limit": 2, **options}
    else:
        options["data"] = getattr(made, task)(tmp_path / task)
        if task == "mmtom_qa":
            options = {"view": "text", **options}
    return EvalConfig(task=task, **{"out": tmp_path / "run", **options})


def outcome(config: EvalConfig, folders: dict[Family, Path]) -> pd.DataFrame:
    return evaluate(
        replace(config, model=str(folders["qwen2-vl"])), console=Console(file=io.StringIO())
    )


@pytest.mark.integration
@pytest.mark.parametrize("task", TASKS)
def test_thoughts_are_asked_for_in_place_of_the_answer_alone(
    task: str, folders: dict[Family, Path], tmp_path: Path, recorder: Recorder
) -> None:
    config = config_of(task, tmp_path, prompting="cot")
    direct = {i.item_id: i.text for i in load_items(replace(config, prompting="direct")).items}
    table = outcome(config, folders)
    assert len(recorder.asked) == len(table) == len(direct)
    for (prompt, tokens), plain in zip(recorder.asked, direct.values(), strict=True):
        assert tokens == THOUGHTS
        told = plain[: plain.index("Question:")].split("<frames>")[0].rstrip()
        assert prompt.text.startswith(told) and "Think step by step first" in prompt.text
        # Nothing asks for the answer at once.
        assert "Reply" not in prompt.text and not prompt.text.endswith("Answer:")
        question = plain[plain.index("Question:") :].removesuffix("Answer:").split("\nReply")[0]
        assert question.strip() in prompt.text
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["about"]["prompting"] == "cot" and saved["config"]["prompting"] == "cot"


@pytest.mark.integration
@pytest.mark.parametrize("style", ["plain", "json"])
def test_the_end_of_the_thoughts_is_read_and_not_what_they_weigh(
    style: str, folders: dict[Family, Path], tmp_path: Path, recorder: Recorder
) -> None:
    """Each reply first says that the answer is the wrong room."""
    config = config_of("gridtom", tmp_path, prompting="cot", style=style)
    keys = {item.text: item for item in load_items(config).items}

    def say(text: str) -> str:
        item = keys[text]
        (right,) = item.answer
        wrong = next(o.text for o in item.options if o.label != right)
        end = json.dumps({"answer": right}) if style == "json" else right
        return f"At first the answer is {wrong}. Then the door closes.\n\nAnswer: {end}"

    recorder.say = say
    table = outcome(config, folders)
    assert table["robust_correct"].all()
    assert table["official_correct"].all() == (style == "json")
    assert table["reply"].str.startswith("At first").all()
    assert (table["conclusion"].str.contains("first")).sum() == 0


@pytest.mark.integration
def test_thoughts_that_are_cut_have_no_answer(
    folders: dict[Family, Path], tmp_path: Path, recorder: Recorder
) -> None:
    recorder.say, recorder.ended = lambda text: "I see blue.\nThe red agent sees the blue", False
    table = outcome(config_of("gridtom", tmp_path, prompting="cot"), folders)
    assert table["robust_invalid"].all() and table["cut"].all()


def test_an_endpoint_is_asked_for_thoughts(tmp_path: Path, server: Server) -> None:
    server.answer = lambda body: (200, completion("The box is blue?\nAnswer: B"))
    where = {"endpoint": server.url, "endpoint_model": "m"}
    config = config_of("bigtom", tmp_path, prompting="cot", **where)
    table = evaluate(config, console=Console(file=io.StringIO()))
    assert (table["robust_label"] == "B").all()
    for _, _, body in server.seen:
        assert body["max_tokens"] == THOUGHTS
        assert "Think step by step first" in body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"options": True}, "--options"),
        ({"task": "bigtom", "template": Path("mine.txt")}, "--template"),
    ],
)
def test_what_thoughts_do_not_go_with(options: dict[str, Any], named: str) -> None:
    with pytest.raises(HarnessError, match=named):
        check(EvalConfig(prompting="cot", **options))
