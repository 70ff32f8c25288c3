"""What models are asked, in words of our own (paper, appendix 11), and what their replies list."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sally_anne.data.items import BenchmarkItem
from sally_anne.data.muma_tom import People
from sally_anne.harness.inverse_planning.models import likely
from sally_anne.harness.limp.episode import Episode, Hypothesis, Step

_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d+[.):])\s*")
_NOTHING = {"", "none", "nothing", "n/a", "null", "blank", "[]"}
# A reply that repeats itself up to its last token is no list of actions.
MOST = 40

_LIST = "Reply with a JSON list of short texts and nothing else."
_RULES = {
    "utterance": (
        "Who helps says what they take to be true. Who hinders says something else than what they "
        "take to be true."
    ),
    "action": (
        "Who helps brings things to where they think the other one wants them. Who hinders takes "
        "things away from there. Walking about fits any aim."
    ),
}


def watch(name: str) -> str:
    """Beside frames: what does a person do?"""
    return (
        f"These are frames of a film from a home, in order. What does {name} do? Tell each action "
        "in order on one line: where from things are taken, where they are put, what is opened "
        "and closed. A raised arm often opens something or takes something. If a thing cannot be "
        'made out, call it "something".'
    )


def list_actions(account: str, name: str, known: str = "") -> str:
    """One person's actions out of an account; ``known`` names what could not be made out in it."""
    known = f"What else is known:\n{known}\n\n" if known else ""
    return (
        f"{known}Account:\n{account}\n\nList what {name} does there, in order, without the name "
        "and without what others do or what is said: walks to a place, opens or closes something, "
        "takes something from a place, puts something somewhere. Name the room where it is clear, "
        f'and the things themselves rather than "it" or "something". {_LIST}'
    )


def list_initial(episode: Episode) -> str:
    """What was where before anybody acted."""
    return (
        f"{_done(episode)}\n\nWhere were the things that are taken here before anybody acted? One "
        f'statement a thing, like "There is a cup on the table." {_LIST}'
    )


def list_hypotheses(item: BenchmarkItem, who: People, episode: Episode) -> str:
    """What each option says about a mind, where its wording is unknown."""
    initial = "\n".join(episode.initial)
    options = "\n".join(f"{option.label}. {option.text}" for option in item.options)
    return (
        f"At the beginning:\n{initial}\n{_done(episode)}\n\n"
        f"Question: {item.question}\n{options}\n\nFor each option, tell what it says of "
        f"{who.subject}: belief (what {who.subject} takes to be where), social_goal (help, hinder "
        f"or neither, towards {who.other}), believed_goal (what {who.subject} thinks that "
        f"{who.other} wants). Reply with a JSON object by option label, with these three fields."
    )


def judge(
    step: Step, hypothesis: Hypothesis, who: People, episode: Episode, utterance_goal: bool = True
) -> str:
    """Is a step likely under a hypothesis?

    An utterance is judged by what its speaker believes and was asked, and with ``utterance_goal``
    by what the other is thought to want; what was really where and what was done afterwards is left
    out, as in the released code. An action is judged by all that the other did and the person did
    before.
    """
    lines = [
        f"{who.subject}'s aim towards {who.other}: {hypothesis.social_goal}",
        f"{who.subject} believes: {hypothesis.belief}",
    ]
    if step.kind == "action" or utterance_goal:
        lines.append(f"{who.subject} thinks that {who.other} wants: {hypothesis.believed_goal}")
    known = [line for line in lines if not line.endswith(": ")]
    other = episode.person(who.other)
    if step.kind == "utterance":
        known += [f'{who.other} said: "{text}"' for text in other.utterances]
        last = f'Then {who.subject} said: "{step.text}"'
    else:
        known += [f"At the beginning: {text}" for text in episode.initial]
        known += [f"{who.other}: {text}" for text in other.actions]
        known += [f"{who.subject}: {text}" for text in step.before]
        last = f"Then {who.subject}: {step.text}"
    return likely([*known, last], _RULES[step.kind])


def choose(item: BenchmarkItem, beliefs: Mapping[str, float]) -> str:
    """Which option answers the question, when so much is believed in each?"""
    options = "\n".join(
        f"{o.label}. {o.text} (probability that this is so: {beliefs[o.label]:.4f})"
        for o in item.options
    )
    return (
        f"Question: {item.question}\n{options}\n\nGo by these probabilities. Reply with the letter "
        "of the option that answers the question, and nothing else."
    )


def _done(episode: Episode) -> str:
    acting = [person for person in episode.people if person.actions]
    return "\n".join("\n- ".join([f"What {p.name} did:", *p.actions]) for p in acting)


def read_list(reply: str) -> tuple[str, ...]:
    """The texts of the first list: JSON, Python, bulleted or numbered lines, or one a line.

    At most :data:`MOST` of them, without empty ones and "none"; a text right after the same one
    counts once.
    """
    for value in _values(reply, "[", "]"):
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            return _kept(value)
    lines = [line for line in reply.splitlines() if line.strip() and not line.startswith("```")]
    bulleted = [_BULLET.sub("", line) for line in lines if _BULLET.match(line)]
    if bulleted:
        return _kept(bulleted)
    if len(lines) == 1:
        lines = re.split(r"(?<=[.;!?])\s+", lines[0])
    return _kept(line for line in lines if not line.rstrip().endswith(":"))


def read_hypotheses(reply: str, labels: Sequence[str]) -> dict[str, Hypothesis] | None:
    """Latent variables by label from a JSON or Python object; None if a label is left out."""
    for value in _values(reply, "{", "}"):
        if not isinstance(value, dict):
            continue
        entries = {_label(name): entry for name, entry in value.items()}
        found = {label: _hypothesis(entries.get(label.casefold())) for label in labels}
        if None not in found.values():
            return {label: entry for label, entry in found.items() if entry}
    return None


def _hypothesis(entry: Any) -> Hypothesis | None:
    if not isinstance(entry, dict):
        return None
    fields = {str(name).strip().casefold().replace(" ", "_"): text for name, text in entry.items()}
    found = {}
    for name in ("belief", "social_goal", "believed_goal"):
        text = fields.get(name)
        if not isinstance(text, str | None):
            return None
        plain = " ".join((text or "").split())
        found[name] = "" if plain.casefold() in _NOTHING else plain
    return Hypothesis(**found) if any(found.values()) else None


def _label(name: Any) -> str:
    return str(name).casefold().removeprefix("option").strip(" .):(")


def _values(reply: str, opening: str, closing: str) -> Iterator[Any]:
    """JSON or Python values that begin with a bracket, from left to right."""
    decoder = json.JSONDecoder()
    start = reply.find(opening)
    while start >= 0:
        end = start + 1
        try:
            value, end = decoder.raw_decode(reply, start)
            yield value
        except ValueError:
            stop = reply.find(closing, start)
            # Nested objects end at the last bracket rather than at the next one.
            for last in dict.fromkeys((stop, reply.rfind(closing))):
                if last > start and (value := _python(reply[start : last + 1])) is not None:
                    end = last + 1
                    yield value
                    break
        except RecursionError:  # thousands of brackets; reading on would take as many attempts
            return
        start = reply.find(opening, end)


def _python(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _kept(texts: Any) -> tuple[str, ...]:
    found: list[str] = []
    for text in texts:
        plain = " ".join(text.split()).strip(" ,;\"'")
        if plain.casefold().rstrip(".") not in _NOTHING and found[-1:] != [plain]:
            found.append(plain)
    return tuple(found[:MOST])
