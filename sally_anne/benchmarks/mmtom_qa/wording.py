"""Takes a question's text apart: scene, actions, question, options."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sally_anne.benchmarks.fields import Field

SCENE = "What's inside the apartment:"
ACTIONS = "Actions taken by "
QUESTION = "Question:"
OPTIONS = ("(a)", "(b)")
REQUEST = re.compile(r"Please respond with either a or b\s*\.?\s*\Z")


@dataclass(frozen=True)
class Wording:
    """The parts of one question's text, without headings and without the request for a letter.

    Attributes:
        scene: what is inside the apartment; empty if it is not told.
        person: who acts; empty if no actions are told.
        actions: what the person does; empty if it is not told.
        question: without options.
        options: texts of a and b.
    """

    scene: str
    person: str
    actions: str
    question: str
    options: tuple[str, str]


def take_apart(text: Field) -> Wording:
    """The parts of the text.

    Args:
        text: the field that holds it. Headings stand at most once and in this order: scene,
            actions, question, (a), (b).

    Raises:
        RecordError: a part is missing, empty, twice there or out of its place.
    """
    told, asked = _halves(text, text.text(), QUESTION)
    told, actions = _halves(text, told, ACTIONS) if ACTIONS in told else (told, "")
    before, scene = _halves(text, told, SCENE) if SCENE in told else (told, "")
    if before.strip():
        text.fail(f"must begin with {SCENE!r}, {ACTIONS!r} or {QUESTION!r}")
    person, colon, actions = actions.partition(":")
    if colon != ":" and person:
        text.fail(f"has no colon after {ACTIONS!r} and a name")
    question, choices = _halves(text, asked, OPTIONS[0])
    a, b = _halves(text, choices, OPTIONS[1])
    b = REQUEST.sub("", b)
    parts = {QUESTION: question, OPTIONS[0]: a, OPTIONS[1]: b}
    if colon:
        parts |= {ACTIONS: person, f"{ACTIONS}{person.strip()}:": actions}
    if SCENE in told:
        parts[SCENE] = scene
    for heading, part in parts.items():
        if not part.strip():
            text.fail(f"has nothing after {heading!r}")
    if a.strip() == b.strip():
        text.fail("has the same text for (a) and (b)")
    return Wording(
        scene=scene.strip(),
        person=person.strip(),
        actions=actions.strip(),
        question=question.strip(),
        options=(a.strip(), b.strip()),
    )


def _halves(field: Field, text: str, heading: str) -> tuple[str, str]:
    """What stands before and after a heading that must be there once."""
    count = text.count(heading)
    if count != 1:
        field.fail(f"must have {heading!r} once and in its place, has it {count} times there")
    before, _, after = text.partition(heading)
    return before, after
