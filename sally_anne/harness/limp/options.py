"""Options as hypotheses: by the official wording, or by a model where the wording is another."""

from __future__ import annotations

import re
from collections.abc import Callable

from sally_anne.benchmarks.items import BenchmarkItem
from sally_anne.benchmarks.muma_tom.wording import People
from sally_anne.harness.limp import prompts
from sally_anne.harness.limp.episode import Episode, Hypothesis
from sally_anne.harness.limp.parse import read_hypotheses

_GIVEN_GOAL = re.compile(r"\bif \w+ has been trying to (help|hinder) \w+")
_KNOWN_PLACE = re.compile(r"\bassuming that \w+ knows (what is [^,]+)")
_BELIEVED = re.compile(r"\w+ believed that (there (?:was|were|is|are) .+?)\.?")
_HELPED = re.compile(r"\w+ has been trying to help \w+ (?:to )?(?:locate|find) (?P<thing>.+?)\.?")
_HINDERED = re.compile(r"\w+ has been trying to prevent \w+ from \w+ing (?P<thing>.+?)\.?")
_INDIFFERENT = re.compile(r"\w+ was indifferent towards \w+['’]s? goals?\.?")
_MOVED = r": \w+ (?:intentionally )?moved .+ to (?P<aim>help|hinder) \w+\.?"
_LEFT = re.compile(
    r"\w+ believed that \w+ placed the (?P<thing>.+?) at \w+ desired location" + _MOVED
)
_WANTED = re.compile(r"\w+ believed that \w+ want(?:s|ed) to (?P<wish>(?:place|put) .+?)" + _MOVED)
_UNKNOWN = re.compile(r"\w+ doesn['’]t know \w+['’]s? goal .*")
_PREAMBLE = re.compile(r"^When giving information, ")


def hypotheses(
    item: BenchmarkItem, who: People, episode: Episode, write: Callable[[str], str] | None = None
) -> dict[str, Hypothesis] | None:
    """The hypothesis of each option.

    Args:
        item: the question.
        who: whose mind, and the other person.
        episode: what was where, and what was done: "knows what is in the box" and "at the desired
            location" mean what they find there.
        write: asks a model, for options whose wording the rules do not know.

    Returns:
        By label; None if neither the rules nor the model's reply give all of them.
    """
    read = _reader(item, who, episode)
    found = {o.label: read(_PREAMBLE.sub("", o.text)) for o in item.options} if read else {}
    if found and None not in found.values():
        return {label: entry for label, entry in found.items() if entry}
    if write is None:
        return None
    reply = write(prompts.list_hypotheses(item, who, episode))
    return read_hypotheses(reply, [option.label for option in item.options])


def _reader(
    item: BenchmarkItem, who: People, episode: Episode
) -> Callable[[str], Hypothesis | None] | None:
    """What reads the options of this question."""
    if given := _GIVEN_GOAL.search(item.question):
        return lambda option: _belief(option, f"{given[1]} {who.other}", who)
    if known := _KNOWN_PLACE.search(item.question):
        knowledge = _knowledge(item, who, episode, known[1])
        return lambda option: _social(option, knowledge, who)
    return lambda option: _goal(option, who, episode)


def _belief(option: str, aim: str, who: People) -> Hypothesis | None:
    believed = _BELIEVED.fullmatch(option)
    if believed is None:
        return None
    return Hypothesis(believed[1], aim, f"to find what {who.other} asks for")


def _social(option: str, knowledge: str, who: People) -> Hypothesis | None:
    asked = f"to find what {who.other} asks for"
    if _HELPED.fullmatch(option):
        return Hypothesis(knowledge, f"help {who.other}", asked)
    if _HINDERED.fullmatch(option):
        return Hypothesis(knowledge, f"hinder {who.other}", asked)
    if _INDIFFERENT.fullmatch(option):
        return Hypothesis(knowledge, _neither(who), asked)
    return None


def _goal(option: str, who: People, episode: Episode) -> Hypothesis | None:
    if _UNKNOWN.fullmatch(option):
        return Hypothesis("", _neither(who), f"something that {who.subject} does not know")
    if wanted := _WANTED.fullmatch(option):
        return Hypothesis("", f"{wanted['aim']} {who.other}", f"to {wanted['wish']}")
    if left := _LEFT.fullmatch(option):
        wish = f"to have the {left['thing']} {_left_at(left['thing'], who.other, episode)}"
        return Hypothesis("", f"{left['aim']} {who.other}", wish)
    return None


def _neither(who: People) -> str:
    return f"neither help nor hinder {who.other}"


def _knowledge(item: BenchmarkItem, who: People, episode: Episode, place: str) -> str:
    """What is known about the thing asked for: where it was, as far as the episode tells."""
    things = {
        _bare(found["thing"])
        for option in item.options
        for pattern in (_HELPED, _HINDERED)
        if (found := pattern.fullmatch(_PREAMBLE.sub("", option.text)))
    }
    facts = [fact for fact in episode.initial if any(_named(t, fact) for t in things)]
    return " ".join(facts) if facts else f"{who.subject} knows {place}"


def _left_at(thing: str, name: str, episode: Episode) -> str:
    """Where a person last put a thing, as the actions have it."""
    for action in reversed(episode.person(name).actions):
        put = re.search(r"\b(?:put|puts|place|places|placed|set|sets|move|moves|moved)\b", action)
        where = re.search(r"\b(?:on|onto|in|into|inside|at)\b.*", action)
        if put and where and _named(thing, action):
            return where[0].rstrip(". ")
    return f"stay where {name} put it"


def _bare(thing: str) -> str:
    return re.sub(r"^(?:the|an?|some) ", "", thing)


def _named(thing: str, text: str) -> bool:
    """Whether a text names a thing, in whole words."""
    return re.search(rf"\b{re.escape(_bare(thing))}\b", text, re.IGNORECASE) is not None
