"""What LIMP reads: lists in any form, episodes from text and film, options as hypotheses."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.core.folder import Journal
from sally_anne.data.items import Context, Question
from sally_anne.data.muma_tom import load
from sally_anne.harness.limp import (
    Episode,
    Hypothesis,
    Person,
    Sources,
    Step,
    actor_of,
    agreement,
    agreement_shares,
    by_model,
    by_rules,
    from_json,
    gather,
    gather_all,
    judge_all,
    judge_step,
    persons,
    read_entries,
    read_hypotheses,
    read_list,
    steps,
    to_json,
)
from tests.harness.scripted import (
    WHO,
    ScriptedLikelihood,
    ScriptedWriter,
    goal,
    question,
    social,
)
from tests.shared_data import SOURCES, official_data

DEE = Person(("walks in", "takes the hat"), ("It lies there.",))

CY = Person(("leaves",), ("Where is it?",))

EPISODE = Episode({"Dee": DEE, "Cy": CY}, ("There is a hat.",))

HYPOTHESIS = Hypothesis("a hat is there", "help Cy", "to find a hat")


def test_steps_are_utterances_then_actions() -> None:
    assert steps(DEE) == (
        Step("utterance", "It lies there."),
        Step("action", "walks in"),
        Step("action", "takes the hat", ("walks in",)),
    )


def test_utterances_are_judged_by_what_the_speaker_believes_and_was_asked() -> None:
    text = judge_step(steps(DEE)[0], HYPOTHESIS, WHO, EPISODE)
    for part in ("help Cy", "a hat is there", "to find a hat", 'Cy said: "Where is it?"'):
        assert part in text
    assert 'Then Dee said: "It lies there."' in text
    assert "leaves" not in text and "There is a hat." not in text and "walks in" not in text


def test_actions_are_judged_by_what_was_done_before() -> None:
    text = judge_step(steps(DEE)[2], HYPOTHESIS, WHO, EPISODE)
    order = ["There is a hat.", "Cy: leaves", "Dee: walks in", "Then Dee: takes the hat", "A) "]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    first = judge_step(steps(DEE)[1], HYPOTHESIS, WHO, EPISODE)
    assert "takes the hat" not in first


def test_episodes_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "episodes.json"
    bare = {"people": {"Ann": {}, "Bo": {"actions": None}}}
    path.write_text(json.dumps({"7": to_json(EPISODE), "8": bare}))
    read = {number: from_json(entry) for number, entry in read_entries(path).items()}
    assert read == {"7": EPISODE, "8": Episode({"Ann": Person(), "Bo": Person()})}


INITIAL = "before anybody acted"


def no_film(item: Question) -> np.ndarray:
    raise AssertionError("the film was asked for")


def film(item: Question) -> np.ndarray:
    return np.zeros((2, 28, 28, 3), np.uint8)


def test_talk_and_a_watched_film() -> None:
    writer = ScriptedWriter(
        {
            "frames of a film": "Cy walks to the bed and then to the box.",
            "List what Cy does": '["walks to the bed", "takes the hat from the box"]',
            INITIAL: '["There is a hat in the box."]',
        }
    )
    found = gather(social(), WHO, Sources(writer, film))
    dee = Person(utterances=("It lies on the bed.",))
    cy = Person(("walks to the bed", "takes the hat from the box"), ("Have you seen a hat?",))
    assert found == Episode({"Dee": dee, "Cy": cy}, ("There is a hat in the box.",))
    assert [filmed for _, filmed in writer.asked] == [True, False, False]
    assert "Cy walks to the bed and then" in writer.asked[1][0]
    # Things that cannot be made out are named by what was said.
    assert "Have you seen a hat?" in writer.asked[1][0]
    assert "- takes the hat from the box" in writer.asked[2][0]


def test_the_film_shows_whom_the_text_does_not_tell_of() -> None:
    writer = ScriptedWriter(
        {
            "List what Dee does": "- takes the pear\n- puts the pear inside the oven",
            "List what Cy does": "- puts the pear on the shelf",
            INITIAL: "[]",
        }
    )
    sources = Sources(writer, no_film, {"9": "Cy puts something on the shelf."})
    found = gather(goal(), WHO, sources)
    assert found.person("Dee").actions == ("takes the pear", "puts the pear inside the oven")
    assert found.person("Cy").actions == ("puts the pear on the shelf",)
    assert found.initial == ()
    swapped = replace(goal(), context=Context(actions="Later Cy came; Dee had left."))
    writer = ScriptedWriter({"List what Cy does": '["comes"]', INITIAL: "none"})
    found = gather(swapped, WHO, Sources(writer, no_film, {"9": ("takes the pear",)}))
    assert found.person("Dee").actions == ("takes the pear",)
    assert found.person("Cy").actions == ("comes",)


@pytest.mark.parametrize(("source", "count"), [("made", 2), ("published", 15)])
def test_whose_actions_the_texts_tell(source: str, count: int) -> None:
    """The published requests to describe a film name the other person."""
    folder = official_data(source, "muma_tom")
    items = {item.group: item for item in load(folder)}
    who = persons(list(items.values()))
    entries = read_entries(folder / "actions_extracted.json")
    silent = [item for item in items.values() if item.context.actions]
    assert len(silent) == count
    for item in silent:
        actor = actor_of(item.context.actions, who[item.group], item.group)
        filmed = (
            who[item.group].other if actor == who[item.group].subject else who[item.group].subject
        )
        request = entries[item.group].get("prompt").text()
        assert f"{filmed}, provide" in request


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
        "- walks to the bed\n- takes the hat\n",
        "Here they are:\n1. walks to the bed\n2) takes the hat",
        "walks to the bed\ntakes the hat\n",
        "walks to the bed; takes the hat",
        '["walks to the bed", "", "None", "takes the hat", "takes  the hat"]',
    ],
)
def test_lists_of_all_forms(reply: str) -> None:
    assert read_list(reply) == ("walks to the bed", "takes the hat")


A, B = Hypothesis("a hat is there", "help Cy", ""), Hypothesis("", "", "the hat")


@pytest.mark.parametrize(
    "reply",
    [
        '{"A": {"belief": "a hat is there", "social_goal": "help Cy", "believed_goal": "none"},'
        ' "B": {"believed_goal": "the hat"}}',
        'So: {"Option a.": {"Belief": "a hat is there", "Social goal": "help Cy"},'
        ' "b": {"Believed Goal": "the  hat", "belief": null}, "C": 1}',
        "{'A': {'belief': 'a hat is there', 'social_goal': 'help Cy'}, "
        "'B': {'believed_goal': 'the hat'}}",
    ],
)
def test_hypotheses_of_all_forms(reply: str) -> None:
    assert read_hypotheses(reply, ("A", "B")) == {"A": A, "B": B}


PIECES = ("[", "]", "{", "}", '"', "'", ",", ":", "A", "belief", "\\", "\n", "- ", "1.", "\0", "né")


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=40))
def test_any_reply_is_read(reply: str) -> None:
    assert all(isinstance(text, str) and text for text in read_list(reply))
    assert read_hypotheses(reply, ("A",)) is None or reply


HAT = "There is a hat in the box."

TALK = Episode({"Dee": Person((), ("It lies on the bed.",)), "Cy": Person((), ("Hat?",))}, (HAT,))

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
        return judge_all([social()], episodes, sources, model, journal, **forms), model


def test_the_model_s_latents_are_judged_and_compared(tmp_path: Path) -> None:
    (kept,), model = answered(tmp_path, latents("a hat in the box"), latents="model")
    assert kept["hypotheses"]["B"]["social_goal"] == "She hinders Cy"
    assert kept["rules"]["B"]["social_goal"] == "hinder Cy"
    assert all("believes: a hat in the box" in prompt for prompt in model.asked)
    found = [agreement(kept)]
    assert found == [{"belief": True, "social_goal": True}]
    shares = agreement_shares([*found, {"belief": False, "social_goal": True}, None])
    assert shares == {"n": 2, "all": 0.5, "belief": 0.5, "social_goal": 1.0}
    assert agreement_shares([None]) == {"n": 0}


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
    alike = agreement({"rules": {"A": asdict(rule)}, "hypotheses": {"A": asdict(read)}})
    assert alike and list(alike.values()) == [found]


@pytest.mark.parametrize("with_goal", [True, False])
def test_utterances_with_and_without_the_goal_that_is_believed(with_goal: bool) -> None:
    mind = Hypothesis("a hat", "help Cy", "to wear a hat")
    (step,) = steps(TALK.person("Dee"))
    assert ("to wear a hat" in judge_step(step, mind, WHO, TALK, with_goal)) is with_goal
    acting = Episode({"Dee": Person(("leaves",)), "Cy": Person()})
    (step,) = steps(acting.person("Dee"))
    assert "to wear a hat" in judge_step(step, mind, WHO, acting, with_goal)
