"""How the authors of each benchmark read a reply in their own code, for figures beside theirs.

These readers are strict or careless in ways of their own: MMToM-QA's takes "Both" for b, BigToM's
takes a reply that names both options for the right one. What they read is reported where the
prompt asks for the form that they expect; the robust reader (harness/answers.py) reads any.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from sally_anne.harness.answers import answers_all, read_answer, read_words
from sally_anne.harness.items import Item

# What a reply chooses, None if nothing, and whether that is right.
Read = tuple[str | None, bool]


@dataclass(frozen=True)
class Official:
    """A benchmark's own reader.

    Attributes:
        read: reads a reply to an item.
        asks: what a prompt says that asks for the form which it expects.
        source: where the authors' code does it.
    """

    read: Callable[[str, Item], Read]
    asks: re.Pattern[str]
    source: str


def _labelled(item: Item, label: str | None) -> Read:
    return label, label in item.answer


def _first_character(fold: bool) -> Callable[[str, Item], Read]:
    """The first character that is no white space is the label."""

    def read(reply: str, item: Item) -> Read:
        first = reply.strip()[:1]
        first = first.lower() if fold else first
        return _labelled(item, first if first in {o.label for o in item.options} else None)

    return read


def _either_key(reply: str, item: Item) -> Read:
    """The right option's "a)" or "b)" anywhere; else the other's; else a grader would be asked."""
    keys = {option.label: f"{option.label.lower()})" for option in item.options}
    in_order = sorted(keys, key=lambda label: label not in item.answer)
    return _labelled(item, next((la for la in in_order if keys[la] in reply.lower()), None))


def _gridtom(reply: str, item: Item) -> Read:
    """Beliefs: the whole reply is JSON whose "answer" is an option's text.

    Initial beliefs are not JSON: one room is the whole reply; of two agents both colours stand in
    it, and none of the three rooms'. Marks of a code block are taken out first (``vlm.py``,
    ``vlm_qwen.py``).
    """
    reply = reply.strip().replace("```json", "").replace("```", "")
    low = reply.lower()
    choices = [option.text.lower() for option in item.options]
    if item.names:
        named = [c for c in choices if c in low]
        right = {answer.lower() for answer in item.answer}
        if len(right) == 1:
            named = [low] if low in choices else []
        return ", ".join(sorted(named)) or None, set(named) == right
    try:
        said = json.loads(reply)["answer"].lower()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, False
    return _labelled(item, next((o.label for o in item.options if o.text.lower() == said), None))


def _json(reply: str, item: Item) -> Read:
    """Tasks without authors' code: JSON objects in the reply whose "answer" is a label or text."""
    if item.names:
        choices = [option.text for option in item.options]
        named = read_words(reply, choices, "official")
        right = answers_all(reply, item.answer, choices, "official") is True
        return ", ".join(sorted(named)) or None, right
    return _labelled(item, read_answer(reply, item.options, "official"))


_JSON = re.compile(r"\bjson\b", re.IGNORECASE)
OFFICIAL = {
    "": Official(_json, _JSON, "this project"),
    "gridtom": Official(
        _gridtom,
        re.compile(r"\bjson\b|with the colou?rs? only", re.IGNORECASE),
        "evaluate.py and init_belief.py of the release",
    ),
    "mmtom_qa": Official(
        _first_character(fold=True),
        re.compile(r"respond with either a or b"),
        "the release's evaluation of language models",
    ),
    "muma_tom": Official(
        _first_character(fold=False),
        re.compile(r"\b(?:A, B,? or C|only the letter)\b"),
        "the last step of LIMP's release",
    ),
    "bigtom": Official(
        _either_key, re.compile(r"Answer:<option>\)<answer>"), "code/src/evaluate_conditions.py"
    ),
}
