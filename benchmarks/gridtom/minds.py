"""What the agents come to believe, read off a played story.

The protagonist believes that the participant is where it last saw it. The participant models the
protagonist by the same rule, with the protagonist's door as the participant itself last noticed
it. An agent notices a door when it first comes into view and when it moves while watched, but not
in a tick in which the agent itself steps through a doorway: that is the timing by which the
second-order false beliefs of the paper's appendix B.2 come about.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.gridtom.errors import GridToMError
from benchmarks.gridtom.layout import DOOR_MARKS
from benchmarks.gridtom.paths import Cell
from benchmarks.gridtom.plot import PARTICIPANT, PROTAGONIST, Trace


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
        GridToMError: the story ends with the participant, or a belief about it, outside any room.
    """
    layout = trace.staging.layout
    own_room = trace.staging.order[1]
    own_door = layout.doors[own_room]
    last_seen: Cell = trace.states[0].agents[PARTICIPANT][0]
    thought_seen = last_seen
    noticed_open: bool | None = None
    in_view_before = False
    door_before = trace.states[0].open_doors[own_room]
    cell_before = last_seen
    for state in trace.states:
        cell, _ = state.agents[PARTICIPANT]
        other_cell, _ = state.agents[PROTAGONIST]
        if cell in state.seen[PROTAGONIST]:
            last_seen = cell
        door_open = state.open_doors[own_room]
        in_view = own_door in state.seen[PARTICIPANT]
        through_doorway = cell != cell_before and layout.mark(cell) in DOOR_MARKS
        moved = door_open != door_before
        if in_view and (not in_view_before or (moved and not through_doorway)):
            noticed_open = door_open
        # To the participant, the protagonist sees it while both stand in the corridor, or while
        # the protagonist's door was last noticed open; behind a closed door of its own, never.
        participant_shut_in = not _corridor_open_to(trace, state.open_doors, cell)
        protagonist_inside = layout.room_of(other_cell) == own_room
        if not participant_shut_in and (not protagonist_inside or noticed_open):
            thought_seen = cell
        in_view_before, door_before, cell_before = in_view, door_open, cell
    rooms = []
    for what, where in (
        ("reality", trace.states[-1].agents[PARTICIPANT][0]),
        ("the protagonist's belief", last_seen),
        ("the participant's belief", thought_seen),
    ):
        room = layout.room_of(where)
        if room is None:
            raise GridToMError(f"map {layout.name}: {what} ends in the corridor at {where}")
        rooms.append(room)
    return Beliefs(*rooms)


def _corridor_open_to(trace: Trace, open_doors: tuple[bool, bool, bool], cell: Cell) -> bool:
    """Whether an agent on ``cell`` is in the corridor, or in a room whose door stands open."""
    room = trace.staging.layout.room_of(cell)
    return room is None or open_doors[room]
