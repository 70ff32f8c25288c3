"""Lists and objects are found in whatever a model writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.harness.limp.episode import Hypothesis
from sally_anne.harness.limp.prompts import MOST, read_hypotheses, read_list


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


@pytest.mark.parametrize("reply", ["", "[]", "None.", "nothing", " \n", '["n/a"]', "```\n```"])
def test_empty_lists(reply: str) -> None:
    assert read_list(reply) == ()


def test_long_replies_are_cut() -> None:
    assert len(read_list("\n".join(f"- step {i}" for i in range(500)))) == MOST


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


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I cannot tell.",
        '{"A": {"belief": "x"}}',
        '{"A": {"belief": "x"}, "B": {}}',
        '{"A": {"belief": "x"}, "B": {"belief": 3}}',
        '{"A": "x", "B": "y"}',
    ],
)
def test_hypotheses_that_are_not_all_there(reply: str) -> None:
    assert read_hypotheses(reply, ("A", "B")) is None


PIECES = ("[", "]", "{", "}", '"', "'", ",", ":", "A", "belief", "\\", "\n", "- ", "1.", "\0", "né")


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=40))
def test_any_reply_is_read(reply: str) -> None:
    assert all(isinstance(text, str) and text for text in read_list(reply))
    assert read_hypotheses(reply, ("A",)) is None or reply


@pytest.mark.parametrize("bracket", "[{")
def test_thousands_of_brackets(bracket: str) -> None:
    reply = bracket * 20_000
    assert isinstance(read_list(reply), tuple)
    assert read_hypotheses(reply, ("A",)) is None
