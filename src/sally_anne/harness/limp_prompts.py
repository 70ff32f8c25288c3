"""What LIMP asks of a model, and how its replies are read. The prompts are our own."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from pydantic import TypeAdapter

from sally_anne.data.items import Question
from sally_anne.data.muma_tom import People
from sally_anne.harness.planning import likely_prompt


@dataclass(frozen=True)
class Person:
    """One person's part: what is done and what is said, each in the order of time."""

    actions: tuple[str, ...] = ()
    utterances: tuple[str, ...] = ()


@dataclass(frozen=True)
class Episode:
    """One interaction of two people by name, and what was where before anybody acted."""

    people: Mapping[str, Person]
    initial: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hypothesis:
    """The latent variables of one option (appendix 11.3); empty where it leaves one open."""

    belief: str = ""
    social_goal: str = ""
    believed_goal: str = ""


EPISODE = TypeAdapter(Episode)


# --- Prompts -------------------------------------------------------------------------------------

_LIST = "Reply with a JSON list of short texts and nothing else."
_SAYING = (
    "Who helps says what they take to be true. Who hinders says something else than what they take "
    "to be true."
)
_DOING = (
    "Who helps brings things to where they think the other one wants them. Who hinders takes "
    "things away from there. Walking about fits any aim."
)


def watch(name: str) -> str:
    """With frames: what does a person do?"""
    return (
        f"These are frames of a film from a home, in order. What does {name} do? Tell each action "
        "in order on one line: where from things are taken, where they are put, what is opened "
        "and closed. A raised arm often opens something or takes something. If a thing cannot be "
        'made out, call it "something".'
    )


def list_actions(account: str, name: str, known: str = "") -> str:
    """One person's actions in an account; ``known`` names what could not be made out in it."""
    known = f"What else is known:\n{known}\n\n" if known else ""
    return (
        f"{known}Account:\n{account}\n\nList what {name} does there, in order, without the name "
        "and without what others do or what is said: walks to a place, opens or closes something, "
        "takes something from a place, puts something somewhere. Name the room where it is clear, "
        f'and the things themselves rather than "it" or "something". {_LIST}'
    )


def list_initial(parts: Mapping[str, Person]) -> str:
    """What was where before anybody acted."""
    return (
        f"{_actions_of(parts)}\n\nWhere were the things that are taken here before anybody "
        'acted? One statement a thing, like "There is a cup on the table." ' + _LIST
    )


def list_hypotheses(question: Question, who: People, episode: Episode) -> str:
    """What each option says about a mind, where its wording is unknown."""
    initial = "\n".join(episode.initial)
    options = "\n".join(f"{option.label}. {option.text}" for option in question.options)
    return (
        f"At the beginning:\n{initial}\n{_actions_of(episode.people)}\n\n"
        f"Question: {question.question}\n{options}\n\nFor each option, tell what it says of "
        f"{who.subject}: belief (what {who.subject} takes to be where), social_goal (help, hinder "
        f"or neither, towards {who.other}), believed_goal (what {who.subject} thinks that "
        f"{who.other} wants). Reply with a JSON object by option label, with these three fields."
    )


def judge_steps(
    mind: Hypothesis, who: People, episode: Episode, utterance_goal: bool = True
) -> list[str]:
    """Is each utterance of a person, and then each action, likely under a hypothesis?

    An utterance is judged by what its speaker believes and was asked (with ``utterance_goal`` also
    by what the other seems to want), an action by what both did before, as in the released code.
    """
    subject, other = (episode.people[name] for name in who)
    aim = [f"{who.subject}'s aim towards {who.other}: {mind.social_goal}"] * bool(mind.social_goal)
    aim += [f"{who.subject} believes: {mind.belief}"] * bool(mind.belief)
    wish = f"{who.subject} thinks that {who.other} wants: {mind.believed_goal}"
    wishes = [wish] * bool(mind.believed_goal)
    asked = [f'{who.other} said: "{text}"' for text in other.utterances]
    asked = [*aim, *(wishes if utterance_goal else []), *asked]
    before = [f"At the beginning: {text}" for text in episode.initial]
    before = [*aim, *wishes, *before, *(f"{who.other}: {text}" for text in other.actions)]
    prompts = [
        likely_prompt([*asked, f'Then {who.subject} said: "{text}"'], _SAYING)
        for text in subject.utterances
    ]
    for text in subject.actions:
        prompts.append(likely_prompt([*before, f"Then {who.subject}: {text}"], _DOING))
        before.append(f"{who.subject}: {text}")
    return prompts


def choose(question: Question, beliefs: Mapping[str, float]) -> str:
    """Which option answers the question, given the posterior of each?"""
    options = "\n".join(
        f"{o.label}. {o.text} (probability that this is so: {beliefs[o.label]:.4f})"
        for o in question.options
    )
    return (
        f"Question: {question.question}\n{options}\n\nGo by these probabilities. Reply with the "
        "letter of the option that answers the question, and nothing else."
    )


def _actions_of(parts: Mapping[str, Person]) -> str:
    return "\n".join(
        "\n- ".join([f"What {name} did:", *part.actions])
        for name, part in parts.items()
        if part.actions
    )


# --- Replies -------------------------------------------------------------------------------------

_BULLET = re.compile(r"^\s*(?:[-*•]\s*|\(?\d+[.):]\s*|\(?[A-Da-d][.)]\s+)")
# A list, and an object of objects.
_FLAT, _NESTED = r"\[[^\[\]]*\]", r"\{(?:[^{}]|\{[^{}]*\})*\}"
# Around a line that is no entry of a list in JSON.
_MARKS = ",;\"“”'"
_NOTHING = {"", "none", "nothing", "n/a", "null", "blank", "[]"}
# A reply that repeats itself up to its last token is no list of actions.
MOST = 40


def read_list(reply: str) -> tuple[str, ...]:
    """The texts of the first list: JSON, Python, bulleted or numbered lines, or one a line.

    At most :data:`MOST`, without empty ones and "none"; immediate repetitions count once.
    """
    for value in _values(reply, _FLAT):
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            return _cleaned(value)
    lines = [line for line in reply.splitlines() if line.strip() and not line.startswith("```")]
    bulleted = [_BULLET.sub("", line) for line in lines if _BULLET.match(line)]
    if bulleted:
        return _cleaned(bulleted, _MARKS)
    if len(lines) == 1:
        lines = re.split(r"(?<=[.;!?])\s+", lines[0])
    return _cleaned((line for line in lines if not line.rstrip().endswith(":")), _MARKS)


def read_hypotheses(reply: str, labels: Sequence[str]) -> dict[str, Hypothesis] | None:
    """Latent variables by label from a JSON or Python object; None if a label is left out."""
    for value in _values(reply, _NESTED):
        entries = {
            str(name).casefold().removeprefix("option").strip(" .):("): entry
            for name, entry in (value.items() if isinstance(value, dict) else ())
        }
        found = ((label, _hypothesis_of(entries.get(label.casefold()))) for label in labels)
        minds = {label: mind for label, mind in found if mind}
        if len(minds) == len(labels):
            return minds
    return None


def _hypothesis_of(entry: Any) -> Hypothesis | None:
    if not isinstance(entry, dict):
        return None
    values = {str(name).strip().casefold().replace(" ", "_"): text for name, text in entry.items()}
    texts = [values.get(variable.name) or "" for variable in fields(Hypothesis)]
    if not all(isinstance(text, str) for text in texts):
        return None
    plain = [" ".join(text.split()) for text in texts]
    mind = Hypothesis(*("" if text.casefold() in _NOTHING else text for text in plain))
    return mind if mind != Hypothesis() else None


def _values(reply: str, form: str) -> Iterator[Any]:
    """The JSON or Python values of a form, from left to right."""
    for part in re.findall(form, reply):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                yield read(part)
                break


def _cleaned(texts: Iterable[str], marks: str = "") -> tuple[str, ...]:
    kept: list[str] = []
    for text in texts:
        plain = " ".join(text.split()).strip(f" {marks}")
        if plain.casefold().rstrip(".") not in _NOTHING and kept[-1:] != [plain]:
            kept.append(plain)
    return tuple(kept[:MOST])
