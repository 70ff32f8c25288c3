"""What the agents come to believe, read off a played story.

The protagonist believes that the participant is where it last saw it. The participant models the
protagonist by the same rule, with the protagonist's door as the participant itself last saw it.
Both follow from what each could see; where the second-order false beliefs of the paper's appendix
B.2 come from is said in :mod:`sally_anne.benchmarks.gridtom.plot`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sally_anne.benchmarks.gridtom.paths import Cell
from sally_anne.benchmarks.gridtom.plot import PARTICIPANT, PROTAGONIST, Trace
from sally_anne.core.errors import BenchmarkError


@dataclass(frozen=True)
class Beliefs:
    """Rooms (indices in the map) in which the participant is, and is held to be, at the end.

    Attributes:
        reality: where it is.
        protagonist: where the protagonist believes it is (first order).
        participant: where the participant thinks that the protagonist believes it is
            (second order).
    """

    reality: int
    protagonist: int
    participant: int


def final_beliefs(trace: Trace) -> Beliefs:
    """Derive the beliefs at the end of the story from what each agent could see.

    Raises:
        BenchmarkError: the story ends with the participant, or a belief about it, outside any room.
    """
    layout = trace.staging.layout
    own_room = trace.staging.order[1]
    own_door = layout.doors[own_room]
    last_seen: Cell = trace.states[0].agents[PARTICIPANT][0]
    thought_seen = last_seen
    seen_open: bool | None = None
    for state in trace.states:
        cell, _ = state.agents[PARTICIPANT]
        other_cell, _ = state.agents[PROTAGONIST]
        if cell in state.seen[PROTAGONIST]:
            last_seen = cell
        if own_door in state.seen[PARTICIPANT]:
            seen_open = state.open_doors[own_room]
        # To the participant, the protagonist sees it while both stand in the corridor, or while
        # the protagonist's door was last seen open; behind a closed door of its own, never.
        participant_shut_in = not _corridor_open_to(trace, state.open_doors, cell)
        protagonist_inside = layout.room_of(other_cell) == own_room
        if not participant_shut_in and (not protagonist_inside or seen_open):
            thought_seen = cell
    rooms = []
    for what, where in (
        ("reality", trace.states[-1].agents[PARTICIPANT][0]),
        ("the protagonist's belief", last_seen),
        ("the participant's belief", thought_seen),
    ):
        room = layout.room_of(where)
        if room is None:
            raise BenchmarkError(f"map {layout.name}: {what} ends in the corridor at {where}")
        rooms.append(room)
    return Beliefs(*rooms)


def _corridor_open_to(trace: Trace, open_doors: tuple[bool, bool, bool], cell: Cell) -> bool:
    """Whether an agent on ``cell`` is in the corridor, or in a room whose door stands open."""
    room = trace.staging.layout.room_of(cell)
    return room is None or open_doors[room]
