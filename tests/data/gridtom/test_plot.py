"""The played stories: what can never happen in them, and the beliefs that follow."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door

from sally_anne.core.errors import BenchmarkError
from sally_anne.data.gridtom import plot
from sally_anne.data.gridtom.plot import (
    PARTICIPANT,
    PROTAGONIST,
    STEPS,
    Cell,
    Layout,
    Story,
    Trace,
    benchmark_layouts,
    play,
    random_layouts,
    search,
    shortest_walk,
    start_pairs,
    visible,
)
from sally_anne.data.gridtom.render import MASKED, TILE, RoomFloor, key_frames, render, tile
from sally_anne.data.gridtom.stories import COMBINATIONS, generate, seeded_stories


def sample() -> list[Story]:
    """One story on each of 12 random maps and on each benchmark map; orders differ."""
    random_maps = generate(3, list(itertools.islice(random_layouts(11), 12)))
    return random_maps[::25] + generate()[::25]


@pytest.fixture(scope="module")
def traces() -> list[tuple[Story, dict[tuple[str, str], Trace]]]:
    return [(s, {pair: play(s, *pair) for pair in COMBINATIONS}) for s in sample()]


def test_nobody_is_ever_in_a_wall_a_closed_door_or_another(traces) -> None:
    for story, versions in traces:
        layout = story.layout
        for trace in versions.values():
            for state in trace.states:
                cells = [cell for cell, _ in state.agents.values()]
                assert len(set(cells)) == 2
                for cell in cells:
                    mark = layout.mark(cell)
                    assert mark != "#"
                    if mark in "ABC":
                        assert state.open_doors["ABC".index(mark)]


def test_one_tick_is_one_step_or_one_turn_or_one_toggle_at_hand(traces) -> None:
    for story, versions in traces:
        layout = story.layout
        for trace in versions.values():
            for before, after in itertools.pairwise(trace.states):
                for name in (PARTICIPANT, PROTAGONIST):
                    (x, y), facing = before.agents[name]
                    (u, v), turned = after.agents[name]
                    moved = abs(x - u) + abs(y - v)
                    assert moved <= 1
                    assert not moved or (facing == turned and (u - x, v - y) == STEPS[facing])
                    assert (turned - facing) % 4 != 2
                toggled = [r for r in range(3) if before.open_doors[r] != after.open_doors[r]]
                assert len(toggled) <= 1
                for room in toggled:
                    ahead = {
                        (cell[0] + STEPS[d][0], cell[1] + STEPS[d][1])
                        for cell, d in before.agents.values()
                    }
                    assert layout.doors[room] in ahead
                    assert layout.doors[room] not in [c for c, _ in before.agents.values()]


def test_versions_share_their_frame_numbers_and_beginning(traces) -> None:
    for _, versions in traces:
        assert len({trace.nodes for trace in versions.values()}) == 1
        assert len({len(trace.states) for trace in versions.values()}) == 1
        nodes = versions["TB", "TB"].nodes
        assert nodes[0] == 0 < nodes[1] < nodes[2] < nodes[3]
        assert nodes[3] == len(versions["TB", "TB"].states) - 1
        starts = [trace.states[: nodes[2]] for trace in versions.values()]
        assert all(start == starts[0] for start in starts)


def test_stages_end_as_the_plot_says(traces) -> None:
    for story, versions in traces:
        layout, (first, own, last) = story.layout, story.order
        for (condition, second), trace in versions.items():
            _, end_1, end_2, end_3 = (trace.states[n] for n in trace.nodes)
            assert layout.room_of(end_1.agents[PARTICIPANT][0]) == first
            assert end_1.agents[PROTAGONIST][0] == story.starts[1]
            assert not any(end_1.open_doors)
            assert layout.room_of(end_2.agents[PROTAGONIST][0]) == own
            shut_at_first = (condition == "FB") != (second == "FB")
            assert end_2.open_doors[own] != shut_at_first
            assert layout.room_of(end_3.agents[PARTICIPANT][0]) == last
            assert end_3.open_doors[own] == (condition == "TB")
            assert not end_3.open_doors[last]


def test_only_a_false_belief_hides_the_transfer_from_the_protagonist(traces) -> None:
    for story, versions in traces:
        front = story.layout.thresholds[story.order[0]][0]
        for (condition, _), trace in versions.items():
            leaving = [
                state
                for state in trace.states[trace.nodes[2] :]
                if state.agents[PARTICIPANT][0] == front
            ]
            saw = any(front in state.seen[PROTAGONIST] for state in leaving)
            assert leaving
            assert saw == (condition == "TB")


def test_the_change_is_masked_in_the_participants_view_and_nothing_else(traces) -> None:
    """Then what it believes follows from what it sees: the door, as it saw it last."""
    shown = 0
    for story, versions in traces:
        layout, own = story.layout, story.order[1]
        door = layout.doors[own]
        for (first, second), trace in versions.items():
            changed = False
            for before, state in itertools.pairwise((trace.states[0], *trace.states)):
                late = state.open_doors[own] != before.open_doors[own]
                changed |= late and layout.mark(state.agents[PARTICIPANT][0]) in "ABC"
                for name, (cell, _) in state.agents.items():
                    in_sight = visible(layout, cell, state.open_doors)
                    hidden = in_sight - state.seen[name]
                    # Walls are drawn for everybody.
                    hidden = {c for c in hidden if layout.mark(c) != "#"}
                    masked = changed and second == "FB" and name == PARTICIPANT
                    assert all(c == door or layout.room_of(c) == own for c in hidden)
                    assert masked or state.seen[name] == in_sight
                    shown += bool(hidden)
                if changed and second == "FB":
                    assert door not in state.seen[PARTICIPANT]
            assert changed == (second == "FB")
            views = [s.open_doors[own] for s in trace.states if door in s.seen[PARTICIPANT]]
            assert views[-1] == (first != "FB" if second == "TB" else first == "FB")
    assert shown


def test_a_wrong_plot_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "visible", lambda *_: frozenset())
    with pytest.raises(BenchmarkError, match=r"story 0 \(map-00, first order FB"):
        play(generate()[0], "FB")


@pytest.mark.integration
def test_every_returning_story_plays_to_its_beliefs() -> None:
    """``play`` raises where what the agents saw gives other rooms than the plot wants."""
    stories = list(seeded_stories(2025).values())
    for moving, story in zip(stories[:648], stories[648:], strict=True):
        traces = {pair: play(story, *pair) for pair in COMBINATIONS}
        assert len({(trace.nodes, len(trace.states)) for trace in traces.values()}) == 1
        assert story.cast.visited("return") == moving.cast.visited("move")
        assert story.rooms == moving.rooms
        layout, (left, own, end) = story.layout, story.order
        for (first, _), trace in traces.items():
            begun, entered, waited, over = (trace.states[node] for node in trace.nodes)
            rooms = [layout.room_of(s.agents[PARTICIPANT][0]) for s in (begun, entered, waited)]
            assert rooms == [None, end, left]
            assert layout.room_of(over.agents[PARTICIPANT][0]) == end
            assert layout.room_of(over.agents[PROTAGONIST][0]) == own
            # At the very end the door is open to him who saw the last move.
            assert over.open_doors[own] == (first == "TB")
            assert not over.open_doors[end] and not waited.open_doors[left]


CELLS = [(x, y) for x in range(6) for y in range(5)]


def around(cell: Cell) -> list[Cell]:
    x, y = cell
    return [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]


def distances(start: Cell, free: set[Cell]) -> dict[Cell, int]:
    """Steps to each cell that is connected with ``start``."""
    ways = nx.Graph((a, b) for a in {start, *free} for b in around(a) if b in free)
    ways.add_node(start)
    return dict(nx.single_source_shortest_path_length(ways, start))


def flood(rows: tuple[str, ...], start: Cell, passable: str) -> set[Cell]:
    """Cells with these characters that are connected with ``start``."""
    return {*distances(start, set().union(*(where(rows, mark) for mark in passable)))}


def where(rows: tuple[str, ...], mark: str) -> set[Cell]:
    return {(x, y) for y, row in enumerate(rows) for x, c in enumerate(row) if c == mark}


def check_plainly(layout: Layout) -> None:
    """What any usable map must have."""
    rows = layout.rows
    assert (len(rows), {len(row) for row in rows}) == (10, {7})
    edge = {*rows[0], *rows[-1], *(row[0] for row in rows), *(row[-1] for row in rows)}
    assert edge == {"#"} and set("".join(rows)) == set("#.123ABC")
    corridor = where(rows, ".")
    assert flood(rows, min(corridor), ".") == corridor
    for door, room in zip("ABC", "123", strict=True):
        assert len(where(rows, door)) == 1
        floor = where(rows, room)
        assert len(floor) >= 2
        assert flood(rows, min(floor), room) == floor
        # Opening this door alone joins this room, and no other, to the corridor.
        joined = flood(rows, min(corridor), "." + door + "123")
        assert joined == corridor | where(rows, door) | floor
    assert len(start_pairs(layout)) >= 2


def test_the_27_maps_are_usable() -> None:
    layouts = benchmark_layouts()
    assert len({layout.rows for layout in layouts}) == len({m.name for m in layouts}) == 27
    for layout in layouts:
        check_plainly(layout)


def test_random_maps_are_usable_new_and_repeatable() -> None:
    first, again = random_layouts(5), random_layouts(5)
    drawn = [next(first) for _ in range(10)]
    assert drawn == [next(again) for _ in range(10)]
    assert len({m.rows for m in drawn} | {m.rows for m in benchmark_layouts()}) == 37
    for layout in drawn:
        check_plainly(layout)


@settings(max_examples=200, deadline=None)
@given(
    free=st.sets(st.sampled_from(CELLS)), start=st.sampled_from(CELLS), goal=st.sampled_from(CELLS)
)
def test_a_walk_is_shortest_and_connected(free: set[Cell], start: Cell, goal: Cell) -> None:
    known = distances(start, free)
    assert search(start, free).keys() == known.keys()
    if goal not in known:
        with pytest.raises(KeyError):
            shortest_walk(start, goal, free)
        return
    walk = shortest_walk(start, goal, free)
    assert len(walk) == known[goal] and set(walk) <= free
    steps = [start, *walk]
    assert steps[-1] == goal
    assert all(b in around(a) for a, b in zip(steps, walk, strict=False))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), layout=st.sampled_from(benchmark_layouts()))
def test_an_agent_sees_what_no_closed_door_hides(data: st.DataObject, layout: Layout) -> None:
    cell = data.draw(st.sampled_from(layout.marked(".123")))
    doors = data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    clear = ".123" + "".join(d for d, is_open in zip("ABC", doors, strict=True) if is_open)
    reached = flood(layout.rows, cell, clear)
    assert visible(layout, cell, doors) == reached.union(*map(around, reached))


STORY = generate()[100]
TICKS = (0, 9, 20, 28, -1)


@pytest.fixture(scope="module")
def trace():
    return play(STORY, "FB")


def cut(frame: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
    x, y = cell
    return frame[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE]


def is_masked(frame: np.ndarray, cell: tuple[int, int]) -> bool:
    return bool((cut(frame, cell) == MASKED).all())


@pytest.mark.parametrize("perspective", ["protagonist", "participant"])
def test_masked_are_just_the_cells_that_the_agent_does_not_see(trace, perspective) -> None:
    layout = STORY.layout
    ticks = [t % len(trace.states) for t in TICKS]
    frames = render(trace, perspective, ticks)
    masked_anywhere = 0
    for tick, frame in zip(ticks, frames, strict=True):
        seen = trace.states[tick].seen[perspective]
        for cell in layout.cells():
            hidden = cell not in seen and layout.mark(cell) != "#"
            assert is_masked(frame, cell) == hidden
            masked_anywhere += hidden
    assert masked_anywhere


def test_what_is_seen_looks_as_from_above(trace) -> None:
    tick = trace.nodes[2]
    above = render(trace, "omniscient", [tick])[0]
    seen = render(trace, "protagonist", [tick])[0]
    for cell in trace.states[tick].seen["protagonist"]:
        assert np.array_equal(cut(above, cell), cut(seen, cell))


def test_a_closed_protagonist_sees_nothing_change(trace) -> None:
    after = render(trace, "protagonist", range(trace.nodes[2], trace.nodes[3] + 1))
    assert (after == after[0]).all()
    above = render(trace, "omniscient", [trace.nodes[2], trace.nodes[3]])
    assert (above[0] != above[1]).any()


def test_key_frames_are_the_nodes_and_their_midpoints() -> None:
    assert key_frames((0, 11, 19, 36)) == (0, 5, 11, 15, 19, 27, 36)


@pytest.mark.parametrize("direction", range(4))
def test_tiles_are_those_of_minigrid(direction: int) -> None:
    grounds = {
        (".", "", False): None,
        ("1", "red", False): RoomFloor("red"),
        ("B", "green", True): Door("green", is_open=True),
    }
    for key, ground in grounds.items():
        # minigrid's own agent is red.
        expected = Grid.render_tile(ground, agent_dir=direction, tile_size=TILE).astype(np.uint8)
        assert np.array_equal(tile(*key, agent=("red", direction)), expected)
        expected = Grid.render_tile(ground, tile_size=TILE).astype(np.uint8)
        assert np.array_equal(tile(*key), expected)
