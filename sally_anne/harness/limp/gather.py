"""From a record to an episode: what is told, what is seen, and what was where before.

As in the released code, where people talk the utterances are evidence and the film tells what the
one who asks did; where nobody talks the text tells one person's actions and the film the other's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from sally_anne.benchmarks.fields import Field
from sally_anne.benchmarks.items import BenchmarkItem
from sally_anne.benchmarks.muma_tom.wording import People, cleaned
from sally_anne.core.errors import HarnessError
from sally_anne.harness.limp import prompts
from sally_anne.harness.limp.episode import Episode, Person, read_object
from sally_anne.harness.limp.likelihood import Writer
from sally_anne.harness.limp.parse import read_list

Account = str | tuple[str, ...]


@dataclass(frozen=True)
class Sources:
    """Where episodes come from.

    Attributes:
        writer: reads texts and films.
        frames: gives a record's frames ``uint8 [F, height, width, 3]``.
        accounts: what films show, by episode: a text, or actions one by one; None to watch them.
        parsed: episodes that need no reading, by number.
    """

    writer: Writer
    frames: Callable[[BenchmarkItem], np.ndarray]
    accounts: Mapping[str, Account] | None = None
    parsed: Mapping[str, Episode] = field(default_factory=dict)


def read_accounts(path: Path) -> dict[str, Field]:
    """Entries of a file like ``actions_extracted.json``, not yet checked.

    Raises:
        RecordError: the file cannot be read, or is no JSON object.
    """
    entries = read_object(path)
    return {name: Field(entry, f"{path}, episode {name}") for name, entry in entries.items()}


def account(entry: Field) -> Account:
    """What a film shows: field ``action`` of an entry, a text or a list of texts.

    Raises:
        RecordError: no such field, or, as in the published file, an empty one.
    """
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
    """The episode of a record; see the module's text.

    Args:
        item: any question of the episode.
        who: the persons that its questions name.
        sources: where it comes from.

    Raises:
        HarnessError: a parsed episode of other people, or a text that names neither person.
        BenchmarkError: the film cannot be read.
    """
    if item.group in sources.parsed:
        episode = sources.parsed[item.group]
        for name in (who.subject, who.other):
            _in_episode(episode, name, item.group)
        return episode
    told = item.context
    if told.dialogue:
        seen = who.other
        people = [Person(n, utterances=_said(told.dialogue, n)) for n in (who.subject, who.other)]
    else:
        actor = actor_of(told.actions, who, item.group)
        seen = who.other if actor == who.subject else who.subject
        done = _listed(sources.writer, told.actions, actor)
        people = [Person(n, done if n == actor else ()) for n in (who.subject, who.other)]
    film = _watched(item, seen, sources)
    first, second = (replace(p, actions=film) if p.name == seen else p for p in people)
    episode = Episode((first, second))
    reply = sources.writer.write(prompts.list_initial(episode))
    return replace(episode, initial=read_list(reply))


def actor_of(text: str, who: People, episode: str) -> str:
    """Whose actions a text tells: the person whom it names first.

    Raises:
        HarnessError: it names neither.
    """
    places = {
        name: found.start()
        for name in (who.subject, who.other)
        if (found := re.search(rf"\b{re.escape(name)}\b", text))
    }
    if not places:
        raise HarnessError(
            f"episode {episode}: its text names neither {who.subject} nor {who.other}, so whose "
            "actions it tells is unknown; give the episode with --parsed"
        )
    return min(places, key=places.__getitem__)


def _in_episode(episode: Episode, name: str, number: str) -> None:
    try:
        episode.person(name)
    except HarnessError as error:
        raise HarnessError(f"--parsed, episode {number}: {error}") from error


def _said(dialogue: str, name: str) -> tuple[str, ...]:
    lines = (line.partition(": ") for line in dialogue.splitlines())
    return tuple(said for speaker, _, said in lines if speaker == name)


def _watched(item: BenchmarkItem, name: str, sources: Sources) -> tuple[str, ...]:
    """What a person does in the film; things that cannot be made out are named by the text."""
    if sources.accounts is not None:
        seen = sources.accounts[item.group]
    else:
        seen = sources.writer.write(prompts.watch(name), sources.frames(item))
    if isinstance(seen, tuple):
        return seen
    told = item.context.dialogue or item.context.actions
    return _listed(sources.writer, seen, name, told)


def _listed(writer: Writer, text: str, name: str, told: str = "") -> tuple[str, ...]:
    return read_list(writer.write(prompts.list_actions(text, name, told)))
