"""Strings, questions and answers are taken apart, or the field at fault is named."""

from __future__ import annotations

import pytest

from sally_anne.data.items import Option
from sally_anne.data.muma_tom import People, answer_label, cleaned, people, take_apart
from sally_anne.data.read import Field

OPTIONS = (Option("A", "a red hat."), Option("B", "a cup"), Option("C", "nothing"))


def field(value: object) -> Field:
    return Field(value, "questions.json, episode 7", "answers")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("  plain\n", "plain"),
        ("b'Ann\\'s hat\\n\\nis \"here\"'", 'Ann\'s hat\n\nis "here"'),
        ('b"Ann\'s hat\\t."', "Ann's hat\t."),
        # Some were cut together by hand: quotes and line breaks stand in them as they are.
        ("b'Ann's\nhat'", "Ann's\nhat"),
        ("b'caf\\xc3\\xa9 \\\\n'", "café \\n"),
        ("b'open", "b'open"),
        ("blue 'b'", "blue 'b'"),
    ],
)
def test_strings_are_cleaned(given: str, text: str) -> None:
    assert cleaned(field(given)) == text


def test_a_question_is_taken_apart() -> None:
    question, options, polarity = take_apart(
        field("Which is  LEAST\nlikely?\n A) one  two\nthree\nB)four\nC) A) five\n")
    )
    assert question == "Which is LEAST likely?"
    assert options == (
        Option("A", "one two three"),
        Option("B", "four"),
        Option("C", "A) five"),
    )
    assert polarity == "least"


@pytest.mark.parametrize("given", ["A) a red hat.\n", "A)  A Red   hat", "b'A) a red hat.'"])
def test_an_answer_has_label_and_text(given: str) -> None:
    assert answer_label(field(given), OPTIONS) == "A"


@pytest.mark.parametrize(
    "text",
    [
        "if Ann has been trying to hinder Bo from achieving his goal, which",
        "When giving information, Ann has been trying to prevent Bo from finding the hat",
        "When giving information, Ann was indifferent towards Bo's goals",
        "Ann believed that Bo placed the hat at his desired location: she moved it to help Bo.",
        "Ann believed that Bo wanted to place the hat inside the box: she moved it to help Bo.",
        "Ann doesn't know Bo's goal and moves the hat without thinking about what he wants.",
    ],
)
def test_people_are_named_by_the_wording(text: str) -> None:
    assert people([text, "which of the following statements is MOST likely?"]) == People(
        "Ann", "Bo"
    )
