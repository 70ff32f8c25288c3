"""What the options of a question say of a mind, and what somebody with that mind expects when.

A goal is a thing that is looked for, a belief the places where it may be. Beliefs are followed
along what is seen: whoever enters a room sees what lies on its surfaces, whoever opens a container
sees what is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sally_anne.data.items import BenchmarkItem
from sally_anne.data.mmtom_qa.actions import Action, Course
from sally_anne.data.mmtom_qa.contents import Contents, is_surface, places_called, thing_of
from sally_anne.data.mmtom_qa.contrasts import STATEMENT

# What a question leaves open: the goal, or whether a thing is believed to be in a place.
Open = Literal["goal", "inside", "not inside"]

_WANTS = re.compile(r"\bhas been trying to get (?:an?|some|the) (?P<thing>[^,.]+)")
_GIVEN = re.compile(
    r"\bthinks? (?:that )?there (?:isn['’]t|is not|aren['’]t|are not) (?:an?|any|some) "
    r"(?P<thing>.+?) inside the (?P<place>[^,]+),"
)


@dataclass(frozen=True)
class Hypothesis:
    """What one option says of a mind, with what the question takes for granted.

    Attributes:
        goal: the thing that is wanted.
        says: what the option is about.
        places: where the thing is believed to be, or not to be; of several of a name, all. Beside
            a goal, where the question says that it is believed not to be.
    """

    goal: str
    says: Open
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """An action to be judged, and what its person knows before it.

    Attributes:
        action: what is done.
        room: where the person is, empty if that is not told.
        at: the place or thing that the person has gone to, empty in the middle of a room.
        is_open: whether that place is open.
        suspected: places where the wanted thing may be, as far as the person knows.
    """

    action: Action
    room: str
    at: str
    is_open: bool
    suspected: tuple[str, ...]


def hypotheses(item: BenchmarkItem, contents: Contents) -> dict[str, Hypothesis] | None:
    """The hypothesis of each option, by label; None if their wording is not known."""
    found = {o.label: _hypothesis(item.question, o.text, contents) for o in item.options}
    read = {label: entry for label, entry in found.items() if entry}
    return read if len(read) == len(found) else None


def _hypothesis(question: str, option: str, contents: Contents) -> Hypothesis | None:
    if wanted := _WANTS.search(question):
        said, goal = STATEMENT.fullmatch(option.strip()), thing_of(wanted["thing"])
        if said is None or goal is None or thing_of(said["thing"]) != goal:
            return None
        says: Open = "not inside" if said["no"] else "inside"
        return Hypothesis(goal, says, _meant(said["place"], contents))
    wanted, given = _WANTS.search(option), _GIVEN.search(question)
    goal = wanted and thing_of(wanted["thing"])
    if not goal:
        return None
    about = given is not None and thing_of(given["thing"]) == goal
    return Hypothesis(goal, "goal", _meant(given["place"], contents) if given and about else ())


def _meant(name: str, contents: Contents) -> tuple[str, ...]:
    """The places of a name that there are; if the scene tells of none, all that there may be."""
    called = places_called(name)
    return tuple(place for place in called if place in contents.rooms) or called


def steps(hypothesis: Hypothesis, course: Course, contents: Contents) -> tuple[Step, ...]:
    """What is judged under a hypothesis.

    A goal is judged by all that is done. A belief is judged by the last visit alone, the way there
    and what is done there, since before it both options say the same: what was seen so far.
    """
    places = hypothesis.places
    if hypothesis.says == "goal":
        return tuple(followed(hypothesis.goal, course, contents, places))
    last = list(followed(hypothesis.goal, course, contents))[last_visit(course.actions) :]
    if hypothesis.says == "inside":
        return tuple(replace(step, suspected=places) for step in last)
    return tuple(replace(step, suspected=_without(step.suspected, places)) for step in last)


def last_visit(actions: Sequence[Action]) -> int:
    """Where the last visit begins: the room that is gone to for the last place, or this place."""
    first = max(0, len(actions) - 1)
    while first and actions[first - 1].target == actions[-1].target:
        first -= 1
    return first - (first > 0 and actions[first - 1].aim == "room")


def followed(
    goal: str, course: Course, contents: Contents, never: Sequence[str] = ()
) -> Iterator[Step]:
    """Each action, and where the wanted thing may be as far as is known before it.

    At first it may be in any place but those of ``never``. A place that turns out to hold it is
    the only one left; one that does not hold it is none any more.
    """
    visited = (a.target for a in course.actions if a.aim == "place")
    suspected = _without(tuple(dict.fromkeys((*contents.rooms, *visited))), never)
    holding = contents.places_of(goal)
    room, at, is_open = course.room, "", False

    def saw(known: tuple[str, ...], places: Sequence[str]) -> tuple[str, ...]:
        found = tuple(place for place in places if place in holding)
        return found or _without(known, places)

    def surfaces(of: str) -> list[str]:
        return [p for p, where in contents.rooms.items() if where == of and is_surface(p)]

    suspected = saw(suspected, surfaces(room))
    for action in course.actions:
        yield Step(action, room, at, is_open, suspected)
        if action.verb in ("open", "close"):
            is_open, suspected = action.verb == "open", saw(suspected, [action.target])
        elif action.verb != "be about to open":
            before, is_open = room, False
            at = "" if action.aim == "room" or action.verb == "pass" else action.target
            room = (
                action.target if action.aim == "room" else contents.rooms.get(action.target, room)
            )
            if room != before:
                suspected = saw(suspected, surfaces(room))


def _without(places: Sequence[str], some: Sequence[str]) -> tuple[str, ...]:
    return tuple(place for place in places if place not in some)
