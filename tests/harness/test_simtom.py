"""SimToM's two steps: what a person knows is retold, and the question is asked on that alone."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sally_anne.experiments.train_tiny.families import Family
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.dry_run import dry_run
from sally_anne.harness.evaluate import evaluate
from sally_anne.harness.protocols import RETOLD
from sally_anne.harness.tasks import load_items
from tests.harness.chat_server import Server, completion
from tests.harness.test_prompting import (
    TASKS,
    Recorder,
    config_of,
    outcome,
    recorder,  # noqa: F401  # a fixture
)

pytestmark = pytest.mark.integration


def first_step(text: str) -> bool:
    return not text.startswith("This is all that")


@pytest.mark.parametrize("task", TASKS)
def test_the_second_step_has_the_first_reply_and_nothing_of_the_story(
    task: str,
    folders: dict[Family, Path],
    tmp_path: Path,
    recorder: Recorder,  # noqa: F811
) -> None:
    config = config_of(task, tmp_path, prompting="simtom", batch_size=2)
    direct = load_items(replace(config, prompting="direct")).items
    told = iter(range(100))
    recorder.say = lambda text: f"Fact {next(told)}. " if first_step(text) else "B"
    table = outcome(config, folders)
    ask = [(prompt, tokens) for prompt, tokens in recorder.asked if first_step(prompt.text)]
    answer = [(prompt, tokens) for prompt, tokens in recorder.asked if not first_step(prompt.text)]
    assert len(ask) == len(answer) == len(table) == len(direct)
    for number, (item, (one, retold), (two, tokens)) in enumerate(
        zip(direct, ask, answer, strict=True)
    ):
        story, question = item.text.split("Question:", 1)
        assert retold == RETOLD and tokens == replace(config, prompting="direct").reply_tokens
        assert one.text.startswith(story.split("<frames>")[0].rstrip())
        assert "Leave out all that happens where" in one.text
        assert (one.clip is not None) == (item.clip is not None) and two.clip is None
        # The very question, after what was retold for this item.
        assert f"knows:\nFact {number}." in two.text and two.text.endswith(question)
        for sentence in map(str.strip, story.replace("\n", ". ").split(". ")):
            # The caption's parts are numbered.
            assert len(sentence) < 3 or sentence not in two.text
    assert table["perspective"].tolist() == [f"Fact {n}. " for n in range(len(table))]
    assert not table["perspective_cut"].any()


@pytest.mark.parametrize(
    ("order", "whose"), [("1", "protagonist"), ("2", "participant"), ("reality", "participant")]
)
def test_gridtom_takes_the_view_of_whose_mind_is_asked_about(order: Any, whose: str) -> None:
    from sally_anne.data.gridtom.stories import generated

    records = {record.group: record for record in generated(2025)}
    for item in load_items(EvalConfig(order=order, limit=3, prompting="simtom")).items:
        agent = f"the {getattr(records[item.story].cast, whose)} agent"
        assert f"Tell in order what {agent} sees" in item.before
        assert item.text.startswith(f"This is all that {agent} knows:\n")
        # Neither the question nor its options are told before.
        assert "Question" not in item.before and "Choose one" not in item.before


def test_perspectives_that_are_cut_are_counted(
    folders: dict[Family, Path],
    tmp_path: Path,
    recorder: Recorder,  # noqa: F811
) -> None:
    recorder.ended = False
    config = config_of("gridtom", tmp_path, prompting="simtom", model=str(folders["qwen2-vl"]))
    printed = io.StringIO()
    evaluate(config, console=Console(file=printed, width=160))
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["counts"]["perspectives_cut"] == saved["counts"]["asked"] == 4
    assert "4 of 4 perspectives, simtom's first step, were cut" in printed.getvalue()


def test_an_endpoint_is_asked_twice_and_nothing_again(tmp_path: Path, server: Server) -> None:
    def answer(body: dict[str, Any]) -> Any:
        (message,) = body["messages"]
        text = message["content"]
        saw = f"He saw box {len(server.seen)}."
        said = saw if first_step(text) else "A" if "He saw box" in text else "B"
        return (200, completion(said))

    server.answer = answer
    where = {"endpoint": server.url, "endpoint_model": "m"}
    config = config_of("bigtom", tmp_path, prompting="simtom", **where)
    table = evaluate(config, console=Console(file=io.StringIO()))
    assert (table["robust_label"] == "A").all()
    assert len(server.seen) == 2 * len(table)
    asked = len(server.seen)
    evaluate(config, console=Console(file=io.StringIO()))
    assert len(server.seen) == asked


def test_a_dry_run_counts_both_steps(tmp_path: Path, folders: dict[Family, Path]) -> None:
    quiet = Console(file=io.StringIO())
    config = config_of("bigtom", tmp_path)
    where = {"endpoint": "http://127.0.0.1:1/v1", "endpoint_model": "m"}
    for options, name, factor in (
        (where, "requests", 2),
        ({"model": str(folders["qwen2-vl"])}, "batches", 2),
    ):
        one, two = (
            dry_run(replace(config, prompting=how, **options), quiet)[name].value
            for how in ("direct", "simtom")
        )
        assert two == factor * one


@pytest.mark.parametrize("family", ["qwen2-vl", "llava-next-video"])
def test_both_families_take_both_steps_steered_or_not(
    family: Family, folders: dict[Family, Path], tmp_path: Path
) -> None:
    config = EvalConfig(
        model=str(folders[family]), limit=1, prompting="simtom", max_new_tokens=4, options=True
    )
    table = evaluate(replace(config, out=tmp_path / "r"), console=Console(file=io.StringIO()))
    assert len(table) == 2 and "options_label" in table and "perspective" in table
