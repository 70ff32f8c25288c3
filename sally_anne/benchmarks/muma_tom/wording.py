"""The benchmark's wording taken apart: strings, questions with their options, answers, people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from sally_anne.benchmarks.fields import Field
from sally_anne.benchmarks.items import Option, Polarity

LABELS = ("A", "B", "C")
# Some strings were written as Python shows bytes: b'...' with escapes.
_BYTES = re.compile(r"b(['\"])(.*)\1", re.DOTALL)
_ESCAPE = re.compile(r"(?:\\x[0-9a-fA-F]{2})+|\\[nrt\\'\"]")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_OPTION = re.compile(r"^[ \t]*([A-Z])\)[ \t]*", re.MULTILINE)
_ANSWER = re.compile(r"([A-Z])\)\s*(.*)", re.DOTALL)
_POLARITY: dict[str, Polarity] = {"MOST": "most", "LEAST": "least"}
_PEOPLE = tuple(
    re.compile(pattern)
    for pattern in (
        # Belief: the social goal is given.
        r"\bif (?P<subject>\w+) has been trying to (?:help|hinder) (?P<other>\w+)\b",
        # Social goal: the options name it.
        r"\b(?P<subject>\w+) has been trying to (?:help|prevent) (?P<other>\w+)\b",
        r"\b(?P<subject>\w+) was indifferent towards (?P<other>\w+)['’]",
        # Belief of the other's goal.
        r"\b(?P<subject>\w+) believed that (?P<other>\w+) (?:placed|want)",
        r"\b(?P<subject>\w+) doesn['’]t know (?P<other>\w+)['’]",
    )
)


class Wording(NamedTuple):
    """A question without its options, these, and whether the most or least likely is asked for."""

    question: str
    options: tuple[Option, ...]
    polarity: Polarity


@dataclass(frozen=True)
class People:
    """The two persons of an episode.

    Attributes:
        subject: whose mind is asked about; who replies, where people talk.
        other: who asks, or whose goal is guessed.
    """

    subject: str
    other: str


def people(texts: Iterable[str]) -> People | None:
    """The persons that questions and options of one episode name.

    Returns:
        None if the wording names nobody, or several pairs.
    """
    found = {
        People(match["subject"], match["other"])
        for text in texts
        for pattern in _PEOPLE
        for match in pattern.finditer(text)
    }
    if len(found) != 1:
        return None
    pair = found.pop()
    return pair if pair.subject != pair.other else None


def cleaned(field: Field) -> str:
    """A text without white space around it, and without Python's ``b'...'``.

    Raises:
        RecordError: no text, bytes that are not UTF-8, or half of a surrogate pair.
    """
    text = field.text().strip()
    if found := _BYTES.fullmatch(text):
        try:
            text = _ESCAPE.sub(_unescaped, found[2]).strip()
        except UnicodeDecodeError:
            field.fail("holds bytes that are not UTF-8")
        if not text:
            field.fail("must be a text, is b''")
    return replace(field, value=text).encodable()


def take_apart(field: Field) -> Wording:
    """A question of the form ``... MOST likely?``, then lines ``A) ...``, ``B) ...``, ``C) ...``.

    Raises:
        RecordError: no question, other options than A to C, an empty one or one twice, or not
            exactly one of MOST and LEAST.
    """
    text = cleaned(field)
    marks = list(_OPTION.finditer(text))
    labels = tuple(mark[1] for mark in marks)
    if labels != LABELS:
        field.fail(f"must offer A), B) and C) on lines of their own, offers {_listed(labels)}")
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    said = [one_line(text[m.end() : end]) for m, end in zip(marks, ends, strict=True)]
    if not all(said):
        field.fail(f"has an empty option {LABELS[said.index('')]}")
    if len({option.casefold() for option in said}) < len(said):
        field.fail("has the same option twice")
    question = one_line(text[: marks[0].start()])
    if not question:
        field.fail("has options, but no question before them")
    asked = re.findall(r"\b(?:MOST|LEAST)\b", question)
    if len(asked) != 1:
        field.fail(f"must ask once for MOST or LEAST, asks for {_listed(asked)}")
    return Wording(question, tuple(map(Option, LABELS, said)), _POLARITY[asked[0]])


def answer_label(field: Field, options: tuple[Option, ...]) -> str:
    """The label of an answer ``C) text``, whose text must be that option's.

    Raises:
        RecordError: another form, no such option, or label and text name different options.
    """
    found = _ANSWER.fullmatch(cleaned(field))
    if found is None:
        field.fail(f"must be a label and an option's text, like 'A) ...', is {field.value!r:.60}")
    label = found[1]
    said = {option.label: _compared(option.text) for option in options}
    if label not in said:
        field.fail(f"names option {label}, there are {_listed(said)}")
    if _compared(found[2]) != said[label]:
        same = [other for other, text in said.items() if text == _compared(found[2])]
        whose = f"option {same[0]}'s" if same else "no option's"
        field.fail(f"names option {label}, but its text is {whose}")
    return label


def one_line(text: str) -> str:
    """A text with single blanks between its words."""
    return " ".join(text.split())


def _compared(text: str) -> str:
    return one_line(text).rstrip(" .").casefold()


def _unescaped(found: re.Match[str]) -> str:
    escape = found[0]
    if escape.startswith("\\x"):
        return bytes.fromhex(escape.replace("\\x", "")).decode()
    return _ESCAPED.get(escape[1], escape[1])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
