"""Every task in inspect-ai: the prompts, replies and numbers of our own harness, item by item."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("inspect_ai")

import inspect_ai
from inspect_ai.log import EvalLog, read_eval_log, resolve_sample_attachments
from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model

from sally_anne.data.items import Question
from sally_anne.harness.adapters.inspect_ai import benchmark, gridtom, provider, robust
from sally_anne.harness.adapters.inspect_ai.task import messages_of
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.model import laid_out
from sally_anne.harness.tasks import load_items
from sally_anne.models.loading import load_model
from tests.harness.adapters.benchmarks import ANSWERED, CASES, MODEL, Case, expected, speak
from tests.harness.adapters.conftest import SEEN
from tests.harness.adapters.inspect_ai.conftest import run
from tests.made_stories import NUMBERS, asked_of, made_stories, replies
from tests.shared_data import MADE

pytestmark = pytest.mark.plugins
STORIES = 4


def own_items(setting: Any = "multimodal", limit: int = STORIES) -> list[Question]:
    config = EvalConfig(setting=setting, limit=limit)
    return load_items(config).items


def numbers_of(log: EvalLog) -> dict[str, dict[str, float]]:
    assert log.results is not None
    return {
        found.name: {name: metric.value for name, metric in found.metrics.items()}
        for found in log.results.scores
    }


def test_pictures_are_the_frames() -> None:
    for item in own_items(limit=1):
        (message,) = messages_of(item)
        assert item.clip is not None and not isinstance(message.content, str)
        *images, text = message.content
        loaded = load_model(MODEL)
        assert np.array_equal(provider.prompt_of(loaded, [message]).clip, item.clip())
        assert len(images) == len(item.clip()) and text.text == item.text


def told(replies: dict[str, str]) -> Model:
    """A model that says what it is told, by prompt."""

    def speak(input, tools, tool_choice, config):
        output = ModelOutput.from_content("mockllm/model", replies[input[-1].text])
        # It would count tokens by a vocabulary from the network.
        output.usage = ModelUsage()
        return output

    return get_model("mockllm/model", custom_outputs=speak, memoize=False)


@pytest.mark.parametrize("order", ["1", "2", "initial"])
def test_samples_and_numbers_are_those_made_by_hand(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stories, questions and what is replied are all planted."""
    monkeypatch.setattr(
        "sally_anne.harness.gridtom.open_stories", lambda folder, seed: made_stories()
    )
    task = gridtom(order=order, setting="text", limit=2 if order == "2" else 4)
    stories = dict.fromkeys(int(s.metadata["group"].removeprefix("story-")) for s in task.dataset)
    wanted = [asked for index in stories for asked in asked_of(index, order)]
    assert len(wanted) == 8
    for sample, asked in zip(task.dataset, wanted, strict=True):
        assert sample.id == asked.item_id and sample.target == list(asked.answer)
        assert sample.input == asked.text
        assert sample.metadata["options"] == list(asked.options)
        for name in ("condition", "first"):
            assert sample.metadata[name] == getattr(asked, name)
    said = {a.text: reply for a, reply in zip(wanted, replies(order, wanted), strict=True)}
    assert numbers_of(run(task, tmp_path, told(said))) == {"robust": NUMBERS[order]["robust"]}


def test_numbers_on_the_command_line_are_taken() -> None:
    """``-T order=2`` arrives as a number."""
    assert len(gridtom(order=2, setting="text", limit=1).dataset) == 4  # type: ignore[arg-type]


def test_what_a_vector_has_seen_is_left_out(seen_vector: str) -> None:
    task = gridtom(setting="text", limit=3, steer=seen_vector)
    groups = {str(sample.id).split("/")[0] for sample in task.dataset}
    assert len(groups) == 3 and groups.isdisjoint(SEEN)
    without = {str(sample.id).split("/")[0] for sample in gridtom(setting="text", limit=3).dataset}
    assert without > set(SEEN)
    assert task.metadata == {"unseen": {"left_out": 2, "of": 500, "known": True}}
    assert gridtom(setting="text", limit=2).metadata is None


BIGTOM = str(MADE / "bigtom")


def assert_same(case: Case, folder: Path) -> None:
    own = expected(case, folder)
    if own.task == "gridtom":
        task = gridtom(**own.options)
    else:
        task = benchmark(task=own.task, **own.options)
    log = run(task, folder)
    # Films lie beside the messages in a log.
    whole = [resolve_sample_attachments(sample, "full") for sample in log.samples or []]
    samples = {str(sample.id): sample for sample in whole}
    loaded = load_model(MODEL)
    for name, prompt in own.prompts.items():
        asked = provider.prompt_of(loaded, samples[name].messages[:-1])
        assert asked.text == laid_out(loaded, prompt)
        assert np.array_equal(asked.clip, prompt.clip)
    replies = {name: sample.output.completion for name, sample in samples.items()}
    assert replies == own.replies
    assert log.results is not None
    # Where nothing is scored, inspect-ai has a metric that is no number.
    found = {
        score.name: {n: m.value for n, m in score.metrics.items() if not math.isnan(m.value)}
        for score in log.results.scores
    }
    assert {reader: numbers for reader, numbers in found.items() if numbers} == own.numbers
    unscored = sum(item.hidden or not item.options for item in own.items)
    assert [score.unscored_samples for score in log.results.scores] == [unscored] * len(found)


@pytest.mark.parametrize("name", ANSWERED)
def test_replies_and_scores_are_those_of_evaluate(name: str, tmp_path: Path) -> None:
    assert_same(CASES[name], tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_by_hand_has_the_scores_of_evaluate(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak(monkeypatch)
    assert_same(CASES[name], tmp_path)


def test_epochs_count_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch)
    logs = [run(benchmark("bigtom", data=BIGTOM, limit=2), tmp_path, epochs=n) for n in (1, 2)]
    once, twice = ([score.metrics for score in log.results.scores] for log in logs if log.results)
    assert [{n: m.value for n, m in found.items()} for found in once] == [
        {n: m.value for n, m in found.items()} for found in twice
    ]


ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where this checkout counts as installed, with the entry points of its pyproject."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["inspect_ai"]
    folder = tmp_path / "installed" / "plugged-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 0\n")
    lines = "".join(f"{name} = {place}\n" for name, place in points.items())
    (folder / "entry_points.txt").write_text(f"[inspect_ai]\n{lines}")
    paths = [str(folder.parent), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "INSPECT_DISPLAY": "plain"}


def inspect(environment: dict[str, str], cwd: Path, *arguments: str) -> str:
    found = subprocess.run(
        [sys.executable, "-m", "inspect_ai", *arguments],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return found.stdout + found.stderr


def test_from_the_command_line(environment: dict[str, str], vector_folder, tmp_path: Path) -> None:
    folder = vector_folder("tiny-qwen2-vl")
    task = ("sally_anne/gridtom", "-T", "limit=1", "-T", "order=1", "-T", "setting=text")
    model = ("--model", "sally-anne/tiny-qwen2-vl", "-M", f"steer={folder}", "-M", "alpha=2")
    printed = inspect(environment, tmp_path, "eval", *task, *model, "--log-dir", "logs")
    logs = list((tmp_path / "logs").glob("*.eval"))
    assert len(logs) == 1, printed
    log = read_eval_log(str(logs[0]))
    assert log.status == "success" and log.eval.task == "sally_anne/gridtom"
    assert log.eval.model_args == {"steer": str(folder), "alpha": 2}
    assert log.results is not None
    assert {found.name for found in log.results.scores} == {"robust"}
    # A finished log can be scored anew.
    anew = inspect_ai.score(log, robust(), action="overwrite", display="none")
    assert anew.results is not None
    found, again = (results.scores[0].metrics for results in (log.results, anew.results))
    assert {name: m.value for name, m in again.items()} == {n: m.value for n, m in found.items()}
    assert "Both" in again
