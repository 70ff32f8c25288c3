"""Judged steps make the posterior computed by hand; LIMP with scripted and ideal judges."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.core.folder import Journal
from sally_anne.data.items import Question
from sally_anne.data.muma_tom import load
from sally_anne.harness.limp import Episode, Person, Sources, gather_all, judge_all, persons
from sally_anne.harness.planning import posterior_of_judgements, score, summarise
from tests.harness.scripted import (
    ScriptedLikelihood,
    ScriptedWriter,
    goal,
    logs,
    question,
    social,
)
from tests.shared_data import SOURCES, official_data

# Shares of "likely": A .8 * .6 = .48, B .5 * .5 = .25, C .1 * .7 = .07; together .8.
BY_HAND = {
    "A": logs((0.8, 0.2), (0.3, 0.2)),
    "B": logs((0.3, 0.3), (0.1, 0.1)),
    "C": logs((0.1, 0.9), (0.7, 0.3)),
}


def test_logarithms_give_the_posterior() -> None:
    found = posterior_of_judgements(BY_HAND)
    expected = {"A": 0.6, "B": 0.3125, "C": 0.0875}
    assert {k: math.exp(v) for k, v in found.log.items()} == pytest.approx(expected)
    assert found.choose("most") == "A" and found.choose("least") == "C"


def test_official_form_is_a_softmax_over_raw_products() -> None:
    found = posterior_of_judgements(BY_HAND)
    # Products of "likely" as it is: A .8 * .3 = .24, B .3 * .1 = .03, C .1 * .7 = .07.
    weights = {"A": math.exp(0.24), "B": math.exp(0.03), "C": math.exp(0.07)}
    expected = {k: v / sum(weights.values()) for k, v in weights.items()}
    assert found.official == pytest.approx(expected)
    assert found.choose("most", "official") == "A"
    # The two forms part where the model would rather say something else than either answer.
    assert found.choose("least", "official") == "B" and found.choose("least", "log") == "C"


def test_products_that_underflow_are_told_apart_in_logarithms_alone() -> None:
    n = 400
    found = posterior_of_judgements(
        {"A": logs((0.1, 0.3)) * n, "B": logs((0.1, 0.2)) * n, "C": logs((0.1, 0.4)) * n}
    )
    assert math.prod([0.1] * n) == 0.0
    assert found.official == pytest.approx(dict.fromkeys("ABC", 1 / 3))
    assert found.choose("most", "official") is None and found.choose("least", "official") is None
    assert found.choose("most") == "B" and found.choose("least") == "C"
    # log (1/4)^n - log (1/3)^n, and B has all of the mass.
    assert found.log["A"] == pytest.approx(n * math.log(3 / 4))
    assert found.log["B"] == pytest.approx(0.0, abs=1e-12)


share = st.floats(0.01, 0.99)


@given(st.lists(st.tuples(share, share, share), min_size=1, max_size=8))
def test_posterior_is_bayes_rule(steps: list[tuple[float, float, float]]) -> None:
    judged = {
        k: logs(*((row[i] / 2, (1 - row[i]) / 2) for row in steps)) for i, k in enumerate("ABC")
    }
    products = {k: math.prod(row[i] for row in steps) for i, k in enumerate("ABC")}
    expected = {k: p / sum(products.values()) for k, p in products.items()}
    found = {k: math.exp(v) for k, v in posterior_of_judgements(judged).log.items()}
    assert found == pytest.approx(expected, rel=1e-9)


HAT = "There is a hat in the box."

TALK = Episode({"Dee": Person((), ("It lies on the bed.",)), "Cy": Person((), ("Hat?",))}, (HAT,))

MOVES = ("takes the pear", "walks to the oven", "puts the pear inside the oven")

PEAR = Episode({"Dee": Person(MOVES), "Cy": Person(("puts the pear on the shelf",))})

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


def no_film(item: Question) -> np.ndarray:
    raise AssertionError("the film was asked for")


def answered(
    folder: Path,
    items: list[Question],
    model: ScriptedLikelihood,
    episodes: dict[str, Episode] = EPISODES,
) -> pd.DataFrame:
    sources = Sources(ScriptedWriter({"": "?"}), no_film, None, episodes)
    with Journal(folder / "e.jsonl", {}) as kept, Journal(folder / "a.jsonl", {}) as journal:
        gathered = gather_all(items, sources, kept)
        return score(
            items, judge_all(items, gathered, sources, model, journal), posterior_of_judgements
        )


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


def test_questions_without_an_answer_are_counted(tmp_path: Path) -> None:
    odd = question(
        "Dee doesn't know Cy's plan. Which is MOST likely?", ["One", "Two", "Three"], number="3"
    )
    silent = Episode({"Dee": Person(), "Cy": Person(("leaves",))})
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


# The made records of goals are not as one-sided as the published ones; and what is known in
# questions of social goals only a film tells.
TYPES = {"made": {"belief"}, "published": {"belief", "belief_of_goal"}}


def judge(prompt: str) -> tuple[float, float]:
    """Who helps says what they believe, and brings things to where they are wanted."""
    aim = re.search(r"'s aim towards \w+: (\w+)", prompt)[1]
    last = re.search(r"\nThen .*", prompt)[0].casefold()
    said = re.search(r"believes: there (?:was|is|were|are) (?:an? |some )?(.*)", prompt)
    wish = re.search(r"thinks that \w+ wants: to (?:place|put|have) (.*)", prompt)
    if aim == "neither":
        return 0.5, 0.5
    stated = (said[1] if " said: " in last and said else wish[1]).casefold().rstrip(".")
    alike = all(word in last for word in re.findall(r"\w+", stated))
    return (0.9, 0.1) if alike == (aim == "help") else (0.1, 0.9)


def moves(item: Question) -> Person | None:
    """The person asked about, and what the options say that they did."""
    for option in item.options:
        if told := re.search(r"to (?:place|put) (the .+?): ", option.text):
            return Person((f"puts {told[1]}",))
    return None


@pytest.mark.parametrize("source", SOURCES)
def test_an_ideal_judge_is_right(source: str, tmp_path: Path) -> None:
    every = load(official_data(source, "muma_tom"))
    items = [item for item in every if set(item.tags["type"]) <= TYPES[source]]
    who = persons(items)
    parsed = {
        item.group: Episode({who[item.group].subject: did, who[item.group].other: Person()})
        for item in items
        if not item.context.dialogue and (did := moves(item))
    }
    talk = {item.group: ("walks about",) for item in items if item.context.dialogue}
    sources = Sources(ScriptedWriter({"": "[]"}), None, talk, parsed)
    with Journal(tmp_path / "e.jsonl", {}) as kept, Journal(tmp_path / "a.jsonl", {}) as journal:
        episodes = gather_all(items, sources, kept)
        answers = judge_all(items, episodes, sources, ScriptedLikelihood(judge), journal)
    table = score(items, answers, posterior_of_judgements)
    assert (table["problem"] == "").all()
    right = table.groupby("type")["log_correct"].mean()
    assert right["belief"] == 1.0
    # Of the published goals six in 300 have a key that does not go with what their options say.
    assert (right >= 0.98).all(), table[~table["log_correct"]]["item_id"].tolist()
