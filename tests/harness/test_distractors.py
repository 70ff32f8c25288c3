"""Algorithm 1 by scorers made by hand, and whole checks with a shipped model."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from sally_anne.data.items import Option, Question
from sally_anne.data.moments import LABELS
from sally_anne.harness.distractors import Verdict, assess, run, shuffles
from sally_anne.harness.method_config import DistractorConfig
from tests.made_replies import printed

TEXTS = ("hope", "fear", "joy", "spite")
OPTIONS = tuple(Option(label, text) for label, text in zip("ABCD", TEXTS, strict=True))
ASKED = Question("x", "made", "test", "x", "Why?", OPTIONS, "C")


def orders_of(trials: int, seed: str) -> list[tuple[int, ...]]:
    return [one.order for one in shuffles(ASKED, trials, seed)]


@pytest.mark.parametrize(("right", "biased"), [(4, False), (5, True)])
def test_a_set_is_biased_from_the_threshold_on(right: int, biased: bool) -> None:
    chosen = ["joy"] * right + [None, "hope"][: 6 - right]
    assert assess("joy", chosen, 5) == Verdict(6, right, 1, biased)


def test_draws_depend_on_the_seed_alone_and_are_fair() -> None:
    assert orders_of(6, "0 x")[:3] == orders_of(3, "0 x")
    drawn = Counter(order for n in range(4000) for order in orders_of(6, str(n)))
    assert len(drawn) == 24
    # 24,000 draws: 1,000 expected of each, standard deviation 31.
    assert all(abs(count - 1000) < 150 for count in drawn.values())
    assert any(len(set(orders_of(6, str(n)))) < 6 for n in range(50))


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


check = partial(printed, run)


@pytest.mark.integration
def test_files_and_numbers(config: DistractorConfig) -> None:
    table, said = check(config)
    assert list(table["item_id"]) == ["x", "yy"] and set(table["orders"]) == {6}
    pd.testing.assert_frame_equal(pd.read_parquet(config.folder / "distractors.parquet"), table)
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["counts"] == {"questions": 2, "hidden": 1}
    assert set(saved["results"]) == {"overall", "Beliefs", "Knowledge"}
    assert saved["results"]["overall"]["no_context"]["value"] == table["correct"].mean()
    assert saved["results"]["overall"]["biased"]["value"] == table["biased"].mean()
    assert "Knowledge" in said and "run folder" in said


@pytest.mark.integration
def test_answers_are_those_of_highest_probability(config: DistractorConfig) -> None:
    table, _ = check(replace(config, trials=60))
    lines = (config.folder / "answers.jsonl").read_text().splitlines()[1:]
    answers = {line["item_id"]: line for line in map(json.loads, lines)}
    assert len(answers) > 40
    for line in answers.values():
        scores = line["log_probs"]
        best = [i for i, score in enumerate(scores) if score == max(scores)]
        assert line["label"] == (LABELS[best[0]] if len(best) == 1 else None)
    shown = ["".join(LABELS[place] for place in order) for order in orders_of(60, "0 x")]
    places = ((order, answers[f"x {order}"]["label"]) for order in shown)
    right = [order for order, label in places if label and order[LABELS.index(label)] == "A"]
    assert table.loc[0, "right"] == len(right)
    assert table.loc[0, "chosen"] == answers["x ABCD"]["label"]
