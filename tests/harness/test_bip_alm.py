"""BIP-ALM: options as minds, beliefs that follow what is seen, an ideal judge, whole runs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sally_anne.data.items import Context, Option, Question
from sally_anne.data.mmtom_qa import MMTOM_QA
from sally_anne.data.mmtom_qa.scenes import Action, Contents, read_actions
from sally_anne.harness.bip_alm import (
    Hypothesis,
    answer,
    hypotheses,
    judged_action,
    next_action,
    steps,
)
from sally_anne.harness.bip_alm import run as work
from sally_anne.harness.method_config import BipAlmConfig
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.planning import (
    LikelyUnlikely,
    ScoredText,
    choose,
    from_top_tokens,
    posterior_of_judgements,
    posterior_of_replies,
    score,
    score_replies,
)
from sally_anne.models.loading import LoadedModel
from tests.harness.chat_server import Server, Step, judgement, words
from tests.harness.scripted import logs
from tests.shared_data import MADE, official_data

FITS, FITS_NOT = 0.9, 0.1
ROOMS = ("kitchen", "bathroom", "bedroom", "living room")


def fits(prompt: str, action: str) -> bool:
    """Whether the action brings the person nearer to the thing, or away from where it is not."""
    homes, things = {}, {}
    for room, places in re.findall(r"^- (.+?): (.*)$", prompt, re.M):
        for place, held in re.findall(r"([^,(]+?) \(([^)]*)\)", places):
            homes[place.strip(", ")] = room
            things[place.strip(", ")] = held.split(", ")
    here = re.search(r"^\w+ is in the (.+?)(?:, at .*)?\.$", prompt, re.M)
    suspected = re.findall(r"the ([^,]+)", re.search(r"may be in or on: (.*)$", prompt, re.M)[1])
    target = re.search(r"(?:to|past|opens|closes|open) the (.+)$", action)[1]
    if action.startswith(("closes", "walks past")):
        return target not in suspected
    if target in ROOMS:
        return any(homes.get(place, "kitchen") == target for place in suspected)
    if target in homes or "cabinet" in target:
        return target in suspected
    # A thing: one that lies open, or one that is put away.
    held = [p for p in things if target in things[p] and here and homes[p] == here[1]]
    seen = [place for place in held if re.match(r"coffee table|desk|sofa|kitchen table", place)]
    return any(place in suspected for place in seen or held)


@dataclass
class Oracle:
    """Gives actions that fit a high probability, in either form; ``asked`` counts prompts."""

    asked: list[str] = field(default_factory=list)

    def said(self, asked: Sequence[tuple[str, str]]) -> list[ScoredText]:
        self.asked += [prompt for prompt, _ in asked]
        likely = [fits(prompt, action) for prompt, action in asked]
        return [(math.log(FITS if fit else FITS_NOT), 4) for fit in likely]

    def judged(self, prompts: Sequence[str]) -> list[LikelyUnlikely]:
        self.asked += prompts
        found = []
        for prompt in prompts:
            action = re.search(r"^Now \w+ (.*)\.$", prompt, re.M)[1]
            p = FITS if fits(prompt, action) else FITS_NOT
            found.append((math.log(p), math.log(1 - p)))
        return found


SCENE = """The apartment consists of a kitchen and a bedroom.
In the kitchen, there is a fridge, a stove and a microwave. The fridge holds a plate. The stove is empty. The microwave holds a salmon.
In the bedroom, there is a desk. A book rests on the desk."""  # noqa: E501
ACTIONS = "Ida is in the bedroom. She walks to the kitchen, opens the stove and closes it, and is about to open the fridge."  # noqa: E501


def question(*options: str, asked: str = "Which one is more likely?") -> Question:
    about = {"context": Context(scene=SCENE, actions=ACTIONS), "tags": {"type": ("2.1",)}}
    choices = tuple(map(Option, "ab", options))
    return Question("1", "mmtom_qa", "test", "e", asked, choices, "a", person="Ida", **about)


CONTENTS = Contents(
    "In the kitchen, there is a fridge, a stove and a sofa. The fridge holds a plate. The stove "
    "holds an apple. The sofa holds a book.\nIn the bedroom, there is a cabinet and a desk. The "
    "cabinet holds a salmon. The desk holds a cupcake."
)
WALK = read_actions(
    "Ida is in the bedroom. She goes to the kitchen, opens the stove and closes it, and is about "
    "to open the fridge.",
    CONTENTS,
)


def test_a_belief_is_judged_by_the_last_visit() -> None:
    inside, other = Hypothesis("plate", "inside", ("fridge",)), ("bedroom cabinet",)
    (step,) = steps(inside, WALK, CONTENTS)
    assert step.action == Action("be about to open", "fridge") and step.suspected == ("fridge",)
    assert (step.room, step.at, step.is_open) == ("kitchen", "stove", False)
    (step,) = steps(Hypothesis("plate", "not inside", ("fridge",)), WALK, CONTENTS)
    assert step.suspected == other
    assert len(steps(Hypothesis("plate", "goal"), WALK, CONTENTS)) == len(WALK.actions)


def test_options_become_hypotheses() -> None:
    belief = question(
        "Ida thinks that the dish bowl is not inside the cabinet.",
        "Ida thinks that the dishbowl is inside the 2nd kitchen cabinet.",
        asked="If Ida has been trying to get a dishbowl, which?",
    )
    assert hypotheses(belief, CONTENTS) == {
        "a": Hypothesis("dish bowl", "not inside", ("bedroom cabinet",)),
        "b": Hypothesis("dish bowl", "inside", ("kitchen cabinet 2",)),
    }
    goal = question(
        "Ida has been trying to get an apple.",
        "Ida has been trying to get some bag of chips.",
        asked="If Ida think there isn't an apple inside the stove, which?",
    )
    assert hypotheses(goal, CONTENTS) == {
        "a": Hypothesis("apple", "goal", ("stove",)),
        "b": Hypothesis("bag of chips", "goal"),
    }
    for wording in ("Ida is sad.", "Ida has been trying to get a unicorn."):
        assert hypotheses(question(wording, wording), CONTENTS) is None


# Published questions that the text leaves open: a thing that is passed by is seen in the film
# alone; and one whose person, by its text, walks to where the answer says that they do not look.
OPEN = {"1.3", "2.2", "2.4"}


@pytest.mark.parametrize("form", ["said", "judged"])
@pytest.mark.parametrize("source", ["made", "published"])
def test_an_ideal_judge_is_right(source: str, form: str) -> None:
    oracle = Oracle()
    ask, weigh = {
        "said": (next_action, posterior_of_replies),
        "judged": (judged_action, posterior_of_judgements),
    }[form]
    items = MMTOM_QA.load(official_data(source, "mmtom_qa"))
    answers = {item.item_id: answer(item, ask, getattr(oracle, form)) for item in items}
    table = score(items, answers, weigh)
    assert (table["problem"] == "").all()
    wrong = table[~table["log_correct"]]
    assert set(wrong["type"]) <= OPEN
    assert len(wrong) <= (2 if source == "made" else 0.03 * len(items))
    # Nearly all of these stay open, rather than wrong.
    assert (~wrong["log_invalid"]).sum() <= 1
    assert table["agree"].all()


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

    found = answer(item, next_action, model)
    assert [len(found["judged"][label]) for label in "ab"] == [5, 5]
    posterior = posterior_of_replies(found["judged"])
    # .5 ** 4 * .6 against .5 ** 4 * .2.
    assert {k: math.exp(v) for k, v in posterior["log"].items()} == pytest.approx(
        {"a": 0.75, "b": 0.25}
    )
    # The mean over the last step's six tokens: 3 ** (1 / 6) to 1.
    ratio = 3 ** (1 / 6)
    assert posterior["official"] == pytest.approx({"a": ratio / (1 + ratio), "b": 1 / (1 + ratio)})
    assert choose(posterior["log"], "most") == "a" and choose(posterior["log"], "least") == "b"


MODEL = "tiny-qwen2-vl"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two made questions of one episode, of a belief and of a goal."""
    lines = (MADE / "mmtom_qa" / "questions.json").read_text().splitlines()
    kinds = {record["question_type"]: line for line in lines[::-1] if (record := json.loads(line))}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "questions.json").write_text(f"{kinds[1.1]}\n{kinds[2.1]}\n")
    return tmp_path / "data"


@pytest.fixture
def config(data: Path, tmp_path: Path) -> BipAlmConfig:
    return BipAlmConfig(data, model=MODEL, out=tmp_path / "run", batch_size=4)


def run(config: BipAlmConfig, loaded: LoadedModel | None = None) -> pd.DataFrame:
    return work(config, console=Console(quiet=True), loaded=loaded)


@pytest.mark.integration
def test_likelihoods_are_those_of_the_whole_action(loaded: LoadedModel) -> None:
    model, prompt = SteeredModel(loaded), Prompt("Where does the blue agent go?")
    actions = ["goes to the red room", "opens the red room", "is about to open the blue room"]
    found = score_replies(model, 2, [(prompt.text, action) for action in actions])
    assert [length for _, length in found] == [*map(len, model.continuations(prompt, actions))]
    (alone,) = model.option_log_probs([prompt], [actions])
    assert [value for value, _ in found] == pytest.approx(alone, abs=1e-4)


@pytest.mark.integration
def test_a_run_and_what_it_leaves(config, loaded, monkeypatch) -> None:
    table = run(config, loaded)
    assert (table["problem"] == "").all() and list(table["type"]) == ["1.1", "2.1"]
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["results"]["log"]["overall"]["n"] == 2
    assert set(saved["results"]["official"]["groups"]) == {"1.1", "2.1"}
    assert saved["about"]["likelihood"] == "reply"
    stored = pd.read_parquet(config.folder / "answers.parquet")
    assert stored["label"].equals(stored["log_label"])

    # Nothing is asked twice.
    monkeypatch.setattr(SteeredModel, "option_log_probs", None)
    again = run(config, loaded)
    pd.testing.assert_frame_equal(table, again)


@pytest.fixture
def distant(config: BipAlmConfig, server: Server) -> BipAlmConfig:
    oracle = Oracle()

    def judge(body: dict[str, Any]) -> Step:
        ((likely, _),) = oracle.judged([words(body)])
        return judgement(body, math.exp(likely))

    server.answer = judge
    return replace(config, model=BipAlmConfig.model, endpoint=server.url, endpoint_model="knower")


def test_a_model_behind_an_address_judges(distant: BipAlmConfig, server: Server) -> None:
    table = run(distant)
    assert table["log_correct"].all()
    asked = len(server.seen)
    first = table["log_scores"][0]
    wrong, right = sorted(float(part.split(": ")[1]) for part in first.split(", "))
    assert math.exp(right) > 0.5 > math.exp(wrong)
    server.answer = None
    again = run(distant)
    pd.testing.assert_frame_equal(table, again)
    assert len(server.seen) == asked


BY_HAND = {
    "A": logs((0.8, 0.2), (0.3, 0.2)),
    "B": logs((0.3, 0.3), (0.1, 0.1)),
    "C": logs((0.1, 0.9), (0.7, 0.3)),
}


def test_official_form_is_a_softmax_over_raw_products() -> None:
    found = posterior_of_judgements(BY_HAND)
    # Products of "likely" as it is: A .8 * .3 = .24, B .3 * .1 = .03, C .1 * .7 = .07.
    weights = {"A": math.exp(0.24), "B": math.exp(0.03), "C": math.exp(0.07)}
    expected = {k: v / sum(weights.values()) for k, v in weights.items()}
    assert found["official"] == pytest.approx(expected)
    assert choose(found["official"], "most") == "A"
    # The two forms part where the model would rather say something else than either answer.
    assert choose(found["official"], "least") == "B" and choose(found["log"], "least") == "C"


def test_products_that_underflow_are_told_apart_in_logarithms_alone() -> None:
    n = 400
    found = posterior_of_judgements(
        {"A": logs((0.1, 0.3)) * n, "B": logs((0.1, 0.2)) * n, "C": logs((0.1, 0.4)) * n}
    )
    assert math.prod([0.1] * n) == 0.0
    assert found["official"] == pytest.approx(dict.fromkeys("ABC", 1 / 3))
    assert choose(found["official"], "most") is None and choose(found["official"], "least") is None
    assert choose(found["log"], "most") == "B" and choose(found["log"], "least") == "C"
    # log (1/4)^n - log (1/3)^n, and B has all of the mass.
    assert found["log"]["A"] == pytest.approx(n * math.log(3 / 4))
    assert found["log"]["B"] == pytest.approx(0.0, abs=1e-12)


share = st.floats(0.01, 0.99)


@given(st.lists(st.tuples(share, share, share), min_size=1, max_size=8))
def test_posterior_is_bayes_rule(steps: list[tuple[float, float, float]]) -> None:
    judged = {
        k: logs(*((row[i] / 2, (1 - row[i]) / 2) for row in steps)) for i, k in enumerate("ABC")
    }
    products = {k: math.prod(row[i] for row in steps) for i, k in enumerate("ABC")}
    expected = {k: p / sum(products.values()) for k, p in products.items()}
    found = {k: math.exp(v) for k, v in posterior_of_judgements(judged)["log"].items()}
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ({"A": 0.7, "B": 0.2, "The": 0.1}, (0.7, 0.2)),
        ({"A": 0.5, " A": 0.2, "B)": 0.2, "b": 0.1}, (0.7, 0.2)),
        # Not listed: as much as is left, or as the last one has.
        ({"A": 0.9, "The": 0.06}, (0.9, 0.04)),
        ({"A": 0.6, "The": 0.1, "It": 0.05}, (0.6, 0.05)),
        ({"The": 0.5, "It": 0.1}, (0.1, 0.1)),
        ({"A": 1.0}, (1.0, 1e-9)),
    ],
)
def test_answers_among_the_likeliest_tokens(
    first: dict[str, float], found: tuple[float, float]
) -> None:
    judged = from_top_tokens({token: math.log(p) for token, p in first.items()})
    assert [math.exp(value) for value in judged] == pytest.approx(found)
