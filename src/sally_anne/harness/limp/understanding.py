"""What is understood of a record: its episode, and its options as hypotheses.

As in the released code, where people talk the utterances are evidence and the film tells what the
one who asks did; where nobody talks the text tells one person's actions and the film the other's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from sally_anne.core.errors import HarnessError
from sally_anne.data.fields import Field
from sally_anne.data.items import BenchmarkItem
from sally_anne.data.muma_tom import People, cleaned
from sally_anne.harness.limp import prompts
from sally_anne.harness.limp.episode import Episode, Hypothesis, Person
from sally_anne.harness.limp.prompts import read_hypotheses, read_list

Account = str | tuple[str, ...]
# The reply to a text, and frames beside it ``uint8 [F, height, width, 3]``.
Write = Callable[..., str]

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


@dataclass(frozen=True)
class Sources:
    write: Write  # sums up texts and films
    frames: Callable[[BenchmarkItem], np.ndarray]
    accounts: Mapping[str, Account] | None = None  # what films show; None to watch them
    parsed: Mapping[str, Episode] = field(default_factory=dict)  # those that need no reading


def account(entry: Field) -> Account:
    """What a film shows: field ``action`` of an entry, a text or a list of texts."""
    actions = entry.get("action")
    if actions.value in ("", []):
        actions.fail(
            "is empty: the published file holds prompts alone. Fill in what a model says to them, "
            "or leave --actions out to have the films watched"
        )
    if isinstance(actions.value, list):
        return tuple(cleaned(item) for item in actions.items())
    return cleaned(actions)


def gather(item: BenchmarkItem, who: People, sources: Sources) -> Episode:
    """The episode of any of its questions; see the module's text."""
    names = (who.subject, who.other)
    if item.group in sources.parsed:
        episode = sources.parsed[item.group]
        try:
            for name in names:
                episode.person(name)
        except HarnessError as error:
            raise HarnessError(f"--parsed, episode {item.group}: {error}") from error
        return episode
    context = item.context
    if context.dialogue:
        seen = who.other
        people = [Person(n, utterances=_said(context.dialogue, n)) for n in names]
    else:
        actor = actor_of(context.actions, who, item.group)
        seen = who.other if actor == who.subject else who.subject
        done = read_list(sources.write(prompts.list_actions(context.actions, actor)))
        people = [Person(n, done if n == actor else ()) for n in names]
    actions = _watched(item, seen, sources)
    first, second = (replace(p, actions=actions) if p.name == seen else p for p in people)
    episode = Episode((first, second))
    return replace(episode, initial=read_list(sources.write(prompts.list_initial(episode))))


def actor_of(text: str, who: People, episode: str) -> str:
    """Whose actions a text tells: the person whom it names first; HarnessError if it names none."""
    named = re.search(rf"\b(?:{re.escape(who.subject)}|{re.escape(who.other)})\b", text)
    if named is None:
        raise HarnessError(
            f"episode {episode}: its text names neither {who.subject} nor {who.other}, so whose "
            "actions it tells is unknown; give the episode with --parsed"
        )
    return named[0]


def _said(dialogue: str, name: str) -> tuple[str, ...]:
    lines = (line.partition(": ") for line in dialogue.splitlines())
    return tuple(said for speaker, _, said in lines if speaker == name)


def _watched(item: BenchmarkItem, name: str, sources: Sources) -> tuple[str, ...]:
    """What a person does in the film; things that cannot be made out are named by the text."""
    if sources.accounts is not None:
        seen = sources.accounts[item.group]
    else:
        seen = sources.write(prompts.watch(name), sources.frames(item))
    if isinstance(seen, tuple):
        return seen
    known = item.context.dialogue or item.context.actions
    return read_list(sources.write(prompts.list_actions(seen, name, known)))


def by_rules(item: BenchmarkItem, who: People, episode: Episode) -> dict[str, Hypothesis] | None:
    """The hypothesis of each option, by label; None if the wording of one is not known.

    "Knows what is in the box" and "at the desired location" mean what the episode has there.
    """
    found = {
        o.label: _hypothesis(_PREAMBLE.sub("", o.text), item, who, episode) for o in item.options
    }
    read = {label: entry for label, entry in found.items() if entry}
    return read if found and len(read) == len(found) else None


def by_model(
    item: BenchmarkItem, who: People, episode: Episode, write: Write
) -> dict[str, Hypothesis] | None:
    """The same as a model reads it; None if its reply leaves one out."""
    reply = write(prompts.list_hypotheses(item, who, episode))
    return read_hypotheses(reply, [option.label for option in item.options])


def _hypothesis(
    option: str, item: BenchmarkItem, who: People, episode: Episode
) -> Hypothesis | None:
    """What an option says, by its wording; None if that is not known."""
    other, find = who.other, f"to find what {who.other} asks for"
    neither = f"neither help nor hinder {other}"
    if given := _GIVEN_GOAL.search(item.question):
        believed = _BELIEVED.fullmatch(option)
        return Hypothesis(believed[1], f"{given[1]} {other}", find) if believed else None
    if known := _KNOWN_PLACE.search(item.question):
        aims = ((_HELPED, f"help {other}"), (_HINDERED, f"hinder {other}"), (_INDIFFERENT, neither))
        aim = next((aim for wording, aim in aims if wording.fullmatch(option)), None)
        return Hypothesis(_knowledge(item, who, episode, known[1]), aim, find) if aim else None
    if _UNKNOWN.fullmatch(option):
        return Hypothesis("", neither, f"something that {who.subject} does not know")
    if wanted := _WANTED.fullmatch(option):
        return Hypothesis("", f"{wanted['aim']} {other}", f"to {wanted['wish']}")
    if left := _LEFT.fullmatch(option):
        wish = f"to have the {left['thing']} {_left_at(left['thing'], other, episode)}"
        return Hypothesis("", f"{left['aim']} {other}", wish)
    return None


def _knowledge(item: BenchmarkItem, who: People, episode: Episode, place: str) -> str:
    """What is known about the thing asked for: where it was, as far as the episode tells."""
    things = {
        found["thing"]
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


def _named(thing: str, text: str) -> bool:
    """Whether a text names a thing, in whole words and without its article."""
    bare = re.sub(r"^(?:the|an?|some) ", "", thing)
    return re.search(rf"\b{re.escape(bare)}\b", text, re.IGNORECASE) is not None
