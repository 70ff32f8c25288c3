"""What LIMP reads: lists in any form, episodes from text and film, options as hypotheses."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Context, Question
from sally_anne.data.muma_tom import load
from sally_anne.data.read import read_json
from sally_anne.harness.limp import (
    Episode,
    Hypothesis,
    Person,
    actor_of,
    answer,
    by_rules,
    gather,
    judge_steps,
    persons,
    prompts_of,
    read_hypotheses,
    read_list,
)
from sally_anne.harness.planning import posterior_of_judgements, score, summarise
from tests.harness.scripted import WHO, ScriptedLikelihood, ScriptedWriter, goal, question, social
from tests.shared_data import SOURCES, official_data

DEE = Person(("walks in", "takes the hat"), ("It lies there.",))
CY = Person(("leaves",), ("Where is it?",))
EPISODE = Episode({"Dee": DEE, "Cy": CY}, ("There is a hat.",))
HYPOTHESIS = Hypothesis("a hat is there", "help Cy", "to find a hat")


def test_utterances_are_judged_by_what_the_speaker_believes_and_was_asked() -> None:
    text = judge_steps(HYPOTHESIS, WHO, EPISODE)[0]
    for part in ("help Cy", "a hat is there", "to find a hat", 'Cy said: "Where is it?"'):
        assert part in text
    assert 'Then Dee said: "It lies there."' in text
    assert "leaves" not in text and "There is a hat." not in text and "walks in" not in text
    bare = judge_steps(HYPOTHESIS, WHO, EPISODE, utterance_goal=False)
    assert "to find a hat" not in bare[0] and "to find a hat" in bare[1]


def test_actions_are_judged_by_what_was_done_before() -> None:
    _, first, text = judge_steps(HYPOTHESIS, WHO, EPISODE)
    order = ["There is a hat.", "Cy: leaves", "Dee: walks in", "Then Dee: takes the hat", "A) "]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "takes the hat" not in first


def test_prompts_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "likely.txt").write_text("{social_goal};{belief};{believed_goal};{said};{step}?")
    (tmp_path / "film.txt").write_text("{name}, {known}: {account}")
    prompts = prompts_of(tmp_path)
    said, walks, _ = judge_steps(HYPOTHESIS, WHO, EPISODE, False, prompts)
    assert said == 'help Cy;a hat is there;;Where is it?;Dee said: "It lies there."?'
    assert walks == "help Cy;a hat is there;to find a hat;;Dee: walks in?"
    writer = ScriptedWriter({"Cy, Cy: Have": '["sits"]', INITIAL: "none"})
    assert gather(social(), WHO, writer, shown("It."), prompts).people["Cy"].actions == ("sits",)
    (tmp_path / "film.txt").write_text("{what}")
    with pytest.raises(HarnessError, match="film.txt: {what}"):
        prompts_of(tmp_path)


INITIAL = "before anybody acted"


def shown(account: Any) -> Callable[[Question, str], Any]:
    return lambda item, name: account


def test_talk_and_a_watched_film() -> None:
    writer = ScriptedWriter(
        {
            "List what Cy does": '["walks to the bed", "takes the hat from the box"]',
            INITIAL: '["There is a hat in the box."]',
        }
    )
    found = gather(social(), WHO, writer, shown("Cy walks to the bed and then to the box."))
    dee = Person(utterances=("It lies on the bed.",))
    cy = Person(("walks to the bed", "takes the hat from the box"), ("Have you seen a hat?",))
    assert found == Episode({"Dee": dee, "Cy": cy}, ("There is a hat in the box.",))
    assert "Cy walks to the bed and then" in writer.asked[0][0]
    # Things that cannot be made out are named by what was said.
    assert "Have you seen a hat?" in writer.asked[0][0]
    assert "- takes the hat from the box" in writer.asked[1][0]


def test_the_film_shows_whom_the_text_does_not_tell_of() -> None:
    writer = ScriptedWriter(
        {
            "List what Dee does": "- takes the pear\n- puts the pear inside the oven",
            "List what Cy does": "- puts the pear on the shelf",
            INITIAL: "[]",
        }
    )
    found = gather(goal(), WHO, writer, shown("Cy puts something on the shelf."))
    assert found.people["Dee"].actions == ("takes the pear", "puts the pear inside the oven")
    assert found.people["Cy"].actions == ("puts the pear on the shelf",)
    assert found.initial == ()
    swapped = replace(goal(), context=Context(actions="Later Cy came; Dee had left."))
    writer = ScriptedWriter({"List what Cy does": '["comes"]', INITIAL: "none"})
    found = gather(swapped, WHO, writer, shown(("takes the pear",)))
    assert found.people["Dee"].actions == ("takes the pear",)
    assert found.people["Cy"].actions == ("comes",)


@pytest.mark.parametrize(("source", "count"), [("made", 2), ("published", 15)])
def test_whose_actions_the_texts_tell(source: str, count: int) -> None:
    """The published requests to describe a film name the other person."""
    folder = official_data(source, "muma_tom")
    items = {item.group: item for item in load(folder)}
    who = persons(list(items.values()))
    entries = read_json(folder / "actions_extracted.json").value
    silent = [item for item in items.values() if item.context.actions]
    assert len(silent) == count
    for item in silent:
        actor = actor_of(item.context.actions, who[item.group], item.group)
        (filmed,) = set(who[item.group]) - {actor}
        assert f"{filmed}, provide" in entries[item.group]["prompt"]


EMPTY = Episode({"Dee": Person(), "Cy": Person()})


def episode(*actions: str, initial: tuple[str, ...] = ()) -> Episode:
    return Episode({"Cy": Person(actions), "Dee": Person()}, initial)


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
    known = episode(initial=("There is a hat in the box.", "There is a hatpin here.", "A cup."))
    found = by_rules(social(), WHO, known)
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
    model = ScriptedLikelihood(lambda prompt: (0.5, 0.5))
    assert by_rules(item, WHO, EMPTY) is None
    acting = Episode({"Dee": Person(("takes a pear",)), "Cy": Person()})
    found = answer(item, WHO, acting, model, writer)
    assert {k: mind["social_goal"] for k, mind in found["hypotheses"].items()} == {
        x: x * 2 for x in "ABC"
    }
    assert "B. To hinder." in writer.asked[0][0] and "- takes a pear" in writer.asked[0][0]
    # As the paper has it, a wording that the rules know is read by the model, too.
    writer = ScriptedWriter({"For each option, tell": "no idea"})
    found = answer(social(), WHO, acting, model, writer, latents="model")
    assert found == {"problem": "the options' wording was not understood"}


@pytest.mark.parametrize("source", SOURCES)
def test_the_rules_know_all_options_in_the_published_wording(source: str) -> None:
    items = load(official_data(source, "muma_tom"))
    who = persons(items)
    for item in items:
        pair = who[item.group]
        found = by_rules(item, pair, Episode({pair.subject: Person(), pair.other: Person()}))
        assert found is not None and list(found) == ["A", "B", "C"], item.item_id
        assert len(set(found.values())) == 3, item.item_id


@pytest.mark.parametrize(
    "reply",
    [
        '["walks to the bed", "takes the hat"]',
        'Sure!\n```json\n["walks to the bed",\n "takes the hat"]\n```\nDone.',
        "Actions: ['walks to the bed', 'takes the hat']",
        "He [maybe] does: [\"walks to the bed\", 'takes the hat',]",
        '- "walks to the bed"\n• takes the hat\n',
        "Sure!\n(a) walks to the bed\n(b) takes the hat",
        "Here they are:\n1. walks to the bed\n2) takes the hat",
        "walks to the bed\ntakes the hat\n",
        "walks to the bed; takes the hat",
        '["walks to the bed", "", "None", "takes the hat", "takes  the hat"]',
    ],
)
def test_lists_of_all_forms(reply: str) -> None:
    assert read_list(reply) == ("walks to the bed", "takes the hat")
    assert read_list('["opens the box [1]", "sits"]') == ("opens the box [1]", "sits")
    assert read_list("1. Walks. Sits.") == ("Walks. Sits.",)
    assert read_list('["He says \\"no\\"", "a\\/b \\ud83d\\ude00"]') == ('He says "no"', "a/b 😀")


A, B = Hypothesis("a hat is there", "help Cy", ""), Hypothesis("", "", "the hat")


@pytest.mark.parametrize(
    "reply",
    [
        '{"A": {"belief": "a hat is there", "social_goal": "help Cy", "believed_goal": "none"},'
        ' "B": {"believed_goal": "the hat"}}',
        'So: {"Option a.": {"Belief": "a hat is there", "Social goal": "help\\n\\u0043y"},'
        ' "b": {"Believed Goal": "the  hat", "belief": null}, "C": 1}',
        "A: Belief: a hat is there; Social goal: help Cy; Believed Goal: . B: Belief: ; "
        "Social goal: none; Believed Goal: the hat.",
        "{'(A)': {'belief': 'a hat is there', 'social_goal': 'help Cy'}, "
        "'B': {'believed_goal': 'the hat'}}",
    ],
)
def test_hypotheses_of_all_forms(reply: str) -> None:
    assert read_hypotheses(reply, ("A", "B")) == {"A": A, "B": B}
    assert read_hypotheses('{"A": {"belief": ["a hat"], "social_goal": "help"}}', ("A",)) is None


PIECES = ("[", "]", "{", "}", '"', "'", ",", ":", "A", "belief", "\\", "\n", "- ", "1.", "\0", "né")


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=40))
def test_any_reply_is_read(reply: str) -> None:
    assert all(isinstance(text, str) and text for text in read_list(reply))
    assert read_hypotheses(reply, ("A",)) is None or reply


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


def answered(
    items: list[Question], model: ScriptedLikelihood, episodes: dict[str, Episode] = EPISODES
) -> pd.DataFrame:
    found = {
        item.item_id: answer(item, WHO, episodes[item.group], model, ScriptedWriter({"": "?"}))
        for item in items
    }
    return score(items, found, posterior_of_judgements)


def scores(row: pd.Series) -> dict[str, float]:
    cells = (cell.split(": ") for cell in row["log_scores"].split(", "))
    return {label: float(value) for label, value in cells}


def test_known_posteriors() -> None:
    items = [social(), social("least", "A", "2"), goal(), goal("least", "B", "2")]
    model = ScriptedLikelihood(by_hand)
    table = answered(items, model)
    assert len(model.asked) == 2 * 3 * 1 + 2 * 3 * 3  # questions, options, steps

    # One utterance. Shares: A .1/.4 = .25, B .6/.8 = .75, C .5; together 1.5.
    talk = {k: math.exp(v) for k, v in scores(table.iloc[0]).items()}
    assert talk == pytest.approx({"A": 1 / 6, "B": 1 / 2, "C": 1 / 3})
    # Three actions. A: .8 * .5 * .9 = .36; B: .2 * .5 * .1 = .01; C: 1/8. Together .495.
    moves = {k: math.exp(v) for k, v in scores(table.iloc[2]).items()}
    assert moves == pytest.approx({"A": 0.36 / 0.495, "B": 0.01 / 0.495, "C": 0.125 / 0.495})
    assert list(table["log_label"]) == list(table["official_label"]) == ["B", "A", "A", "B"]
    assert table["log_correct"].all() and table["official_correct"].all() and table["agree"].all()
    assert list(table["steps"]) == [1, 1, 3, 3]


def test_questions_without_an_answer_are_counted() -> None:
    odd = question(
        "Dee doesn't know Cy's plan. Which is MOST likely?", ["One", "Two", "Three"], number="3"
    )
    silent = Episode({"Dee": Person(), "Cy": Person(("leaves",))})
    model = ScriptedLikelihood(by_hand)
    table = answered([odd, social(), goal()], model, {"7": TALK, "9": silent})
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


def test_what_is_the_same_for_two_options_is_asked_once() -> None:
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
    table = answered([item], model, {"7": TALK})
    assert len(model.asked) == 2
    found = scores(table.iloc[0])
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
def test_an_ideal_judge_is_right(source: str) -> None:
    writer = ScriptedWriter({"": "[]"})
    every = load(official_data(source, "muma_tom"))
    items = [item for item in every if set(item.tags["type"]) <= TYPES[source]]
    who = persons(items)
    answers, did = {}, {item.group: did for item in items if (did := moves(item))}
    for item in items:
        subject, other = who[item.group]
        if item.context.dialogue:
            told = gather(item, who[item.group], writer, shown(("walks about",)))
        else:
            told = Episode({subject: did.get(item.group, Person()), other: Person()})
        model = ScriptedLikelihood(judge)
        answers[item.item_id] = answer(item, who[item.group], told, model, writer)
    table = score(items, answers, posterior_of_judgements)
    assert (table["problem"] == "").all()
    right = table.groupby("type")["log_correct"].mean()
    assert right["belief"] == 1.0
    # Of the published goals six in 300 have a key that does not go with what their options say.
    assert (right >= 0.98).all(), table[~table["log_correct"]]["item_id"].tolist()
