"""What LIMP asks of a model, and how its replies are read.

The prompts are our own; files of the user's may stand in their place (docs/protocols.md).
"""

from __future__ import annotations

import ast
import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Question
from sally_anne.data.muma_tom import People
from sally_anne.harness.planning import likely_prompt
from sally_anne.harness.protocols import read_template


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
_ACTIONS = (
    "Account:\n{account}\n\nList what {name} does there, in order, without the name and without "
    "what others do or what is said: walks to a place, opens or closes something, takes something "
    "from a place, puts something somewhere. Name the room where it is clear, and the things "
    f'themselves rather than "it" or "something". {_LIST}'
)
# What is asked in each step; without a prompt of the user's "likely" is :func:`likely_prompt`.
PROMPTS = {
    "watch": (
        "These are frames of a film from a home, in order. What does {name} do? Tell each action "
        "in order on one line: where from things are taken, where they are put, what is opened "
        "and closed. A raised arm often opens something or takes something. If a thing cannot be "
        'made out, call it "something".'
    ),
    "text": _ACTIONS,
    # Things that cannot be made out in a film are named by what else is known.
    "film": "What else is known:\n{known}\n\n" + _ACTIONS,
    "initial": (
        "{actions}\n\nWhere were the things that are taken here before anybody acted? One "
        f'statement a thing, like "There is a cup on the table." {_LIST}'
    ),
    "hypotheses": (
        "At the beginning:\n{initial}\n{actions}\n\nQuestion: {question}\n{options}\n\nFor each "
        "option, tell what it says of {name}: belief (what {name} takes to be where), social_goal "
        "(help, hinder or neither, towards {other}), believed_goal (what {name} thinks that "
        "{other} wants). Reply with a JSON object by option label, with these three fields."
    ),
}
# What a step is judged by, each in a line of its own.
_LINES = {
    "social_goal": "{name}'s aim towards {other}: {}",
    "belief": "{name} believes: {}",
    "believed_goal": "{name} thinks that {other} wants: {}",
    "said": '{other} said: "{}"',
    "initial": "At the beginning: {}",
    "before": "{}",
}
FIELDS = {
    step: [part[1] for part in string.Formatter().parse(text) if part[1]]
    for step, text in PROMPTS.items()
} | {"likely": ["step", "name", "other", *_LINES]}
_SAYING = (
    "Who helps says what they take to be true. Who hinders says something else than what they take "
    "to be true."
)
_DOING = (
    "Who helps brings things to where they think the other one wants them. Who hinders takes "
    "things away from there. Walking about fits any aim."
)


def prompts_of(folder: Path | None) -> dict[str, str]:
    """The prompts by step, of which a folder's ``<step>.txt`` replace ours."""
    files = {step: folder / f"{step}.txt" for step in FIELDS} if folder else {}
    if folder and not any(file.exists() for file in files.values()):
        raise HarnessError(f"--templates {folder}: holds none of {', '.join(FIELDS)} (.txt)")
    return PROMPTS | {
        step: read_template(file, "--templates", FIELDS[step], [FIELDS[step]])
        for step, file in files.items()
        if file.exists()
    }


def judge_steps(
    mind: Hypothesis,
    who: People,
    episode: Episode,
    utterance_goal: bool = True,
    prompts: Mapping[str, str] = PROMPTS,
) -> list[str]:
    """Is each utterance of a person, and then each action, likely under a hypothesis?

    An utterance is judged by what its speaker believes and was asked (with ``utterance_goal`` also
    by what the other seems to want), an action by what both did before, as in the released code.
    """
    subject, other = (episode.people[name] for name in who)
    names = {"name": who.subject, "other": who.other}
    held: dict[str, Sequence[str]] = {
        kind: [text] * bool(text) for kind, text in vars(mind).items()
    }

    def likely(by: Mapping[str, Sequence[str]], step: str, rule: str) -> str:
        if "likely" in prompts:
            fields = {kind: "\n".join(by.get(kind, ())) for kind in _LINES}
            return prompts["likely"].format(**names, **fields, step=step)
        lines = [form.format(t, **names) for kind, form in _LINES.items() for t in by.get(kind, ())]
        return likely_prompt([*lines, f"Then {step}"], rule)

    asked = held | {"said": other.utterances} | ({} if utterance_goal else {"believed_goal": ()})
    steps = [likely(asked, f'{who.subject} said: "{text}"', _SAYING) for text in subject.utterances]
    before = [f"{who.other}: {text}" for text in other.actions]
    for text in subject.actions:
        step = f"{who.subject}: {text}"
        steps.append(likely(held | {"initial": episode.initial, "before": before}, step, _DOING))
        before.append(step)
    return steps


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


def actions_of(parts: Mapping[str, Person]) -> str:
    """What each person did, a line an action."""
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
    """Latent variables by label from a JSON or Python object; None if a label is left out.

    Or as the paper asks for them: "A: Belief: ...; Social goal: ...; Believed Goal: ... B: ...".
    """
    parts = re.split(r"(?:^|[.\s])([A-Z]):\s*(?=Belief\b)", reply)
    pairs = [dict(re.findall(r"([A-Za-z ]+):\s*([^;]*)", part)) for part in parts[2::2]]
    for value in (*_values(reply, _NESTED), dict(zip(parts[1::2], pairs, strict=True))):
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
    plain = [" ".join(text.split()).rstrip(".") for text in texts]
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
