"""What is in which container or on which surface, read from the description of an apartment.

The descriptions are free prose with a small stock of words; sentences such as "the stove holds a
plate", "there is a salmon in the stove" and "the first and third cabinets are empty" are
understood. What is not told is left open. Places are named ``fridge``, ``kitchen cabinet 3``,
``bathroom cabinet``, ``living room sofa``, ``kitchen table``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

THINGS = (
    *("salmon", "cupcake", "bottle of wine", "plate", "apple", "condiment bottle", "wine glass"),
    *("water glass", "dish bowl", "remote control", "bag of chips", "book"),
)
# Also "1st", "2nd" and so on, as the questions write them.
_NUMBERS = {
    **{"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5},
    **{"sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10},
    **{"1st": 1, "2nd": 2, "3rd": 3},
    **{f"{number}th": number for number in range(4, 11)},
}
ROOMS = ("kitchen", "bathroom", "bedroom", "living room")
SURFACES = ("coffee table", "desk", "sofa")


def _pattern(thing: str) -> str:
    """One or several of the thing; "the wine" and "the chips" are so called, too."""
    head, of, rest = thing.partition(" of ")
    several = head.replace(" ", " ?") + ("(?:es)?" if head.endswith("s") else "s?")
    return rf"(?:{several}{of})?{rest}(?! ?glass)" if of else several


_ORDINAL = rf"\b(?:{'|'.join(_NUMBERS)})\b"
# A thing, a place or a room; :func:`said_thing` and :func:`said_places` say which.
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
# "..., the microwave and the stove": containers side by side are spoken of together.
BESIDE = re.compile(r"(?:,|,? and|,? as well as|,? followed by)(?: both)?(?: the)? ")
# "... is in both the": what is spoken of just before is in the container that follows.
_WITHIN = re.compile(
    r"[^,;]*\b(?:in|inside|within|on|upon|atop)(?: both)?(?: one of| each of)?(?: the)? "
)
_NEW_CLAUSE = re.compile(r"\b(?:while|but|with|there)\b")
_AND = re.compile(r"\band\b")


@dataclass
class _Mention:
    """A thing, or containers spoken of together, and where they stand in a sentence.

    For a thing, ``containers`` are those that it is in; containers have no ``thing``.
    """

    start: int
    end: int
    thing: str = ""
    containers: tuple[str, ...] = ()


class Contents:
    """What the description of a scene says of its containers."""

    def __init__(self, scene: str) -> None:
        self._inside: set[tuple[str, str]] = set()
        self._told: set[str] = set()
        # The room of each place, also of those of which is told only that they are there.
        self.rooms: dict[str, str] = {}
        # Things of which it is not clear where they are.
        self._loose: set[str] = set()
        for sentence, mentions in _sentences(scene, self.rooms):
            _place(sentence, mentions)
            for mention in mentions:
                if mention.thing:
                    self._inside.update((mention.thing, place) for place in mention.containers)
                    if not mention.containers:
                        self._loose.add(mention.thing)
                # "a fridge" in a list of furniture says nothing of what is in it.
                elif "empty" in sentence or sentence[: mention.start].lower().endswith("the "):
                    self._told.update(mention.containers)

    def holds(self, container: str, thing: str) -> bool | None:
        """Whether the thing is in the container; None if it is not told.

        Both as the questions name them, e.g. ``dishbowl``, ``4th kitchen cabinet``; ``cabinet`` is
        one outside of kitchen and bathroom, of which there may be two.
        """
        name = thing_of(thing)
        if name is None:
            return None
        called = places_called(container)
        told = [place for place in called if len(called) == 1 or self._speaks_of(place)]
        found = {self._one(place, name) for place in told}
        return found.pop() if len(found) == 1 else None

    def places_of(self, thing: str) -> set[str]:
        """Where a thing of :data:`THINGS` is said to be."""
        return {place for name, place in self._inside if name == thing}

    def things_in(self, place: str) -> list[str] | None:
        """What is said to be in a place, in the order of :data:`THINGS`; None if nothing is."""
        found = [thing for thing in THINGS if (thing, place) in self._inside]
        return found if self._speaks_of(place) else None

    def _one(self, place: str, thing: str) -> bool | None:
        if (thing, place) in self._inside:
            return True
        return None if thing in self._loose or not self._speaks_of(place) else False

    def _speaks_of(self, place: str) -> bool:
        return place in self._told or any(place == where for _, where in self._inside)


def is_surface(place: str) -> bool:
    """Whether what lies there is seen by all in the room, as nothing closes it."""
    return place.endswith((*SURFACES, "kitchen table"))


def thing_of(name: str) -> str | None:
    """The one of :data:`THINGS` that goes by a name, such as "dishbowl"; None if there is none."""
    return next((t for t in THINGS if re.fullmatch(_pattern(t), name, re.IGNORECASE)), None)


def places_called(name: str) -> tuple[str, ...]:
    """The places that may be meant by a name as the questions have it, in lower case.

    ``4th kitchen cabinet`` is one; ``cabinet`` and ``desk`` may stand in one room or another.
    """
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
            elif thing := said_thing(match):
                mentions.append(_Mention(*match.span(), thing=thing))
            elif places := said_places(match, room):
                # Of kitchen cabinets the numbered ones are places.
                rooms.update((place, room) for place in places if place != "kitchen cabinet")
                last = mentions[-1] if mentions else None
                beside = last and not last.thing and sentence[last.end : match.start()]
                if last and beside and BESIDE.fullmatch(beside):
                    last.end = match.end()
                    last.containers += places
                else:
                    mentions.append(_Mention(*match.span(), containers=places))
        yield sentence, mentions


def said_thing(match: re.Match[str]) -> str:
    """The thing that a match of :data:`WORD` names; empty if it names none."""
    group = str(match.lastgroup)
    return THINGS[int(group.removeprefix("thing"))] if group.startswith("thing") else ""


def said_places(match: re.Match[str], room: str) -> tuple[str, ...]:
    """The places that a match of :data:`WORD` names, spoken of in this room."""
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
    """Numbers of "first, second and fourth" or "first through fourth"."""
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
            _place_before(sentence, mentions, i, spoken_of=bool(places))
        places = mention.containers


def _place_before(sentence: str, mentions: list[_Mention], at: int, spoken_of: bool) -> None:
    """The things before a container are in it, back to where their clause begins.

    With another container before them, an "and" begins the clause: "the fridge holds a plate, and
    a salmon is in the stove".
    """
    for i in range(at - 1, -1, -1):
        if not mentions[i].thing:
            return
        mentions[i].containers = mentions[at].containers
        before = sentence[mentions[i - 1].end if i else 0 : mentions[i].start]
        if _NEW_CLAUSE.search(before) or (spoken_of and _AND.search(before)):
            return
