"""What LIMP reasons about: what two people did and said, what there was, what may be in a mind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sally_anne.core.errors import HarnessError, RecordError
from sally_anne.data.fields import Field, read_json
from sally_anne.data.muma_tom import cleaned


@dataclass(frozen=True)
class Person:
    """One person's part: clauses of what is done, and what is said, each in the order of time."""

    name: str
    actions: tuple[str, ...] = ()
    utterances: tuple[str, ...] = ()


@dataclass(frozen=True)
class Episode:
    """One interaction: the two persons, and what was where before anybody acted."""

    people: tuple[Person, Person]
    initial: tuple[str, ...] = ()

    def person(self, name: str) -> Person:
        """One of the two; HarnessError if nobody has this name."""
        for person in self.people:
            if person.name == name:
                return person
        names = " and ".join(person.name for person in self.people)
        raise HarnessError(f"the question is about {name}, the episode has {names}")


@dataclass(frozen=True)
class Hypothesis:
    """The latent variables of one option (paper, appendix 11.3); empty where it leaves one open."""

    belief: str = ""  # what the person takes to be where
    social_goal: str = ""  # what is wanted with regard to the other: help, hinder, or neither
    believed_goal: str = ""  # what the person thinks that the other wants


@dataclass(frozen=True)
class Step:
    """An ``utterance`` or ``action`` to be judged, and what the same person did before it."""

    kind: str
    text: str
    before: tuple[str, ...] = ()


def steps(person: Person) -> tuple[Step, ...]:
    """What a person said and did, utterances first, as in the paper's released code."""
    said = [Step("utterance", text) for text in person.utterances]
    done = [Step("action", text, person.actions[:i]) for i, text in enumerate(person.actions)]
    return (*said, *done)


def to_json(episode: Episode) -> dict[str, Any]:
    return {
        "initial": list(episode.initial),
        "people": {
            person.name: {"actions": list(person.actions), "utterances": list(person.utterances)}
            for person in episode.people
        },
    }


def from_json(field: Field) -> Episode:
    """An episode from ``{"initial": [...], "people": {name: {"actions", "utterances"}}}``.

    Lists may be left out; a RecordError names file, episode and field.
    """
    entries = field.get("people").entries()
    if len(entries) != 2:
        field.get("people").fail(f"must name two people, names {len(entries)}")
    first, second = (
        Person(name, _texts(entry, "actions"), _texts(entry, "utterances"))
        for name, entry in entries.items()
    )
    return Episode((first, second), _texts(field, "initial"))


def read_episodes(path: Path) -> dict[str, Episode]:
    return {number: from_json(entry) for number, entry in read_entries(path).items()}


def read_entries(path: Path) -> dict[str, Field]:
    """The entries of a JSON file by episode, not yet checked."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise RecordError(f"{path}: must be an object with one entry an episode")
    return {number: Field(entry, f"{path}, episode {number}") for number, entry in value.items()}


def _texts(field: Field, name: str) -> tuple[str, ...]:
    if not isinstance(field.value, dict):
        field.get(name)  # says what it is instead
    return tuple(cleaned(item) for item in field.get(name).items()) if field.has(name) else ()
