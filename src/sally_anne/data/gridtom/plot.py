"""The unexpected-transfer plot, played by agents that search their own way (paper, section 3.1).

What they come to believe is read off the played story, see :func:`final_beliefs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from minigrid.core.actions import Actions

from sally_anne.core.errors import BenchmarkError
from sally_anne.data.gridtom.world import CORRIDOR, STEPS, Agent, Cell, Layout, World, breadth_first

PARTICIPANT, PROTAGONIST = "participant", "protagonist"
Condition = Literal["TB", "FB"]
# move: the paper's. return: the participant has been in the last room before, seen by all; without
# it what is so is always what came last, and whoever is mistaken names the room that came first.
Plot = Literal["move", "return"]
PLOTS: tuple[Plot, ...] = ("move", "return")


class Cast(NamedTuple):
    """The five colours of a story, by their part in the plot.

    The participant leaves the first room for the last, in which it stays; the protagonist believes
    it in one of these two. Where it returns, it has come to the first room from the last.
    """

    participant: str
    protagonist: str
    first_room: str
    own_room: str
    last_room: str

    def visited(self, plot: Plot) -> tuple[str, str]:
        """The participant's two rooms, that which it enters first in front."""
        rooms = self.first_room, self.last_room
        return rooms if plot == "move" else rooms[::-1]


@dataclass(frozen=True)
class Staging:
    """What is fixed before the curtain rises.

    Attributes:
        order: index in the map of the room of each plot role.
        starts: cells of participant and protagonist.
        directions: where they face (0 right, 1 down, 2 left, 3 up).
        plot: whether the participant has been in the last room before.
    """

    layout: Layout
    colours: Cast
    order: tuple[int, int, int]
    starts: tuple[Cell, Cell]
    directions: tuple[int, int]
    plot: Plot = "move"

    @property
    def rooms(self) -> tuple[str, str, str]:
        """The rooms' colours in the order of the map."""
        one, two, three = (self.colours[2 + self.order.index(room)] for room in range(3))
        return one, two, three

    def world(self) -> World:
        """The world as it is in frame 0."""
        agents = map(Agent, self.colours[:2], self.starts, self.directions)
        names = (PARTICIPANT, PROTAGONIST)
        return World(self.layout, self.rooms, dict(zip(names, agents, strict=True)))


@dataclass(frozen=True)
class State:
    """One tick: where the agents are, which doors (by room) are open, what each agent sees."""

    agents: dict[str, tuple[Cell, int]]
    open_doors: tuple[bool, ...]
    seen: dict[str, frozenset[Cell]]


@dataclass(frozen=True)
class Trace:
    """A played story: one state a tick, and the four ticks that bound its stages."""

    staging: Staging
    states: tuple[State, ...]
    nodes: tuple[int, int, int, int]


class _Play:
    """Plays the agents' moves tick by tick and records every state."""

    def __init__(self, staging: Staging) -> None:
        self.layout = staging.layout
        self.world = staging.world()
        self.states: list[State] = []
        # The room at which the participant does not look.
        self.overlooked: int | None = None
        self.record()

    def record(self) -> None:
        self.states.append(
            State(
                agents={n: (a.cell, a.direction) for n, a in self.world.agents.items()},
                open_doors=tuple(door.is_open for door in self.world.doors),
                seen={
                    PARTICIPANT: self.world.seen_by(PARTICIPANT, self.overlooked),
                    PROTAGONIST: self.world.seen_by(PROTAGONIST),
                },
            )
        )

    def tick(self, name: str, action: Actions, meanwhile: dict[str, Actions] | None = None) -> None:
        self.world.step({name: action, **(meanwhile or {})})
        self.record()

    def face(self, name: str, direction: int) -> None:
        agent = self.world.agents[name]
        while agent.direction != direction:
            clockwise = (direction - agent.direction) % 4
            self.tick(name, Actions.left if clockwise == 3 else Actions.right)

    def advance(self, name: str, cell: Cell) -> None:
        """Turn towards the cell next to the agent and step on it."""
        x, y = self.world.agents[name].cell
        self.face(name, STEPS.index((cell[0] - x, cell[1] - y)))
        self.tick(name, Actions.forward)

    def go_in(self, name: str, room: int) -> None:
        """Walk to the room's door, open it if it is closed, step in and turn to the door."""
        layout, agents = self.layout, self.world.agents
        front, inside = layout.thresholds[room]
        door = layout.doors[room]
        free = set(layout.marked(CORRIDOR)) - {a.cell for n, a in agents.items() if n != name}
        walk = breadth_first(agents[name].cell, front, free.__contains__)
        if walk is None:
            raise BenchmarkError(f"map {layout.name}: {name} has no way to room {room + 1}")
        for cell in walk:
            self.advance(name, cell)
        towards = STEPS.index((door[0] - front[0], door[1] - front[1]))
        self.face(name, towards)
        if not self.world.doors[room].is_open:
            self.tick(name, Actions.toggle)
        self.advance(name, door)
        self.advance(name, inside)
        self.face(name, (towards + 2) % 4)

    def change_room(
        self, name: str, old: int, new: int, meanwhile: dict[str, Actions] | None = None
    ) -> None:
        """Leave a room by its open door and shut itself in another; others act as it steps out."""
        self.tick(name, Actions.forward, meanwhile)
        self.advance(name, self.layout.thresholds[old][0])
        self.go_in(name, new)
        self.tick(name, Actions.toggle)


def play(staging: Staging, first: Condition, second: Condition = "TB") -> Trace:
    """Play the story.

    Stage 1: the participant goes into the first room and closes its door. Stage 2: the protagonist
    goes into its own room, and closes its door or waits. Stage 3: the participant leaves the first
    room, goes into the last and closes its door. Where it returns, it goes into the last room in
    stage 1, and in stage 2, as long as the protagonist's door is open, from there into the first.

    Args:
        staging: what is fixed before.
        first: the protagonist's belief at the end; with ``second`` "FB" the door is therefore
            first left the other way.
        second: "FB" if the protagonist's door changes in the very tick in which the participant
            steps out (appendix B.2), unnoticed.
    """
    first_room, own_room, last_room = staging.order
    door_closed_at_first = (first == "FB") != (second == "FB")
    stage = _Play(staging)
    returns = staging.plot == "return"
    stage.go_in(PARTICIPANT, last_room if returns else first_room)
    stage.tick(PARTICIPANT, Actions.toggle)
    end_1 = len(stage.states) - 1
    stage.go_in(PROTAGONIST, own_room)
    if returns:
        stage.tick(PARTICIPANT, Actions.toggle)
        stage.change_room(PARTICIPANT, last_room, first_room)
    # Waiting takes the tick that closing takes, so that both conditions share their frame numbers.
    stage.tick(PROTAGONIST, Actions.toggle if door_closed_at_first else Actions.done)
    end_2 = len(stage.states) - 1
    stage.tick(PARTICIPANT, Actions.toggle)
    meanwhile = {PROTAGONIST: Actions.toggle} if second == "FB" else None
    # By the rule of seeing alone (section 3: nothing is hidden but behind closed doors) it would
    # notice the change. The paper does not say why it does not; here it looks no more at that room.
    stage.overlooked = own_room if second == "FB" else None
    stage.change_room(PARTICIPANT, first_room, last_room, meanwhile)
    end_3 = len(stage.states) - 1
    return Trace(staging, tuple(stage.states), (0, end_1, end_2, end_3))


def final_beliefs(trace: Trace) -> tuple[int, int, int]:
    """The beliefs at the end of a story, derived from what each agent could see.

    The protagonist believes that the participant is where it last saw it. The participant models
    it by the same rule, with the protagonist's door as the participant itself last saw it.

    Returns:
        Rooms (indices in the map): where the participant is, where the protagonist believes it is,
        and where the participant thinks that the protagonist believes it is; BenchmarkError if one
        of these is the corridor.
    """
    layout, own_room = trace.staging.layout, trace.staging.order[1]
    own_door = layout.doors[own_room]
    cell: Cell = trace.states[0].agents[PARTICIPANT][0]
    last_seen = thought_seen = cell
    seen_open: bool | None = None
    for state in trace.states:
        cell = state.agents[PARTICIPANT][0]
        if cell in state.seen[PROTAGONIST]:
            last_seen = cell
        if own_door in state.seen[PARTICIPANT]:
            seen_open = state.open_doors[own_room]
        # To the participant, the protagonist sees it while both stand in the corridor, or while
        # the protagonist's door was last seen open; behind a closed door of its own, never.
        room = layout.room_of(cell)
        in_view = room is None or state.open_doors[room]
        protagonist_inside = layout.room_of(state.agents[PROTAGONIST][0]) == own_room
        if in_view and (not protagonist_inside or seen_open):
            thought_seen = cell

    def room_at(what: str, where: Cell) -> int:
        room = layout.room_of(where)
        if room is None:
            raise BenchmarkError(f"map {layout.name}: {what} ends in the corridor at {where}")
        return room

    return (
        room_at("reality", cell),
        room_at("the protagonist's belief", last_seen),
        room_at("the participant's belief", thought_seen),
    )
