"""Episodes are put together from text, talk and film."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sally_anne.core.errors import HarnessError, RecordError
from sally_anne.data.fields import Field
from sally_anne.data.items import BenchmarkItem, Context
from sally_anne.data.muma_tom import load
from sally_anne.harness.limp.episode import Episode, Person, read_entries
from sally_anne.harness.limp.pipeline import persons
from sally_anne.harness.limp.understanding import Sources, account, actor_of, gather
from tests.harness.limp.scripted import WHO, ScriptedWriter, goal, social
from tests.shared_data import official_data

INITIAL = "before anybody acted"


def no_film(item: BenchmarkItem) -> np.ndarray:
    raise AssertionError("the film was asked for")


def film(item: BenchmarkItem) -> np.ndarray:
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
    dee = Person("Dee", utterances=("It lies on the bed.",))
    cy = Person("Cy", ("walks to the bed", "takes the hat from the box"), ("Have you seen a hat?",))
    assert found == Episode((dee, cy), ("There is a hat in the box.",))
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


def test_parsed_episodes_are_taken_as_they_are() -> None:
    episode = Episode((Person("Cy"), Person("Dee", ("leaves",))))
    sources = Sources(ScriptedWriter({}), no_film, None, {"9": episode})
    assert gather(goal(), WHO, sources) == episode
    wrong = replace(sources, parsed={"9": Episode((Person("Cy"), Person("Eve")))})
    with pytest.raises(HarnessError, match="--parsed, episode 9: .* about Dee, .* has Cy and Eve"):
        gather(goal(), WHO, wrong)


def test_a_text_about_nobody_known() -> None:
    with pytest.raises(HarnessError, match="episode 9: its text names neither Dee nor Cy"):
        actor_of("Deer came by.", WHO, "9")


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


@pytest.mark.parametrize(("source", "count", "one"), [("made", 4, "7"), ("published", 40, "42")])
def test_accounts_in_the_published_layout_are_empty(source: str, count: int, one: str) -> None:
    entries = read_entries(official_data(source, "muma_tom", "actions_extracted.json"))
    assert len(entries) == count
    problem = rf"episode {one}: field action is empty: .* prompts alone"
    with pytest.raises(RecordError, match=problem):
        account(entries[one])


@pytest.mark.parametrize(
    ("entry", "found"),
    [({"action": " walks\n"}, "walks"), ({"action": ["walks ", "sits"]}, ("walks", "sits"))],
)
def test_accounts(entry: object, found: object) -> None:
    assert account(Field(entry, "actions.json, episode 7")) == found


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, "field action is missing"),
        ("walks", "must be an object"),
        ({"action": []}, "field action is empty"),
        ({"action": "  "}, "field action must be a text"),
        ({"action": ["a", None]}, r"field action\[1\] must be a text"),
    ],
)
def test_malformed_accounts_are_named(entry: object, problem: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=f"actions.json, episode 7: {problem}"):
        account(Field(entry, "actions.json, episode 7"))
