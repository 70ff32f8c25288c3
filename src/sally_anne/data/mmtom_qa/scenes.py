"""Apartments and actions, read from MMToM-QA's prose: what is where, and what a person does.

The prose is free, with a small stock of words: "the stove holds a plate", "there is a salmon in the
stove", "the first and third cabinets are empty"; "she opens the stove and closes it, does the same
with the fridge, and is about to open the microwave". What is not stated is left open. Places are
named ``fridge``, ``kitchen cabinet 3``, ``bathroom cabinet``, ``living room sofa``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

THINGS = (
    *("salmon", "cupcake", "bottle of wine", "plate", "apple", "condiment bottle", "wine glass"),
    *("water glass", "dish bowl", "remote control", "bag of chips", "book"),
)
_NUMBERS = {
    **{"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5},
    **{"sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10},
    # As the questions write them.
    **{"1st": 1, "2nd": 2, "3rd": 3},
    **{f"{number}th": number for number in range(4, 11)},
}
ROOMS = ("kitchen", "bathroom", "bedroom", "living room")
SURFACES = ("coffee table", "desk", "sofa")


def _pattern(thing: str) -> str:
    head, of, rest = thing.partition(" of ")
    several = head.replace(" ", " ?") + ("(?:es)?" if head.endswith("s") else "s?")
    return rf"(?:{several}{of})?{rest}(?! ?glass)" if of else several


_ORDINAL = rf"\b(?:{'|'.join(_NUMBERS)})\b"
# A thing, a place or a room; :func:`named_thing` and :func:`named_places` say which.
WORD = re.compile(
    rf"(?P<numbered>{_ORDINAL}(?:(?:,? and |,? through |, | to )(?:the )?{_ORDINAL})*)"
    r"(?P<named> (?:kitchen )?cabinets?| ones?\b)?"
    r"|(?P<cabinet>\bcabinets?\b)"
    r"|(?P<appliance>\b(?:fridge|refrigerator|microwave|stove|dishwasher)\b)"
    r"|(?P<surface>\b(?:(?:coffee|kitchen) )?tables?\b|\bdesks?\b|\bsofas?\b)"
    r"|(?P<room>\b(?:kitchen|bathroom|bedroom|living room)\b)"
    + "".join(rf"|(?P<thing{i}>\b{_pattern(thing)}\b)" for i, thing in enumerate(THINGS)),
    re.IGNORECASE,
)
# "..., the microwave and the stove": containers of one list belong together.
JOINED = re.compile(r"(?:,|,? and|,? as well as|,? followed by)(?: both)?(?: the)? ")
# "... is in both the": what is named just before is in the container that follows.
_WITHIN = re.compile(
    r"[^,;]*\b(?:in|inside|within|on|upon|atop)(?: both)?(?: one of| each of)?(?: the)? "
)
_NEW_CLAUSE = re.compile(r"\b(?:while|but|with|there)\b")
_AND = re.compile(r"\band\b")


@dataclass
class _Mention:
    """A thing and the containers it is in, or (without a thing) containers of one list."""

    start: int
    end: int
    thing: str = ""
    containers: tuple[str, ...] = ()


class Contents:
    """What the description of a scene says of its containers; ``rooms`` by place."""

    def __init__(self, scene: str) -> None:
        self.rooms: dict[str, str] = {}
        self._inside: set[tuple[str, str]] = set()
        self._known: set[str] = set()
        # Things of which it is not clear where they are.
        self._loose: set[str] = set()
        for sentence, mentions in _sentences(scene, self.rooms):
            _place(sentence, mentions)
            for mention in mentions:
                if mention.thing and not mention.containers:
                    self._loose.add(mention.thing)
                elif mention.thing:
                    self._inside.update((mention.thing, place) for place in mention.containers)
                # "a fridge" in a list of furniture says nothing of what is in it.
                elif "empty" in sentence or sentence[: mention.start].lower().endswith("the "):
                    self._known.update(mention.containers)
        self._known |= {place for _, place in self._inside}

    def holds(self, container: str, thing: str) -> bool | None:
        """Whether the thing is in the container, as the questions name them; None if not stated."""
        name, called = thing_of(thing), places_called(container)
        known = [place for place in called if len(called) == 1 or place in self._known]
        states = {self._one(place, name) for place in known if name}
        return states.pop() if len(states) == 1 else None

    def places_of(self, thing: str) -> set[str]:
        return {place for name, place in self._inside if name == thing}

    def things_in(self, place: str) -> list[str] | None:
        found = [thing for thing in THINGS if (thing, place) in self._inside]
        return found if place in self._known else None

    def _one(self, place: str, thing: str) -> bool | None:
        if (thing, place) in self._inside:
            return True
        return None if thing in self._loose or place not in self._known else False


def is_surface(place: str) -> bool:
    return place.endswith((*SURFACES, "kitchen table"))


def thing_of(name: str) -> str | None:
    """The one of :data:`THINGS` that goes by a name, such as "dishbowl"; None if there is none."""
    return next((t for t in THINGS if re.fullmatch(_pattern(t), name, re.IGNORECASE)), None)


def places_called(name: str) -> tuple[str, ...]:
    """The places that a name may mean; ``cabinet`` and ``desk`` may be in several rooms."""
    name = name.lower()
    number, _, rest = name.partition(" ")
    if rest == "kitchen cabinet" and number in _NUMBERS:
        return (f"kitchen cabinet {_NUMBERS[number]}",)
    if name == "cabinet":
        return ("bedroom cabinet", "living room cabinet")
    return tuple(f"{room} {name}" for room in ROOMS) if name in SURFACES else (name,)


def _sentences(scene: str, rooms: dict[str, str]) -> Iterator[tuple[str, list[_Mention]]]:
    """Each sentence with its things and containers in order; the room of each place is noted."""
    room = ""
    for sentence in re.split(r"(?<=\.)\s+|\n", scene):
        mentions: list[_Mention] = []
        for match in WORD.finditer(sentence):
            if match["room"]:
                room = match["room"].lower()
            elif thing := named_thing(match):
                mentions.append(_Mention(*match.span(), thing=thing))
            elif places := named_places(match, room):
                # Of kitchen cabinets the numbered ones are places.
                rooms.update((place, room) for place in places if place != "kitchen cabinet")
                last = mentions[-1] if mentions and not mentions[-1].thing else None
                if last and JOINED.fullmatch(sentence, last.end, match.start()):
                    last.end = match.end()
                    last.containers += places
                else:
                    mentions.append(_Mention(*match.span(), containers=places))
        yield sentence, mentions


def named_thing(match: re.Match[str]) -> str:
    group = str(match.lastgroup)
    return THINGS[int(group.removeprefix("thing"))] if group.startswith("thing") else ""


def named_places(match: re.Match[str], room: str) -> tuple[str, ...]:
    """The places that a match of :data:`WORD` names, for somebody in this room."""
    if match["appliance"]:
        return (match["appliance"].lower().replace("refrigerator", "fridge"),)
    if match["surface"]:
        surface = match["surface"].lower().removesuffix("s")
        return (f"{room} {surface}" if surface in SURFACES else "kitchen table",)
    if match["cabinet"]:
        return (f"{room} cabinet",)
    if not match["named"] and room != "kitchen":
        return ()
    return tuple(f"kitchen cabinet {number}" for number in _series(match["numbered"]))


def _series(text: str) -> list[int]:
    numbers: list[int] = []
    through = False
    for word in re.findall(r"\w+", text.lower()):
        if word in _NUMBERS:
            number = _NUMBERS[word]
            numbers.extend(range(numbers[-1] + 1, number + 1) if through else [number])
        through = word in ("through", "to") or (through and word == "the")
    return numbers


def _place(sentence: str, mentions: list[_Mention]) -> None:
    """Say of each thing which containers it is in: those before it, or those named for it after."""
    places: tuple[str, ...] = ()
    for i, mention in enumerate(mentions):
        if mention.thing:
            mention.containers = places
            continue
        between = sentence[mentions[i - 1].end : mention.start] if i else ""
        if i and mentions[i - 1].thing and _WITHIN.fullmatch(between) and not _AND.search(between):
            _place_before(sentence, mentions, i, mentioned=bool(places))
        places = mention.containers


def _place_before(sentence: str, mentions: list[_Mention], at: int, mentioned: bool) -> None:
    """The things before a container are in it, back to where their clause begins.

    With another container before them an "and" begins it ("holds a plate, and a salmon is in ...").
    """
    for i in range(at - 1, -1, -1):
        if not mentions[i].thing:
            return
        mentions[i].containers = mentions[at].containers
        before = sentence[mentions[i - 1].end if i else 0 : mentions[i].start]
        if _NEW_CLAUSE.search(before) or (mentioned and _AND.search(before)):
            return


Verb = Literal["go to", "pass", "open", "close", "be about to open"]
# What a person is near in the end may be a thing that lies open; "the fridge" is a place.
Aim = Literal["room", "place", "thing"]


@dataclass(frozen=True)
class Action:
    verb: Verb
    target: str
    aim: Aim = "place"


@dataclass(frozen=True)
class Course:
    """Where a person is at first, empty if unknown, and all steps after that."""

    room: str
    actions: tuple[Action, ...]


_ABOUT = re.compile(r"\b(?:about|prepar(?:es|ing|ed)|ready|poised|verge)\b", re.IGNORECASE)
_AGAIN = re.compile(
    r"\b(?:do(?:es|ing)?|repeat(?:s|ing)?|continu(?:es|ing)) (?:the |this |that |his |her )?"
    r"(?:(?:previous|same) ?)*(?:actions?|process|pattern|sequence of actions)?(?<! )"
    r"(?P<with> (?:with|for|on)\b)?|(?P<joineds>\bas well as\b)",
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
# that were mentioned before.
_PAST = re.compile(r"\b(?:past|pass(?:es|ing)(?: by)?) (?:the |an? )?\Z", re.IGNORECASE)
_LEFT = re.compile(r"\b(?:leav(?:es|ing)|exits|around|for each|of each) (?:the )?\Z", re.IGNORECASE)
_NEAR = 40
# A verb, and where it stands; done again, it stands nowhere.
_Done = tuple[Verb, int, int]
_BOTH: list[_Done] = [("open", -1, -1), ("close", -1, -1)]


@dataclass
class _Visit:
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
    """A place that is mentioned is gone to first; what cannot be made out is left out."""
    # What is done before any place is named is done nowhere.
    start, visits = "", [_Visit([], 0)]
    room = start
    about = again = False
    for kind, match in _cues(text):
        last = visits[-1]
        if kind == "about":
            about = True
        elif kind == "again":
            again = bool(match["with"] or match["joineds"])
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
            joined = last.targets and JOINED.fullmatch(text, last.end, match.start())
            if joined and targets[0][1] == last.targets[-1][1] != "room":
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
    """The verbs right before a place, which are taken from the visit before."""
    if _PAST.search(text, max(0, place - _NEAR), place):
        return [("pass", -1, -1)]
    taken: list[_Done] = []
    while last.verbs and last.verbs[-1][2] >= 0:
        if not _OBJECT.fullmatch(text, last.verbs[-1][2], taken[0][1] if taken else place):
            break
        taken.insert(0, last.verbs.pop())
    return taken


def _targets(match: re.Match[str], room: str, contents: Contents) -> list[tuple[str, Aim]]:
    if match["room"]:
        return [(match["room"].lower(), "room")]
    if thing := named_thing(match):
        return [(thing, "thing")]
    if match["cabinet"]:
        here = f"{room} cabinet"
        others = [place for place in contents.rooms if place.endswith(" cabinet")]
        return [(others[0] if len(others) == 1 and here not in others else here, "place")]
    mentioned_in = "kitchen" if match["numbered"] else room
    return [(place, "place") for place in named_places(match, mentioned_in)]
