"""With an ideal judge the posterior has the answers, so far as the text tells them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sally_anne.data.items import BenchmarkItem, Context, Option
from sally_anne.data.mmtom_qa import MMTOM_QA
from sally_anne.harness.bip_alm import prompts
from sally_anne.harness.bip_alm.pipeline import answer
from sally_anne.harness.inverse_planning.posterior import of_judged, of_said
from sally_anne.harness.inverse_planning.results import answer_all, score
from sally_anne.harness.journal import Journal
from tests.harness.bip_alm.oracle import Oracle
from tests.shared_data import official_data

# Published questions that the text leaves open: a thing that is passed by is seen in the film
# alone; and one whose person, by its text, walks to where the answer says that they do not look.
OPEN = {"1.3", "2.2", "2.4"}


@pytest.mark.parametrize("form", ["said", "judged"])
@pytest.mark.parametrize("source", ["made", "published"])
def test_an_ideal_judge_is_right(source: str, form: str) -> None:
    oracle = Oracle()
    ask, weigh = {
        "said": (prompts.next_action, of_said),
        "judged": (prompts.judged_action, of_judged),
    }[form]
    items = MMTOM_QA.load(official_data(source, "mmtom_qa"))
    answers = [answer(item, ask, getattr(oracle, form)) for item in items]
    table = score(items, answers, weigh)
    assert (table["problem"] == "").all()
    wrong = table[~table["log_correct"]]
    assert set(wrong["type"]) <= OPEN
    assert len(wrong) <= (2 if source == "made" else 0.03 * len(items))
    # Nearly all of these stay open, rather than wrong.
    assert (~wrong["log_invalid"]).sum() <= 1
    assert table["agree"].all()


SCENE = """The apartment consists of a kitchen and a bedroom.
In the kitchen, there is a fridge, a stove and a microwave. The fridge holds a plate. The stove is empty. The microwave holds a salmon.
In the bedroom, there is a desk. A book rests on the desk."""  # noqa: E501
ACTIONS = "Ida is in the bedroom. She walks to the kitchen, opens the stove and closes it, and is about to open the fridge."  # noqa: E501


def question(*options: str, asked: str = "Which one is more likely?", answer: str = "a"):
    return BenchmarkItem(
        item_id="1",
        benchmark="mmtom_qa",
        split="test",
        group="e",
        question=asked,
        options=tuple(map(Option, "ab", options)),
        answer=answer,
        context=Context(scene=SCENE, actions=ACTIONS),
        tags={"type": ("2.1",)},
        person="Ida",
    )


GOALS = ("Ida has been trying to get a plate.", "Ida has been trying to get a salmon.")


def test_a_posterior_by_hand() -> None:
    """Five steps under two goals, of which the second has seen nothing that ends its search."""
    item = question(*GOALS)
    steps = [("goes to the kitchen", 4), ("goes to the stove", 4), ("opens the stove", 3)]
    steps += [("closes the stove", 3), ("is about to open the fridge", 6)]
    # By action and goal: all are as likely but the last.
    p = dict.fromkeys([action for action, _ in steps], (0.5, 0.5))
    p["is about to open the fridge"] = (0.6, 0.2)

    def model(asked):
        goals = ["plate" in prompt.split("wants to get: ")[1].split("\n")[0] for prompt, _ in asked]
        return [
            (math.log(p[action][0 if plate else 1]), dict(steps)[action])
            for plate, (_, action) in zip(goals, asked, strict=True)
        ]

    found = answer(item, prompts.next_action, model)
    assert [len(found["judged"][label]) for label in "ab"] == [5, 5]
    posterior = of_said(found["judged"])
    # .5 ** 4 * .6 against .5 ** 4 * .2.
    assert {k: math.exp(v) for k, v in posterior.log.items()} == pytest.approx(
        {"a": 0.75, "b": 0.25}
    )
    # The mean over the last step's six tokens: 3 ** (1 / 6) to 1.
    ratio = 3 ** (1 / 6)
    assert posterior.official == pytest.approx({"a": ratio / (1 + ratio), "b": 1 / (1 + ratio)})
    assert posterior.choose("most") == "a" and posterior.choose("least") == "b"


def test_prompts_tell_state_and_mind() -> None:
    item = question(*GOALS, asked="If Ida thinks there isn't a plate inside the fridge, which?")
    asked: dict[str, list[tuple[str, str]]] = {}

    def model(pairs):
        asked["all"] = pairs
        return [(-1.0, 1)] * len(pairs)

    answer(item, prompts.next_action, model)
    texts = [prompt for prompt, action in asked["all"] if action == "is about to open the fridge"]
    state = (
        "What is where:\n- kitchen: fridge (plate), stove (empty), microwave (salmon)\n"
        "- bedroom: desk in the bedroom (book)\n"
        "Ida is in the kitchen, at the stove, which is closed.\n"
    )
    assert [text.removeprefix(state).split("\nWhat does Ida")[0] for text in texts] == [
        f"Ida wants to get: {mind}"
        for mind in (
            "plate\nAs far as Ida knows, it may be in or on: the microwave",
            "salmon\nAs far as Ida knows, it may be in or on: the fridge, the microwave",
        )
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"context": Context(actions=ACTIONS)}, "the text does not tell what is in the apartment"),
        ({"context": Context(scene=SCENE)}, "the text does not tell any step"),
        (
            {"context": Context(scene=SCENE, actions="Ida sings.")},
            "the text does not tell any step",
        ),
        ({"options": (Option("a", "Ida is sad."), Option("b", "Ida is glad."))}, "the options'"),
        ({"question": "If Ida has been trying to get a plate, which?"}, "the options' wording"),
    ],
)
def test_what_cannot_be_answered_says_why(change, problem) -> None:
    found = answer(replace(question(*GOALS), **change), prompts.next_action, Oracle().said)
    assert found["problem"].startswith(problem) and "judged" not in found


def test_what_the_journal_holds_is_not_judged_again(tmp_path: Path) -> None:
    items = MMTOM_QA.load(official_data("made", "mmtom_qa"))

    class Killed(BaseException):
        pass

    class Dying(Oracle):
        def said(self, asked):
            if len(self.asked) > 40:
                raise Killed
            return super().said(asked)

    def answered(oracle: Oracle):
        with Journal(tmp_path / "a.jsonl", {}) as journal:
            answers = answer_all(
                items, journal, lambda item: answer(item, prompts.next_action, oracle.said)
            )
            return score(items, answers, of_said)

    first, second, third = Dying(), Oracle(), Oracle()
    with pytest.raises(Killed):
        answered(first)
    whole = answered(second)
    assert first.asked and second.asked
    everything = Oracle()
    for item in items:
        answer(item, prompts.next_action, everything.said)
    assert sorted(first.asked + second.asked) == sorted(everything.asked)
    pd.testing.assert_frame_equal(answered(third), whole)
    assert third.asked == []
