"""Options become hypotheses by the official wording, or by the writer."""

from __future__ import annotations

import pytest

from sally_anne.data.muma_tom import load
from sally_anne.harness.limp.episode import Episode, Hypothesis, Person
from sally_anne.harness.limp.pipeline import persons
from sally_anne.harness.limp.understanding import by_model, by_rules
from tests.harness.limp.scripted import WHO, ScriptedWriter, goal, question, social
from tests.shared_data import SOURCES, official_data

EMPTY = Episode((Person("Dee"), Person("Cy")))


def episode(*actions: str, initial: tuple[str, ...] = ()) -> Episode:
    return Episode((Person("Cy", actions), Person("Dee")), initial)


def test_beliefs_under_a_given_goal() -> None:
    item = question(
        "Given all this, if Dee has been trying to hinder Cy from achieving his goal, what then?",
        [
            f"When giving information, Dee believed that there {x}"
            for x in ("was a hat", "is a cup", "were two hats.")
        ],
    )
    found = by_rules(item, WHO, EMPTY)
    assert found == {
        label: Hypothesis(belief, "hinder Cy", "to find what Cy asks for")
        for label, belief in zip(
            "ABC", ("there was a hat", "there is a cup", "there were two hats"), strict=True
        )
    }


def test_social_goals_under_what_is_known() -> None:
    told = episode(initial=("There is a hat in the box.", "There is a hatpin here.", "A cup."))
    found = by_rules(social(), WHO, told)
    assert found is not None
    assert {h.belief for h in found.values()} == {"There is a hat in the box."}
    goals = [found[label].social_goal for label in "ABC"]
    assert goals == ["help Cy", "hinder Cy", "neither help nor hinder Cy"]
    unknown = by_rules(social(), WHO, EMPTY)
    assert unknown and unknown["A"].belief == "Dee knows what is on the bed"


@pytest.mark.parametrize(
    ("actions", "wish"),
    [
        (("takes the pear from the hall", "puts the pear on the shelf."), "on the shelf"),
        (("puts the pear on the bed", "puts the pear into a box"), "into a box"),
        (("puts the pearl on the bed", "puts the cup on the shelf"), "stay where Cy put it"),
        ((), "stay where Cy put it"),
    ],
)
def test_goals_believed(actions: tuple[str, ...], wish: str) -> None:
    assert by_rules(goal(), WHO, episode(*actions)) == {
        "A": Hypothesis("", "help Cy", "to place the pear inside the oven"),
        "B": Hypothesis("", "hinder Cy", f"to have the pear {wish}"),
        "C": Hypothesis("", "neither help nor hinder Cy", "something that Dee does not know"),
    }


def test_another_wording_is_read_by_the_writer() -> None:
    item = question("What is it that Dee wants?", ["To help.", "To hinder.", "Nothing."])
    writer = ScriptedWriter(
        {"What is it that Dee wants?": str({x: {"social_goal": x * 2} for x in "ABC"})}
    )
    assert by_rules(item, WHO, EMPTY) is None
    found = by_model(item, WHO, episode("takes a pear"), writer)
    assert found == {x: Hypothesis("", x * 2, "") for x in "ABC"}
    assert "B. To hinder." in writer.asked[0][0] and "- takes a pear" in writer.asked[0][0]
    assert by_model(item, WHO, EMPTY, lambda prompt: "no idea") is None


@pytest.mark.parametrize("source", SOURCES)
def test_the_rules_know_all_options_in_the_published_wording(source: str) -> None:
    items = load(official_data(source, "muma_tom"))
    who = persons(items)
    for item in items:
        pair = who[item.group]
        found = by_rules(item, pair, Episode((Person(pair.subject), Person(pair.other))))
        assert found is not None and list(found) == ["A", "B", "C"], item.item_id
        assert len(set(found.values())) == 3, item.item_id
