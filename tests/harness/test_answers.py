"""Which option and which words are read from a reply."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Option
from sally_anne.harness.answers import (
    READERS,
    Reader,
    _outer,
    _text_mentions,
    answers_all,
    read_answer,
    read_words,
)

ROOMS = (Option("A", "red"), Option("B", "purple"))
COLOURS = ("red", "green", "blue", "yellow", "purple", "white")


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ('{"answer": "A"}', "A"),
        ('{"answer": " b "}', "B"),
        ('{"answer": "Purple"}', "B"),
        ('Sure!\n```json\n{"reason": "red or purple", "answer": "purple"}\n```', "B"),
        ('{"answer": "red"} and again {"answer": "A"}', "A"),
        ('{broken {"answer": "A"}', "A"),
        ('{"Answer": "A"}', "A"),
    ],
)
def test_a_json_answer_is_official(reply: str, label: str) -> None:
    assert read_answer(reply, ROOMS, "official") == label
    assert read_answer(reply, ROOMS, "robust") == label


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "A",
        "red",
        '{"answer": "C"}',
        '{"answer": "red room"}',
        '{"answer": ["A"]}',
        '{"answer": 1}',
        '{"answer": null}',
        '{"choice": "A"}',
        '{"result": {"answer": "A"}}',
        '{"answer": "A"',
        "{'answer': 'A'}",
        '["A"]',
        '{"answer": "A"} or {"answer": "B"}',
        '{"answer": "A"} or {"answer": "?"}',
    ],
)
def test_all_else_is_officially_invalid(reply: str) -> None:
    assert read_answer(reply, ROOMS, "official") is None


def test_a_json_answer_that_is_one_label_and_another_text_is_invalid() -> None:
    crossed = (Option("A", "B"), Option("B", "A"))
    assert read_answer('{"answer": "A"}', crossed, "official") is None
    assert read_answer("Answer: A", crossed, "robust") is None


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        # Labels.
        ("A", "A"),
        ("b", "B"),
        ("(a)", "A"),
        ("a.", "A"),
        ("B)", "B"),
        ("**B**", "B"),
        ("A.\n", "A"),
        ("a) red", "A"),
        ("B. purple", "B"),
        ("B, because it saw nothing.", "B"),
        ("I would say (b).", "B"),
        ("Answer: B", "B"),
        ("answer is a", "A"),
        ("The answer is: (A).", "A"),
        ("The answer would be b because of the door", "B"),
        ("Answer:\n\nB", "B"),
        ("option b", "B"),
        ("I choose option A.", "A"),
        ('Option "B" is right', "B"),
        ("Answer: option A", "A"),
        ("It thought about the door.\nB", "B"),
        ("{'answer': 'B'}", "B"),
        ('{"answer": "(B) purple"}', "B"),
        # Texts.
        ("red", "A"),
        ("The PURPLE room.", "B"),
        ("In the yellow agent's mind it is a red room.", "A"),
        ("A purple room", "B"),
        ("Answer: a purple room", "B"),
        ('{"answer": "red room", "reason": "not seen leaving for purple"}', "A"),
        # Several options and a cue.
        ("It went from red to purple. The answer is red.", "A"),
        ("The answer is red. No: it saw all, so the answer is purple", "B"),
        ("A. red\nB. purple\nAnswer: B", "B"),
        ("Answer: (B) because the red door is closed", "B"),
        ("Answer: A\nPurple is where it really is.", "A"),
        ("Answer: red. Purple is where it really is.", "A"),
        # Negations.
        ("not red, but purple", "B"),
        ("It is in the purple room rather than in the red room.", "B"),
        ("The answer is not in the red room; it is purple", "B"),
        ("It isn't purple; red", "A"),
    ],
)
def test_the_robust_reader_reads_what_people_would(reply: str, label: str) -> None:
    assert read_answer(reply, ROOMS, "robust") == label


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I do not know.",
        "a agent walks into a room",
        "It is in a room.",
        "An answer is a thing",
        "Answer: a room that I cannot see",
        "the option a person has",
        "green",
        "infrared",
        "red or purple",
        "A or B",
        "A, B",
        "A/B",
        "Answer: A or B",
        "Answer: A, B",
        "The answer is red or purple.",
        "The answer is either red/purple",
        "Answer: A or purple",
        "Answer: B. red",
        "A. red\nB. purple",
        "From red to purple. The answer is hard to tell.",
        "The answer is unclear. It may be red. It may be purple.",
        "It is neither red nor purple.",
        "not red",
        '{"answer": "?"}',
        "\ud800",
    ],
)
def test_the_robust_reader_does_not_guess(reply: str) -> None:
    assert read_answer(reply, ROOMS, "robust") is None


def test_a_mention_inside_a_longer_option_does_not_count() -> None:
    options = (Option("A", "the box"), Option("B", "the box in the red  room"), Option("C", "room"))
    assert read_answer("It is the box in the red room!", options, "robust") == "B"
    assert read_answer("It is the box.", options, "robust") == "A"
    assert read_answer("The box, not the box in the red room.", options, "robust") == "A"
    assert read_answer("The box or the box in the red room.", options, "robust") is None


def test_labels_may_be_words_or_numbers() -> None:
    same = tuple(Option(o.text, o.text) for o in ROOMS)
    assert read_answer("Answer: Red", same, "robust") == "red"
    assert read_answer("Answer: red. Purple is where it is.", same, "robust") == "red"
    assert read_answer("Answer: red or purple.", same, "robust") is None
    numbered = (Option("1", "red"), Option("2", "purple"))
    assert read_answer("Answer: 2", numbered, "robust") == "2"
    assert read_answer("The answer is 2 agents", numbered, "robust") is None


def test_special_characters_in_options_are_taken_as_they_are() -> None:
    options = (Option("(i", "c++ (new)"), Option("*", "a|b"))
    assert read_answer("It is C++ (new).", options, "robust") == "(i"
    assert read_answer("a|b", options, "robust") == "*"
    assert read_answer("a", options, "robust") is None


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "must be given"),
        ((Option("A", "red"), Option("a", "blue")), "'a' stands twice"),
        ((Option(" ", "red"),), "not be empty"),
        ((Option("A", ""),), "not be empty"),
    ],
)
def test_unusable_options_are_refused(options, message: str, reader) -> None:
    with pytest.raises(HarnessError, match=message):
        read_answer("A", options, reader)


def test_an_unknown_reader_is_refused() -> None:
    with pytest.raises(HarnessError, match="choose from official, robust"):
        read_answer("A", ROOMS, "kind")  # type: ignore[arg-type]


# Replies made of the pieces that the readers look for.
PIECES = (
    ["A", "b", "(a)", "B.", "red", "Purple", "red room", "green", "answer", "Answer:", "answer is"]
    + ["option", "or", "and", "not", "the", ",", ".", "\n", "/", '"', "{", "}", "because", "is"]
    + ['{"answer": "A"}', '{"answer": "purple"}', '{"answer": ["red", "green"]}', "```json\n"]
)
REPLIES = st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join)
OPTIONS = (*ROOMS, Option("C", "red room"))


@settings(deadline=None)
@given(REPLIES | st.text(), st.permutations(OPTIONS), st.sampled_from(READERS))
def test_the_order_of_the_options_does_not_matter(reply, shuffled, reader) -> None:
    assert read_answer(reply, shuffled, reader) == read_answer(reply, OPTIONS, reader)


@settings(deadline=None)
@given(REPLIES, st.sampled_from(READERS))
def test_case_does_not_matter(reply: str, reader) -> None:
    expected = read_answer(reply, OPTIONS, reader)
    assert read_answer(reply.upper(), OPTIONS, reader) == expected
    assert read_answer(reply.lower(), OPTIONS, reader) == expected
    lowered = [Option(o.label.lower(), o.text.upper()) for o in OPTIONS]
    assert (read_answer(reply, lowered, reader) or "none").upper() == (expected or "none").upper()
    assert read_words(reply.upper(), COLOURS, reader) == read_words(reply, COLOURS, reader)


@settings(deadline=None)
@given(REPLIES | st.text())
def test_what_is_official_is_robust(reply: str) -> None:
    official = read_answer(reply, OPTIONS, "official")
    assert official in (None, read_answer(reply, OPTIONS, "robust"))
    words = read_words(reply, COLOURS, "official")
    assert words in (frozenset(), read_words(reply, COLOURS, "robust"))


@settings(deadline=None)
@given(st.sampled_from(OPTIONS), st.booleans(), st.text(alphabet="xyz \n.`", max_size=20))
def test_a_json_answer_is_found_in_any_surroundings(option, by_text, around) -> None:
    answer = json.dumps({"answer": option.text if by_text else option.label})
    assert read_answer(around + answer + around, OPTIONS, "official") == option.label


@settings(max_examples=300, deadline=None)
@given(st.text() | REPLIES | st.text(alphabet='{}[]":, answerAB01\\\n'))
@example('{"a":' * 5000)
@example('{"answer": ' + "9" * 5000 + "}")
@example('{"answer": NaN}')
@example("answer: red" + " " * 50_000 + "x purple")
@example("answer " * 2000)
def test_any_text_can_be_read(reply: str) -> None:
    for reader in READERS:
        assert read_answer(reply, OPTIONS, reader) in (None, "A", "B", "C")
        assert read_words(reply, COLOURS, reader) <= set(COLOURS)
        assert answers_all(reply, ["red"], COLOURS, reader) in (None, True, False)


@pytest.mark.parametrize(
    ("reply", "official", "robust"),
    [
        ("", "", ""),
        ("Two agents: Yellow and white.", "", "yellow white"),
        ('{"answer": ["yellow", "White "]}', "yellow white", "yellow white"),
        ('{"answer": "yellow, white"} The red door', "yellow white", "yellow white"),
        ('{"answer": 2} agents, yellow and white', "", "yellow white"),
        ('{"answer": ["yellow", 2]} red', "", "yellow red"),
        ('{"answer": "yellow"} {"answer": "white"}', "", "white"),
        ("The red room is closed. The answer is yellow and white.", "", "yellow white"),
        ("red, as the answer is unclear", "", "red"),
        ("reddish, infrared", "", ""),
        ("yellow, not white", "", "yellow"),
    ],
)
def test_words_are_read(reply: str, official: str, robust: str) -> None:
    assert read_words(reply, COLOURS, "official") == set(official.split())
    assert read_words(reply, COLOURS, "robust") == read_words(reply, COLOURS) == set(robust.split())


def test_a_longer_choice_hides_a_shorter_one() -> None:
    assert read_words("light blue", ["blue", "light blue"]) == {"light blue"}
    assert read_words("Light blue, blue", ["blue", "light blue"]) == {"blue", "light blue"}


def test_all_right_words_and_no_other_must_be_named() -> None:
    right = ("yellow", "White")
    assert answers_all("white and yellow", right, COLOURS) is True
    assert answers_all("white", right, COLOURS) is False
    assert answers_all("white, yellow, red", right, COLOURS) is False
    assert answers_all("two agents", right, COLOURS) is None
    assert answers_all("white and yellow", right, COLOURS, "official") is None
    assert answers_all('{"answer": ["white", "yellow"]}', right, COLOURS, "official") is True


def test_unusable_choices_are_refused() -> None:
    with pytest.raises(HarnessError, match="'pink' is not among the choices"):
        answers_all("red", ["pink"], COLOURS)
    with pytest.raises(HarnessError, match="right answers must be given"):
        answers_all("red", [], COLOURS)
    with pytest.raises(HarnessError, match="'red' stands twice"):
        read_words("red", ["red", "Red"])


@pytest.mark.parametrize("reader", READERS)
def test_a_text_that_two_options_share_chooses_neither(reader: Reader) -> None:
    options = (Option("A", "red"), Option("B", "Red "), Option("C", "blue"))
    assert read_answer('{"answer": "red"}', options, reader) is None
    assert read_answer('{"answer": "B"}', options, reader) == "B"
    assert read_answer('{"answer": "blue"}', options, reader) == "C"


@pytest.mark.fuzz
@pytest.mark.parametrize(
    "reply",
    [
        "red and blue, " * 15_000,
        '{"a":[' * 900 + "1," * 300_000,
        "{" * 200_000,
        '{"' * 100_000,
        '{"a":' + "9" * 500_000 + "}",
        "answer " * 70_000 + " " * 500_000,
        "A" + " " * 500_000 + "because",
        "(" * 500_000,
        "answer:" + "*" * 500_000,
        "\n" * 250_000 + ". " * 125_000,
    ],
    ids=range(10),
)
def test_no_reply_takes_the_square_of_its_length(reply: str) -> None:
    """Of half a million characters it would take minutes."""
    options = (Option("A", "red"), Option("B", "blue"), Option("C", "blue room"))
    begun = time.process_time()
    for reader in READERS:
        assert read_answer(reply, options, reader) is None or reply.startswith("A")
        read_words(reply, COLOURS, reader)
    assert time.process_time() - begun < 10


@given(st.lists(st.sampled_from(["red", "room", "blue", "not", ".", "A", "B."]), max_size=12))
def test_a_mention_inside_a_longer_one_does_not_count(words: list[str]) -> None:
    """As by comparing every mention with every other."""
    names = {"red": "A", "red room": "B", "room": "C", "blue red room": "B"}
    mentions = _text_mentions(" ".join(words), names.items())
    expected = {
        inner
        for inner in mentions
        if not any(
            outer.name != inner.name
            and outer.start <= inner.start
            and inner.end <= outer.end
            and outer.end - outer.start > inner.end - inner.start
            for outer in mentions
        )
    }
    assert set(_outer(mentions)) == expected
