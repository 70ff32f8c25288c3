"""Algorithm 1 by scorers made by hand, and whole checks with a shipped model."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
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


def verdict(scorer) -> Verdict:
    every = shuffles(ASKED, 6, "0", exact=True)
    return assess("joy", [one.text(scorer("Why?", one.options)) for one in every], exact=True)


def orders_of(trials: int, seed: str) -> list[tuple[int, ...]]:
    return [one.order for one in shuffles(ASKED, trials, seed, exact=False)]


def by_text(*texts: str):
    """Chooses the first of these texts that is offered."""

    def scorer(question: str, options: Sequence[Option]) -> str:
        return next(o.label for text in texts for o in options if o.text == text)

    return scorer


@pytest.mark.parametrize("label", "ABCD")
def test_a_place_is_right_in_a_quarter_of_the_orders(label: str) -> None:
    found = verdict(lambda question, options: label)
    assert (found.orders, found.right, found.biased) == (24, 6, False)
    assert found.flag_probability == pytest.approx(6 * 0.25**5 * 0.75 + 0.25**6)


@pytest.mark.parametrize(("right", "biased"), [(19, False), (20, True)])
def test_the_threshold_over_all_orders_is_the_same_share(right: int, biased: bool) -> None:
    asked = itertools.count()
    scorer = by_text("joy")
    found = verdict(lambda q, o: scorer(q, o) if next(asked) < right else None)
    share = right / 24
    assert found.right == right and found.invalid == 24 - right and found.biased == biased
    assert found.flag_probability == pytest.approx(6 * share**5 * (1 - share) + share**6)


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
