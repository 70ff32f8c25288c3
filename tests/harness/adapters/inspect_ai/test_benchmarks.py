"""Every benchmark in inspect-ai: the prompts, replies and scores of our own harness."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("inspect_ai")

from inspect_ai.log import resolve_sample_attachments

from sally_anne.harness.adapters.inspect_ai import benchmark, gridtom
from sally_anne.harness.adapters.inspect_ai.provider import prompt_of
from sally_anne.harness.model import laid_out
from sally_anne.models.loading import load_model
from tests.harness.adapters.benchmarks import CASES, MODEL, Case, expected, speak
from tests.harness.adapters.inspect_ai.conftest import run
from tests.shared_data import MADE

pytestmark = pytest.mark.plugins
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
        asked = prompt_of(loaded, samples[name].messages[:-1])
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


@pytest.mark.parametrize("name", CASES)
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
