"""What a person does, step by step, read from the prose that tells it.

"She opens the stove and closes it, does the same with the fridge, and is about to open the
microwave." The words are few: going, opening, closing, and doing the same again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from sally_anne.data.mmtom_qa.contents import BESIDE, WORD, Contents, said_places, said_thing

Verb = Literal["go to", "pass", "open", "close", "be about to open"]
# What a person is near in the end may be a thing that lies open; "the fridge" is a place.
Aim = Literal["room", "place", "thing"]


@dataclass(frozen=True)
class Action:
    """One step: ``go to`` a room, a place or a thing, ``pass`` one, or a verb and a place."""

    verb: Verb
    target: str
    aim: Aim = "place"


@dataclass(frozen=True)
class Course:
    """Where a person is at first, empty if not told, and all steps after that."""

    room: str
    actions: tuple[Action, ...]


_ABOUT = re.compile(r"\b(?:about|prepar(?:es|ing|ed)|ready|poised|verge)\b", re.IGNORECASE)
_AGAIN = re.compile(
    r"\b(?:do(?:es|ing)?|repeat(?:s|ing)?|continu(?:es|ing)) (?:the |this |that |his |her )?"
    r"(?:(?:previous|same) ?)*(?:actions?|process|pattern|sequence of actions)?(?<! )"
    r"(?P<with> (?:with|for|on)\b)?|(?P<besides>\bas well as\b)",
    re.IGNORECASE,
)
_OPEN = re.compile(r"\bopen(?:s|ing)?\b", re.IGNORECASE)
_CLOSE = re.compile(r"\b(?:clos(?:es?|ing)|shut(?:s|ting)?|seals?|secures)\b", re.IGNORECASE)
_CUES = (("about", _ABOUT), ("again", _AGAIN), ("open", _OPEN), ("close", _CLOSE), ("word", WORD))
# Between verbs, or a verb and its object, in one breath: "opens and then closes the stove".
_OBJECT = re.compile(
    r"\s*,?\s*(?:(?:and|then|subsequently|both|one|of|the|an?|another|each|bathroom)\s+)*",
    re.IGNORECASE,
)
# Right before a place: one that is passed by; and a room that is left, or "each cabinet", those
# that were spoken of before.
_PAST = re.compile(r"\b(?:past|pass(?:es|ing)(?: by)?) (?:the |an? )?\Z", re.IGNORECASE)
_LEFT = re.compile(r"\b(?:leav(?:es|ing)|exits|around|for each|of each) (?:the )?\Z", re.IGNORECASE)
_NEAR = 40
# A verb, and where it stands; done again, it stands nowhere.
_Done = tuple[Verb, int, int]
_BOTH: list[_Done] = [("open", -1, -1), ("close", -1, -1)]


@dataclass
class _Visit:
    """Places spoken of together, and what is done at each of them."""

    targets: list[tuple[str, Aim]]
    end: int
    verbs: list[_Done] = field(default_factory=list)

    def actions(self) -> Iterator[Action]:
        verbs = list(dict.fromkeys(verb for verb, _, _ in self.verbs))
        for target, aim in self.targets:
            if not verbs or verbs[0] in ("open", "close"):
                yield Action("go to", target, aim)
            yield from (Action(verb, target, aim) for verb in verbs if aim == "place")


def read_actions(text: str, contents: Contents) -> Course:
    """The steps of a person in an apartment of which the contents are known.

    A place that is spoken of is gone to first, also where that is not said. What cannot be made out
    is left out, as chance wording is no error.
    """
    # What is done before any place is named is done nowhere.
    start, visits = "", [_Visit([], 0)]
    room = start
    about = again = False
    for kind, match in _cues(text):
        last = visits[-1]
        if kind == "about":
            about = True
        elif kind == "again":
            again = bool(match["with"] or match["besides"])
            last.verbs += [] if again else _BOTH
        elif kind == "close":
            last.verbs.append(("close", *match.span()))
        elif kind == "open":
            last.verbs.append(("be about to open" if about else "open", *match.span()))
            about = False
        elif not _LEFT.search(text, max(0, match.start() - _NEAR), match.start()):
            targets = _targets(match, room, contents)
            first = len(visits) == 1 and not start
            if first and targets and targets[0][1] == "room":
                start = room = targets[0][0]
            if not targets or (targets[0] == (room, "room") and not about):
                continue
            beside = last.targets and BESIDE.fullmatch(text, last.end, match.start())
            if beside and targets[0][1] == last.targets[-1][1] != "room":
                last.targets += targets
            else:
                taken = list(_BOTH) if again else _taken(text, last, match.start())
                if last.verbs or last.targets != targets:
                    visits.append(_Visit(targets, match.end()))
                visits[-1].verbs = taken
                place, aim = targets[-1]
                room = place if aim == "room" else contents.rooms.get(place, room)
            visits[-1].end, again = match.end(), False
    return Course(start, tuple(action for visit in visits for action in visit.actions()))


def _cues(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Verbs, places and things in order; of what overlaps, the first and longest."""
    found = [(name, match) for name, pattern in _CUES for match in pattern.finditer(text)]
    end = 0
    for name, match in sorted(found, key=lambda pair: (pair[1].start(), -pair[1].end())):
        if match.start() >= end:
            end = match.end()
            yield name, match


def _taken(text: str, last: _Visit, place: int) -> list[_Done]:
    """The verbs right before a place, which are taken from what was spoken of before."""
    if _PAST.search(text, max(0, place - _NEAR), place):
        return [("pass", -1, -1)]
    taken: list[_Done] = []
    while last.verbs and last.verbs[-1][2] >= 0:
        if not _OBJECT.fullmatch(text, last.verbs[-1][2], taken[0][1] if taken else place):
            break
        taken.insert(0, last.verbs.pop())
    return taken


def _targets(match: re.Match[str], room: str, contents: Contents) -> list[tuple[str, Aim]]:
    """What a match of ``WORD`` names, for somebody in this room."""
    if match["room"]:
        return [(match["room"].lower(), "room")]
    if thing := said_thing(match):
        return [(thing, "thing")]
    if match["cabinet"]:
        here = f"{room} cabinet"
        others = [place for place in contents.rooms if place.endswith(" cabinet")]
        return [(others[0] if len(others) == 1 and here not in others else here, "place")]
    spoken_in = "kitchen" if match["numbered"] else room
    return [(place, "place") for place in said_places(match, spoken_in)]
