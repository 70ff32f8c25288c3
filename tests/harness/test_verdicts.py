"""A judge's prompt, and reading what it says."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import HarnessError
from sally_anne.harness.judge import Asked, Judge, Verdict, judge_prompt, read_verdict


class Scripted(Judge):
    """Finds every reply right."""

    about = {}

    def __init__(self, *words) -> None:
        super().__init__(*words)
        self.seen: list[list[str]] = []

    def ask(self, questions: list[Asked]) -> list[Verdict]:
        self.seen.append([one.reply for one in questions])
        return [Verdict(True, 0.9, "TRUE")] * len(questions)


@pytest.mark.parametrize(
    "text",
    [
        "TRUE",
        "true",
        " True. Both hold an umbrella.",
        "**TRUE** - the same thing",
        "__TRUE__",
        '"TRUE", since they agree',
        "`TRUE`\nFALSE would be too strict.",
        "Verdict: TRUE",
        "**Verdict:** *True*",
        "The final answer is: TRUE",
        "My judgment: TRUE. It is not false.",
        "<think>FALSE? No.</think>\n\nTRUE",
        "TRUE and to the point",
        "TRUE, false claims are not in it",
        "TRUE\u2014they agree",
    ],
)
def test_right(text: str) -> None:
    assert read_verdict(text) is True
    swapped = text.replace("TRUE", "#").replace("True", "#").replace("true", "#")
    swapped = swapped.replace("FALSE", "TRUE").replace("false", "true").replace("#", "FALSE")
    assert read_verdict(swapped) is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "TRUE or FALSE",
        "TRUE/FALSE: hard to say",
        "**FALSE** or **TRUE**",
        "Not true.",
        "untrue",
        "Truely",
        "true-ish",
        "I think it is TRUE",
        "<think>TRUE",
        "TRUEFALSE",
        "1",
        "yes",
    ],
)
def test_unreadable(text: str) -> None:
    assert read_verdict(text) is None


def test_other_words() -> None:
    assert read_verdict("Yes! The same.", ("yes", "no")) is True
    assert read_verdict("No.", ("yes", "no")) is False
    assert read_verdict("Nobody", ("yes", "no")) is None
    assert read_verdict("c++ it is", ("c++", "c--")) is True


@settings(max_examples=300, deadline=None)
@given(st.text())
def test_any_text_is_read_or_not(text: str) -> None:
    assert read_verdict(text) in (True, False, None)
    assert read_verdict("FALSE\n" + text) is False


def test_long_beginnings_take_no_long_time() -> None:
    began = time.process_time()
    assert read_verdict("the answer is " * 20_000 + "unknown") is None
    assert read_verdict("*" * 200_000) is None
    assert time.process_time() - began < 2


def test_the_prompt_shows_all_parts() -> None:
    prompt = judge_prompt(Asked("Who {falls}?", "The\n\nman", "A man."), ("JA", "NEIN"))
    assert "Question: Who {falls}?" in prompt
    assert "Answer to judge: The man\n" in prompt and "Known answer: A man.\n" in prompt
    assert "JA if" in prompt and "NEIN if" in prompt and "TRUE" not in prompt
    assert Scripted(("JA", "NEIN")).prompt_hash != Scripted().prompt_hash


def test_no_verdict_without_a_reference() -> None:
    with pytest.raises(HarnessError, match="without a reference: 'Who\\?'"):
        judge_prompt(Asked("Who?", "He.", " "))


@pytest.mark.parametrize("words", [("", "no"), ("yes", " YES ")])
def test_words_that_say_nothing(words: tuple[str, str]) -> None:
    with pytest.raises(HarnessError, match="two different words"):
        Scripted(words)


def test_empty_replies_are_wrong_without_asking() -> None:
    judge = Scripted()
    asked = [Asked("q", reply, "r") for reply in ("", "a", " \n", "b")]
    verdicts = judge.judge(asked)
    assert [v.right for v in verdicts] == [False, True, False, True]
    assert [v.text for v in verdicts] == ["", "TRUE", "", "TRUE"]
    assert not any(v.invalid for v in verdicts)
    assert judge.seen == [["a", "b"]]
    assert judge.judge(asked[:1])[0].probability is None and len(judge.seen) == 1
