"""Questions, options, answers and belief statements of a story (paper, appendix C.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sally_anne.benchmarks.gridtom.narration import Cast
from sally_anne.benchmarks.gridtom.palette import COLOURS


@dataclass(frozen=True)
class InitialQuestion:
    """A question about the scene itself.

    Attributes:
        question: text, with the colours to choose from.
        answer: all of these colours must be named, in any order.
        choices: the colours offered.
        section: first and last frame number of the part that it asks about.
    """

    question: str
    answer: tuple[str, ...]
    choices: tuple[str, ...]
    section: tuple[int, int]


@dataclass(frozen=True)
class BeliefQuestion:
    """A belief question of first or second order.

    Attributes:
        question: text without the options.
        options: two rooms, the participant's first and last.
        answer: one of the options.
        statement_true: the belief statement that fits the answer.
        statement_false: the one that fits the other option.
    """

    question: str
    options: tuple[str, str]
    answer: str
    statement_true: str
    statement_false: str


def initial_questions(
    cast: Cast, rooms: Sequence[str], nodes: tuple[int, int, int, int]
) -> tuple[InitialQuestion, InitialQuestion, InitialQuestion]:
    """The three initial-belief questions: agents and colours, the two rooms walked into first.

    Args:
        cast: the colours by their part.
        rooms: the rooms in the order in which they are offered.
        nodes: frame numbers that bound the stages.
    """
    colours = tuple(c for c in COLOURS if c in cast)
    walks = [
        InitialQuestion(
            f"What is the colour of the room that the {agent} agent walks into first? Choose "
            f"from {', '.join(rooms)}. Answer with the colour only.",
            (room,),
            tuple(rooms),
            (0, end),
        )
        for agent, room, end in (
            (cast.participant, cast.first_room, nodes[1]),
            (cast.protagonist, cast.own_room, nodes[2]),
        )
    ]
    return (
        InitialQuestion(
            "How many agents are there, and what are their colours? Choose from "
            f"{', '.join(colours)}. Answer with the colours only.",
            (cast.participant, cast.protagonist),
            colours,
            (0, nodes[3]),
        ),
        walks[0],
        walks[1],
    )


def place_statement(cast: Cast, room: str) -> str:
    """First-order belief statement: where the participant is now."""
    return f"The {cast.participant} agent is now in the {room} room."


def belief_statement(cast: Cast, room: str) -> str:
    """Second-order belief statement: where the protagonist believes the participant is."""
    return (
        f"The {cast.protagonist} agent believes the {cast.participant} agent is now in the "
        f"{room} room."
    )


def first_order(cast: Cast, answer: str) -> BeliefQuestion:
    """Where does the protagonist believe the participant is?"""
    asked = f"does the {cast.protagonist} agent believe the {cast.participant} agent is"
    return _belief_question(cast, asked, answer, place_statement)


def second_order(cast: Cast, answer: str) -> BeliefQuestion:
    """Where does the participant think that the protagonist believes it is?"""
    asked = (
        f"does the {cast.participant} agent think the {cast.protagonist} agent believes the "
        f"{cast.participant} agent is"
    )
    return _belief_question(cast, asked, answer, belief_statement)


def _belief_question(
    cast: Cast, asked: str, answer: str, statement: Callable[[Cast, str], str]
) -> BeliefQuestion:
    other = cast.last_room if answer == cast.first_room else cast.first_room
    return BeliefQuestion(
        f"At the end of the video, in which room {asked}?",
        (cast.first_room, cast.last_room),
        answer,
        statement(cast, answer),
        statement(cast, other),
    )
