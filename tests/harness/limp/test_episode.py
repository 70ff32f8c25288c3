"""Episodes are kept and read as JSON; the steps judged are one person's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sally_anne.core.errors import HarnessError, RecordError
from sally_anne.harness.limp import prompts
from sally_anne.harness.limp.episode import (
    Episode,
    Hypothesis,
    Person,
    Step,
    read_episodes,
    steps,
    to_json,
)
from tests.harness.limp.scripted import WHO

DEE = Person("Dee", ("walks in", "takes the hat"), ("It lies there.",))
CY = Person("Cy", ("leaves",), ("Where is it?",))
EPISODE = Episode((DEE, CY), ("There is a hat.",))
HYPOTHESIS = Hypothesis("a hat is there", "help Cy", "to find a hat")


def test_steps_are_utterances_then_actions() -> None:
    assert steps(DEE) == (
        Step("utterance", "It lies there."),
        Step("action", "walks in"),
        Step("action", "takes the hat", ("walks in",)),
    )


def test_utterances_are_judged_by_what_the_speaker_believes_and_was_asked() -> None:
    text = prompts.judge(steps(DEE)[0], HYPOTHESIS, WHO, EPISODE)
    for told in ("help Cy", "a hat is there", "to find a hat", 'Cy said: "Where is it?"'):
        assert told in text
    assert 'Then Dee said: "It lies there."' in text
    assert "leaves" not in text and "There is a hat." not in text and "walks in" not in text


def test_actions_are_judged_by_what_was_done_before() -> None:
    text = prompts.judge(steps(DEE)[2], HYPOTHESIS, WHO, EPISODE)
    order = ["There is a hat.", "Cy: leaves", "Dee: walks in", "Then Dee: takes the hat", "A) "]
    assert [text.index(told) for told in order] == sorted(text.index(told) for told in order)
    first = prompts.judge(steps(DEE)[1], HYPOTHESIS, WHO, EPISODE)
    assert "takes the hat" not in first


def test_open_variables_are_left_out() -> None:
    text = prompts.judge(steps(DEE)[1], Hypothesis("", "help Cy", ""), WHO, EPISODE)
    assert "believes" not in text and "thinks that" not in text and "help Cy" in text


def test_episodes_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "episodes.json"
    bare = {"people": {"Ann": {}, "Bo": {"actions": None}}}
    path.write_text(json.dumps({"7": to_json(EPISODE), "8": bare}))
    assert read_episodes(path) == {"7": EPISODE, "8": Episode((Person("Ann"), Person("Bo")))}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ([], "must be an object"),
        ({}, "field people is missing"),
        ({"people": {"Ann": {}}}, "field people must name two people, names 1"),
        ({"people": {"Ann": {}, "Bo": 3}}, "field people.Bo must be an object, is 3"),
        ({"people": {"Ann": {}, "Bo": {"actions": "x"}}}, "field people.Bo.actions must be a list"),
        (
            {"people": {"Ann": {}, "Bo": {"utterances": ["a", 4]}}},
            r"field people.Bo.utterances\[1\] must be a text, is 4",
        ),
        ({"people": {"Ann": {}, "Bo": {}}, "initial": [""]}, r"field initial\[0\] must be a text"),
    ],
)
def test_malformed_episodes_are_named(tmp_path: Path, entry: object, problem: str) -> None:
    path = tmp_path / "episodes.json"
    path.write_text(json.dumps({"7": entry}))
    with pytest.raises(RecordError, match=f"episodes.json, episode 7: {problem}"):
        read_episodes(path)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "episodes.json"
    path.write_text("[]")
    with pytest.raises(RecordError, match="must be an object with one entry an episode"):
        read_episodes(path)


def test_a_person_who_is_not_there() -> None:
    with pytest.raises(HarnessError, match="about Eve, the episode has Dee and Cy"):
        EPISODE.person("Eve")
