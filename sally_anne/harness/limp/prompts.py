"""What models are asked, in words of our own (what is asked for: paper, appendix 11)."""

from __future__ import annotations

from collections.abc import Iterable

from sally_anne.benchmarks.items import BenchmarkItem
from sally_anne.benchmarks.muma_tom.wording import People
from sally_anne.harness.limp.episode import Episode, Hypothesis, Step

LIKELY, UNLIKELY = ANSWERS = ("A", "B")
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


def list_actions(account: str, name: str, told: str = "") -> str:
    """One person's actions out of an account.

    Args:
        account: what was told or seen.
        name: whose actions.
        told: what else is known, to name things that could not be made out.
    """
    known = f"What else is known:\n{told}\n\n" if told else ""
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
    options = "\n".join(f"{option.label}. {option.text}" for option in item.options)
    return (
        f"At the beginning:\n{_lines(episode.initial)}\n{_done(episode)}\n\n"
        f"Question: {item.question}\n{options}\n\nFor each option, tell what it says of "
        f"{who.subject}: belief (what {who.subject} takes to be where), social_goal (help, hinder "
        f"or neither, towards {who.other}), believed_goal (what {who.subject} thinks that "
        f"{who.other} wants). Reply with a JSON object by option label, with these three fields."
    )


def judge(step: Step, hypothesis: Hypothesis, who: People, episode: Episode) -> str:
    """Is a step likely under a hypothesis?

    An utterance is judged by what its speaker believes and was asked; what was really where and
    what was done afterwards is left out, as in the released code. An action is judged by all that
    the other did and the person did before.
    """
    lines = [
        f"{who.subject}'s aim towards {who.other}: {hypothesis.social_goal}",
        f"{who.subject} believes: {hypothesis.belief}",
        f"{who.subject} thinks that {who.other} wants: {hypothesis.believed_goal}",
    ]
    told = [line for line in lines if not line.endswith(": ")]
    other = episode.person(who.other)
    if step.kind == "utterance":
        told += [f'{who.other} said: "{text}"' for text in other.utterances]
        last = f'Then {who.subject} said: "{step.text}"'
    else:
        told += [f"At the beginning: {text}" for text in episode.initial]
        told += [f"{who.other}: {text}" for text in other.actions]
        told += [f"{who.subject}: {text}" for text in step.before]
        last = f"Then {who.subject}: {step.text}"
    return (
        f"{_lines(told)}\n{last}\n\n{_RULES[step.kind]} Is the last line likely?\n"
        f"{LIKELY}) likely\n{UNLIKELY}) unlikely\nReply with {LIKELY} or {UNLIKELY} only."
    )


def _done(episode: Episode) -> str:
    return "\n".join(
        f"What {person.name} did:\n{_lines(f'- {text}' for text in person.actions)}"
        for person in episode.people
        if person.actions
    )


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(texts)
