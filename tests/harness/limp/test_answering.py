"""Hand-made episodes, a scripted judge: the posterior that one computes by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import BenchmarkItem
from sally_anne.harness.inverse_planning.posterior import of_judged
from sally_anne.harness.inverse_planning.results import score, summarise
from sally_anne.harness.journal import Journal
from sally_anne.harness.limp.episode import Episode, Person
from sally_anne.harness.limp.pipeline import answer_all, gather_all, persons
from sally_anne.harness.limp.understanding import Sources
from tests.harness.limp.scripted import (
    ScriptedLikelihood,
    ScriptedWriter,
    goal,
    question,
    social,
)

HAT = "There is a hat in the box."
TALK = Episode((Person("Dee", (), ("It lies on the bed.",)), Person("Cy", (), ("Hat?",))), (HAT,))
MOVES = ("takes the pear", "walks to the oven", "puts the pear inside the oven")
PEAR = Episode((Person("Dee", MOVES), Person("Cy", ("puts the pear on the shelf",))))
EPISODES = {"7": TALK, "9": PEAR}


def by_hand(prompt: str) -> tuple[float, float]:
    """Probabilities of "likely" and "unlikely"; the rest is on other replies."""
    if "Then Dee said" in prompt:
        assert HAT in prompt  # as what Dee believes
        if "neither help" in prompt:
            return 0.2, 0.2
        return (0.1, 0.3) if "help Cy" in prompt else (0.6, 0.2)
    likely = {"takes": 0.8, "walks": 0.5, "puts": 0.9}
    p = next(p for cue, p in likely.items() if f"Then Dee: {cue}" in prompt)
    if "neither help" in prompt:
        return 0.3, 0.3
    return (p, 1 - p) if "help Cy" in prompt else ((1 - p) / 2, p / 2)


def no_film(item: BenchmarkItem) -> np.ndarray:
    raise AssertionError("the film was asked for")


def answered(
    folder: Path,
    items: list[BenchmarkItem],
    model: ScriptedLikelihood,
    episodes: dict[str, Episode] = EPISODES,
) -> pd.DataFrame:
    sources = Sources(ScriptedWriter({"": "?"}), no_film, None, episodes)
    with Journal(folder / "e.jsonl", {}) as kept, Journal(folder / "a.jsonl", {}) as journal:
        gathered = gather_all(items, sources, kept)
        return score(items, answer_all(items, gathered, sources, model, journal), of_judged)


def scores(row: pd.Series, mode: str) -> dict[str, float]:
    return {
        k: float(v) for k, v in (cell.split(": ") for cell in row[f"{mode}_scores"].split(", "))
    }


def test_known_posteriors(tmp_path: Path) -> None:
    items = [social(), social("least", "A", "2"), goal(), goal("least", "B", "2")]
    model = ScriptedLikelihood(by_hand)
    table = answered(tmp_path, items, model)
    assert len(model.asked) == 2 * 3 * 1 + 2 * 3 * 3  # questions, options, steps

    # One utterance. Shares: A .1/.4 = .25, B .6/.8 = .75, C .5; together 1.5.
    talk = {k: math.exp(v) for k, v in scores(table.iloc[0], "log").items()}
    assert talk == pytest.approx({"A": 1 / 6, "B": 1 / 2, "C": 1 / 3})
    raw = {"A": math.exp(0.1), "B": math.exp(0.6), "C": math.exp(0.2)}
    expected = {k: v / sum(raw.values()) for k, v in raw.items()}
    assert scores(table.iloc[0], "official") == pytest.approx(expected)

    # Three actions. A: .8 * .5 * .9 = .36; B: .2 * .5 * .1 = .01; C: 1/8. Together .495.
    moves = {k: math.exp(v) for k, v in scores(table.iloc[2], "log").items()}
    assert moves == pytest.approx({"A": 0.36 / 0.495, "B": 0.01 / 0.495, "C": 0.125 / 0.495})
    # As they are: A .36; B .1 * .25 * .05 = .00125; C .3 ** 3 = .027.
    raw = {"A": math.exp(0.36), "B": math.exp(0.00125), "C": math.exp(0.027)}
    expected = {k: v / sum(raw.values()) for k, v in raw.items()}
    assert scores(table.iloc[2], "official") == pytest.approx(expected)

    assert list(table["log_label"]) == list(table["official_label"]) == ["B", "A", "A", "B"]
    assert table["log_correct"].all() and table["official_correct"].all() and table["agree"].all()
    assert list(table["steps"]) == [1, 1, 3, 3]


def test_long_episodes_underflow_in_the_official_form_alone(tmp_path: Path) -> None:
    long = Episode((Person("Dee", MOVES * 200), Person("Cy")))
    model = ScriptedLikelihood(lambda p: tuple(x / 10 for x in by_hand(p)))  # type: ignore[arg-type]
    items = [goal(), goal("least", "B", "2")]
    table = answered(tmp_path, items, model, {"9": long})
    assert list(table["log_label"]) == ["A", "B"]
    assert table["official_invalid"].all() and not table["agree"].any()
    # n times the logarithm of the shares' ratio, B to A: .01 / .36.
    found = scores(table.iloc[0], "log")
    assert found["B"] - found["A"] == pytest.approx(200 * math.log(0.01 / 0.36))
    results = summarise(table)
    assert results["log"]["overall"]["value"] == 1.0 and results["agreement"] == 0.0
    assert results["official"]["overall"]["value"] == 0.0
    assert results["official"]["invalid"]["value"] == 1.0
    assert results["log"]["groups"]["belief_of_goal"]["n"] == 2


def test_what_the_journal_holds_is_not_judged_again(tmp_path: Path) -> None:
    items = [social(), goal()]
    first = ScriptedLikelihood(by_hand)
    half = answered(tmp_path, items[:1], first)
    second = ScriptedLikelihood(by_hand)
    whole = answered(tmp_path, items, second)
    assert len(second.asked) == 9 and not any("Then Dee said" in p for p in second.asked)
    third = ScriptedLikelihood(by_hand)
    again = answered(tmp_path, items, third, {})
    assert third.asked == []
    pd.testing.assert_frame_equal(whole, again)
    pd.testing.assert_frame_equal(whole[:1], half)


def test_questions_without_an_answer_are_counted(tmp_path: Path) -> None:
    odd = question(
        "Dee doesn't know Cy's plan. Which is MOST likely?", ["One", "Two", "Three"], number="3"
    )
    silent = Episode((Person("Dee"), Person("Cy", ("leaves",))))
    model = ScriptedLikelihood(by_hand)
    table = answered(tmp_path, [odd, social(), goal()], model, {"7": TALK, "9": silent})
    assert (
        table["log_invalid"].tolist() == table["official_invalid"].tolist() == [True, False, True]
    )
    results = summarise(table)
    assert results["problems"] == {
        "the options' wording was not understood": 1,
        "nothing is known of what Dee says or does": 1,
    }
    assert results["log"]["overall"]["value"] == pytest.approx(1 / 3)
    assert results["log"]["invalid"]["value"] == pytest.approx(2 / 3)


def test_what_is_the_same_for_two_options_is_asked_once(tmp_path: Path) -> None:
    """A judge that never answers twice alike cannot settle what the question leaves open."""
    item = question(
        "Given this, if Dee has been trying to help Cy achieve his goal, which is MOST likely?",
        [
            "Dee believed that there was a hat on the bed",
            "Dee believed that there was a hat on the bed.",
            "Dee believed that there was a cup on the bed",
        ],
    )
    noise = iter(range(1, 100))
    model = ScriptedLikelihood(lambda prompt: (0.5 + next(noise) / 1000, 0.2))
    table = answered(tmp_path, [item], model, {"7": TALK})
    assert len(model.asked) == 2
    found = scores(table.iloc[0], "log")
    assert found["A"] == found["B"] != found["C"]


def test_questions_about_nobody() -> None:
    item = question("Which is MOST likely?", ["One", "Two", "Three"])
    with pytest.raises(HarnessError, match="episode 7: its questions do not tell whose mind"):
        persons([item])
