"""The paper's steps that rules and posterior stand in for: latents by the model, its last word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sally_anne.harness.inverse_planning.posterior import of_judged
from sally_anne.harness.journal import Journal
from sally_anne.harness.limp import prompts
from sally_anne.harness.limp.episode import Episode, Hypothesis, Person, steps
from sally_anne.harness.limp.latents import agreement, compared, said, summarise
from sally_anne.harness.limp.pipeline import answer_all, choose_all, gather_all
from sally_anne.harness.limp.understanding import Sources
from tests.harness.limp.scripted import WHO, ScriptedLikelihood, ScriptedWriter, logs, social

HAT = "There is a hat in the box."
TALK = Episode((Person("Dee", (), ("It lies on the bed.",)), Person("Cy", (), ("Hat?",))), (HAT,))
AIMS = ("Helping Cy.", "She hinders Cy", "indifferent")


def latents(belief: str, aims: tuple[str, ...] = AIMS) -> str:
    """A model's reply: one belief, an aim an option."""
    minds = {x: {"belief": belief, "social_goal": aim} for x, aim in zip("ABC", aims, strict=True)}
    return json.dumps(minds)


def answered(folder: Path, reply: str, **forms) -> tuple[list, ScriptedLikelihood]:
    writer = ScriptedWriter({"For each option, tell": reply})
    sources = Sources(writer, None, None, {"7": TALK})
    model = ScriptedLikelihood(lambda prompt: (0.5, 0.5))
    with Journal(folder / "e.jsonl", {}) as kept, Journal(folder / "a.jsonl", {}) as journal:
        episodes = gather_all([social()], sources, kept)
        return answer_all([social()], episodes, sources, model, journal, **forms), model


def test_the_model_s_latents_are_judged_and_compared(tmp_path: Path) -> None:
    (kept,), model = answered(tmp_path, latents("a hat in the box"), latents="model")
    assert kept["hypotheses"]["B"]["social_goal"] == "She hinders Cy"
    assert kept["rules"]["B"]["social_goal"] == "hinder Cy"
    assert all("believes: a hat in the box" in prompt for prompt in model.asked)
    found = list(compared([kept]))
    assert found == [{"belief": True, "social_goal": True}]
    shares = summarise([*found, {"belief": False, "social_goal": True}, None])
    assert shares == {"n": 2, "all": 0.5, "belief": 0.5, "social_goal": 1.0}
    assert "in 50.0 % of 2 questions (belief 50.0, social goal 100.0)" in said(shares)
    assert summarise([None]) == {"n": 0} and "no question" in said({"n": 0})


def test_rules_come_first_by_default(tmp_path: Path) -> None:
    (kept,), _ = answered(tmp_path, "?")
    assert kept["hypotheses"]["A"]["social_goal"] == "help Cy" and "rules" not in kept
    assert list(compared([kept])) == [None]


def test_latents_that_cannot_be_read_leave_the_question_open(tmp_path: Path) -> None:
    (kept,), model = answered(tmp_path, "I do not know.", latents="model")
    assert kept["problem"] == "the options' wording was not understood" and not model.asked


@pytest.mark.parametrize(
    ("rule", "read", "found"),
    [
        (Hypothesis("There is a hat in the box."), Hypothesis("the hat is inside the box"), True),
        (Hypothesis("There is a hat in the box."), Hypothesis("the hat is on the bed"), False),
        (Hypothesis("There is a hat in the box."), Hypothesis(), False),
        (Hypothesis("", "help Cy"), Hypothesis("anything", "Hindering"), False),
        (Hypothesis("", "neither help nor hinder Cy"), Hypothesis("", "not helping"), True),
        (Hypothesis("", "", "to put the pear on a shelf"), Hypothesis("", "", "pear, shelf"), True),
    ],
)
def test_what_is_the_same(rule: Hypothesis, read: Hypothesis, found: bool) -> None:
    alike = agreement({"A": rule}, {"A": read})
    assert alike and list(alike.values()) == [found]


def test_what_rules_say_in_general_is_not_compared() -> None:
    rule = Hypothesis("Dee knows what is on the bed", "", "to find what Cy asks for")
    assert agreement({"A": rule}, {"A": Hypothesis("a hat", "", "the hat")}) is None


@pytest.mark.parametrize("told", [True, False])
def test_utterances_with_and_without_the_goal_that_is_believed(told: bool) -> None:
    mind = Hypothesis("a hat", "help Cy", "to wear a hat")
    (step,) = steps(TALK.person("Dee"))
    assert ("to wear a hat" in prompts.judge(step, mind, WHO, TALK, told)) is told
    acting = Episode((Person("Dee", ("leaves",)), Person("Cy")))
    (step,) = steps(acting.person("Dee"))
    assert "to wear a hat" in prompts.judge(step, mind, WHO, acting, told)


def test_the_model_has_the_last_word(tmp_path: Path) -> None:
    items = [social(), social("least", "A", "2"), social(number="3")]
    judged = {"A": logs((0.2, 0.8)), "B": logs((0.6, 0.4)), "C": logs((0.2, 0.8))}
    answers = [{"judged": judged}, {"judged": judged}, {"problem": "?"}]
    asked: list[str] = []

    def write(prompt: str) -> str:
        asked.append(prompt)
        return "B" if "MOST" in prompt else "Either A or C."

    with Journal(tmp_path / "c.jsonl", {}) as journal:
        assert choose_all(items, answers, "log", write, journal) == ["B", None, None]
        assert choose_all(items, answers, "log", write, journal) == ["B", None, None]
    # Once each, and not where nothing was judged.
    assert len(asked) == 2
    assert "A. When giving information, Dee has been trying to help" in asked[0]
    assert [f"{p:.4f}" in asked[0] for p in (0.2, 0.6)] == [True, True]
    assert of_judged(judged).choose("most") == "B"
