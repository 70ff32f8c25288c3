"""Who a question is about: whose mind, and the other person's name, from the official wording."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_PATTERNS = tuple(
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
    """The persons that questions and options name.

    Args:
        texts: questions and options of one episode.

    Returns:
        None if the wording names nobody, or several pairs.
    """
    found = {
        People(match["subject"], match["other"])
        for text in texts
        for pattern in _PATTERNS
        for match in pattern.finditer(text)
    }
    if len(found) != 1:
        return None
    pair = found.pop()
    return pair if pair.subject != pair.other else None
