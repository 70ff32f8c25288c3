"""The check of distractors from the command line to files, with a shipped model."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from sally_anne.cli import main
from sally_anne.core.errors import HarnessError, OptionError
from sally_anne.data.moments import LABELS
from sally_anne.harness.distractors import DistractorConfig
from sally_anne.harness.distractors_run import run
from sally_anne.harness.model import SteeredModel

pytestmark = pytest.mark.integration


def record(name: str, texts: list[str], ability: str) -> dict[str, object]:
    return {
        "question_id": name,
        "question": "where is the red agent ?",
        "assigned_categories": [ability],
        "options": dict(zip(LABELS, texts, strict=True)),
        "movie_title": f"film {name}",
        "video_url": f"https://vimeo.com/{len(name)}",
        "t_0": 0.0,
        "t_i": 1.0,
        "t_j": 2.0,
        "multimodal_cues": None,
        "video_length": 3.0,
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    folder.mkdir()
    rooms = ["the red room", "the blue room", "the green room", "the purple room"]
    records = [
        record("x", rooms, "Beliefs"),
        record("yy", rooms[::-1], "Knowledge"),
        record("hidden", rooms, "Beliefs"),
    ]
    keys = [{"question_id": n, "correct_answer_key": k} for n, k in (("x", "A"), ("yy", "C"))]
    (folder / "moments_validation_questions.json").write_text(json.dumps(records))
    (folder / "moments_validation_keys.json").write_text(json.dumps(keys))
    return folder


@pytest.fixture
def config(data: Path, tmp_path: Path) -> DistractorConfig:
    return DistractorConfig(data=data, model="tiny-qwen2-vl", out=tmp_path / "run", batch_size=5)


def check(config: DistractorConfig) -> tuple[pd.DataFrame, str]:
    printed = io.StringIO()
    table = run(config, console=Console(file=printed, width=160))
    return table, printed.getvalue()


def test_the_command(
    config: DistractorConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(config.data), "--out", str(config.folder), "--model", config.model]
    main(["distractors", *words, "--exact", "--limit", "1"])
    assert "without context" in capsys.readouterr().out
    table = pd.read_parquet(config.folder / "distractors.parquet")
    assert list(table["item_id"]) == ["x"] and list(table["orders"]) == [24]


def test_files_and_numbers(config: DistractorConfig) -> None:
    table, printed = check(config)
    assert list(table["item_id"]) == ["x", "yy"] and set(table["orders"]) == {6}
    pd.testing.assert_frame_equal(pd.read_parquet(config.folder / "distractors.parquet"), table)
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["counts"] == {"questions": 2, "hidden": 1}
    assert set(saved["results"]) == {"overall", "Beliefs", "Knowledge"}
    assert saved["results"]["overall"]["no_context"]["value"] == table["correct"].mean()
    assert saved["results"]["overall"]["biased"]["value"] == table["biased"].mean()
    assert "Knowledge" in printed and "run folder" in printed


def test_answers_are_those_of_highest_probability(config: DistractorConfig) -> None:
    table, _ = check(replace(config, exact=True))
    lines = (config.folder / "answers.jsonl").read_text().splitlines()[1:]
    answers = {line["item_id"]: line for line in map(json.loads, lines)}
    assert len(answers) == 48
    right = 0
    for name, line in answers.items():
        scores = line["log_probs"]
        best = [i for i, score in enumerate(scores) if score == max(scores)]
        assert line["label"] == (LABELS[best[0]] if len(best) == 1 else None)
        question, order = name.split()
        if question == "x" and line["label"] is not None:
            right += order[LABELS.index(line["label"])] == "A"
    assert table.loc[0, "right"] == right
    assert table.loc[0, "chosen"] == answers["x ABCD"]["label"]


def test_a_right_model_is_told_from_one_that_likes_a_place(
    config: DistractorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def knows(self, prompts, options):
        # Each label's line in the prompt says what it stands for.
        return [
            [-float("red" not in p.text.split(f"{label}. ")[1].split("\n")[0]) for label in labels]
            for p, labels in zip(prompts, options, strict=True)
        ]

    monkeypatch.setattr(SteeredModel, "option_log_probs", knows)
    table, _ = check(config)
    # The red room is right in x, and wrong in yy.
    assert list(table["right"]) == [6, 0] and list(table["biased"]) == [True, False]
    assert list(table["correct"]) == [True, False]
    first = replace(config, out=config.folder.with_name("first"), exact=True)
    monkeypatch.setattr(
        SteeredModel, "option_log_probs", lambda self, p, o: [[0.0, -1, -1, -1] for _ in p]
    )
    table, _ = check(first)
    assert list(table["right"]) == [6, 6] and not table["biased"].any()


def test_goes_on_where_it_was_stopped(
    config: DistractorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = SteeredModel.option_log_probs
    calls: list[int] = []

    def once(self, prompts, options):
        if calls:
            raise KeyboardInterrupt
        calls.append(len(prompts))
        return score(self, prompts, options)

    monkeypatch.setattr(SteeredModel, "option_log_probs", once)
    with pytest.raises(KeyboardInterrupt):
        check(config)
    kept = (config.folder / "answers.jsonl").read_text()
    assert len(kept.splitlines()) == 1 + 5
    monkeypatch.setattr(SteeredModel, "option_log_probs", score)
    table, _ = check(config)
    assert (config.folder / "answers.jsonl").read_text().startswith(kept)
    monkeypatch.setattr(SteeredModel, "option_log_probs", once)
    again, _ = check(config)
    pd.testing.assert_frame_equal(again, table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limit": 0}, "--limit must be at least 1"),
        ({"batch_size": 0}, "--batch-size must be at least 1"),
        ({"threshold": 7}, "--threshold must be between 1 and --trials"),
        ({"split": "test"}, "no question of split 'test' whose key is known"),
    ],
)
def test_bad_options(config: DistractorConfig, change: dict[str, object], message: str) -> None:
    with pytest.raises((HarnessError, OptionError), match=message):
        check(replace(config, **change))  # type: ignore[arg-type]
