"""The story in our own words, with the parts of the paper's (appendix C.2, figures 11 to 13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sally_anne.data.gridtom import plot as world
from sally_anne.data.gridtom.plot import COLOURS, Cast, Condition, Nodes, Perspective, Plot


def environment(rooms: Sequence[str] = ()) -> str:
    """The world in general; without rooms it leaves open what the initial-belief questions ask."""
    named = "Each room has a colour and a door of its own colour. A triangle is an agent."
    if rooms:
        named = (
            "There are three rooms, the {} room, the {} room and the {} room, each with a door of "
            "its own colour. The two triangles are agents."
        ).format(*rooms)
    return (
        f"This is a small world seen from above, with {world.ROWS} rows and {world.COLUMNS} "
        "columns. Grey squares are walls. Black squares are the corridor. "
        f"{named} Nobody can see through a closed door."
    )


def caption(
    cast: Cast,
    first: Condition,
    second: Condition | None = None,
    perspective: Perspective = "omniscient",
    plot: Plot = "move",
) -> str:
    """The story as one perspective knows it; with ``second`` what is seen of the other's door."""
    a, b, r1, r2, r3 = cast
    closed = (first == "FB") != (second == "FB")
    entered = cast.visited(plot)[0]
    arrival = (
        f"At first the {a} agent is in the corridor. It goes to the {entered} room, opens the "
        f"{entered} door, walks into the {entered} room and closes the {entered} door. All this "
        f"time the {b} agent is in the corridor and sees the {a} agent go into the {entered} room."
    )
    # It has left that door open before.
    opens = f" opens the {r3} door," if plot == "move" else ""
    transfer = (
        f"Then the {a} agent goes to the {r3} room,{opens} walks into the {r3} room and closes the "
        f"{r3} door."
    )
    inside = _inside(b, r2, closed)
    leaves = f"the {a} agent opens the {r1} door and leaves the {r1} room."
    if perspective == "omniscient":
        sighting = _door_sighting(cast, closed, second) if second else ""
        parts = (_own_room(cast, closed, plot), f"{inside} {leaves}{sighting} {transfer}")
    elif perspective == "participant":
        # What it sees when it opens its door belongs to its view in the first-order version too; a
        # change of the other's door that it does not notice does not.
        sighting = _door_sighting(cast, closed, "TB")
        waits, goes = unknowing(a, r1), f"{leaves[0].upper()}{leaves[1:]}{sighting} {transfer}"
        parts = (f"{unknowing(a, r3)} {_goes_back(cast)}", f"{waits} {goes}")
        parts = (waits, goes) if plot == "move" else parts
    else:
        change = f"Just then the {b} agent {'opens' if closed else 'closes'} the {r2} door"
        if second == "FB" and closed:
            seen = f"{change} and sees the {a} agent leave the {r1} room."
            end = f"{_ignorance(b, r2)} {seen} {transfer}"
        elif second == "FB":
            end = f"the {a} agent opens the {r1} door. {change}, so {_ignorance(b, r2)}"
        else:
            end = _ignorance(b, r2) if closed else f"{leaves} {transfer}"
        parts = (_own_room(cast, closed, plot), f"{inside} {end}")
    return f"1. {arrival} 2. {parts[0]} 3. {parts[1]} The video ends here."


def unknowing(agent: str, room: str) -> str:
    return f"{_inside(agent, room, True)} {_ignorance(agent, room)}"


def _inside(agent: str, room: str, closed: bool) -> str:
    door = "closed" if closed else "open"
    return f"While the {agent} agent is in the {room} room with the {room} door {door},"


def _ignorance(agent: str, room: str) -> str:
    return f"the {agent} agent does not know what happens outside the {room} room."


def _goes_back(cast: Cast) -> str:
    a, b, r1, r2, r3 = cast
    return (
        f"The {a} agent opens the {r3} door, leaves the {r3} room and sees that the {r2} door is "
        f"open. It goes to the {r1} room, opens the {r1} door, walks into the {r1} room and closes "
        f"the {r1} door."
    )


def _own_room(cast: Cast, closed: bool, plot: Plot) -> str:
    _, b, _, r2, _ = cast
    entered = cast.visited(plot)[0]
    waits = f" For now the {b} agent leaves the {r2} door open and sees all. {_goes_back(cast)}"
    then = " The" if plot == "move" else f"{waits} Then the"
    acts = f"closes the {r2} door" if closed else f"leaves the {r2} door open"
    sees = "nothing" if closed else "all"
    return (
        f"After the {entered} door is closed, the {b} agent goes to the {r2} room, opens the {r2} "
        f"door and walks into the {r2} room.{then} {b} agent {acts}, so the {b} agent "
        f"can see {sees} that happens outside the {r2} room."
    )


def _door_sighting(cast: Cast, closed: bool, second: Condition) -> str:
    a, b, _, r2, _ = cast
    state = "closed" if closed else "open"
    seen = f" At this moment the {a} agent sees that the {r2} door is {state}."
    if second == "TB":
        return seen
    change = "opens" if closed else "closes"
    effect = "sees" if closed else "does not see"
    return (
        f"{seen} But just then the {b} agent {change} the {r2} door, and the {a} agent does not "
        f"notice it, so the {b} agent {effect} the {a} agent leave."
    )


@dataclass(frozen=True)
class InitialQuestion:
    """A question about the frames of a ``section``, first to last; all of ``answer`` is named."""

    question: str
    answer: tuple[str, ...]
    choices: tuple[str, ...]
    section: tuple[int, int]


@dataclass(frozen=True)
class BeliefQuestion:
    """A belief question, without its options in the text; a statement fits either option."""

    question: str
    options: tuple[str, str]
    answer: str
    statement_true: str
    statement_false: str


def initial_questions(
    cast: Cast, rooms: Sequence[str], nodes: Nodes, plot: Plot = "move"
) -> tuple[InitialQuestion, InitialQuestion, InitialQuestion]:
    colours = tuple(c for c in COLOURS if c in cast)
    agents = InitialQuestion(
        "How many agents are there, and what are their colours? Choose from "
        f"{', '.join(colours)}. Answer with the colours only.",
        (cast.participant, cast.protagonist),
        colours,
        (0, nodes[3]),
    )
    first, second = (
        InitialQuestion(
            f"What is the colour of the room that the {agent} agent walks into first? Choose "
            f"from {', '.join(rooms)}. Answer with the colour only.",
            (room,),
            tuple(rooms),
            (0, end),
        )
        for agent, room, end in (
            (cast.participant, cast.visited(plot)[0], nodes[1]),
            (cast.protagonist, cast.own_room, nodes[2]),
        )
    )
    return agents, first, second


def belief_statement(cast: Cast, room: str, order: int = 1) -> str:
    """Where the participant is now; of second order, where the protagonist believes that it is."""
    who = f"The {cast.protagonist} agent believes the" if order == 2 else "The"
    return f"{who} {cast.participant} agent is now in the {room} room."


def question_of(cast: Cast, answer: str, order: Literal[0, 1, 2]) -> BeliefQuestion:
    """Where one believes the other is; of order 2 what that is thought to be, of 0 where it is."""
    a, b = cast[:2]
    asked = (
        f"is the {a} agent",
        f"does the {b} agent believe the {a} agent is",
        f"does the {a} agent think the {b} agent believes the {a} agent is",
    )[order]
    other = cast.last_room if answer == cast.first_room else cast.first_room
    return BeliefQuestion(
        f"At the end of the video, in which room {asked}?",
        (cast.first_room, cast.last_room),
        answer,
        belief_statement(cast, answer, order),
        belief_statement(cast, other, order),
    )
