"""The story viewer: what is masked, believed and asked is what the story says, pixel for pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sally_anne.data.gridtom.plot import PERSPECTIVES, PLOTS, play
from sally_anne.data.gridtom.render import key_frames
from sally_anne.data.gridtom.stories import VERSIONS, beliefs_at_nodes, generated, seeded_stories
from sally_anne.figures import story
from sally_anne.figures.config import StoryConfig
from sally_anne.figures.story import GAP, LINE
from tests.made_stories import KEY_FRAMES, NODES, made_story

pytestmark = pytest.mark.integration

STORIES = generated(plots=PLOTS)
GREY = (50, 50, 50)
WRONG = (0xD5, 0x5E, 0x00)


def cells_of(picture: Image.Image, down: bool, columns: int = 1) -> np.ndarray:
    """The frames of a picture as ``[columns, perspectives, height, width, 3]``."""
    pixels = np.asarray(picture)
    return np.array(
        [
            [
                pixels[y : y + 420, x : x + 294]
                for n in range(3)
                for x, y in [
                    (GAP + column * (294 + 2 * GAP), 2 * LINE + n * (420 + LINE + GAP))
                    if down
                    else (GAP + n * (294 + GAP), 2 * LINE)
                ]
            ]
            for column in range(columns)
        ]
    )


@pytest.mark.parametrize("index", [17, 331, 648 + 400])
def test_beliefs_at_nodes_are_those_that_the_agents_come_to(index) -> None:
    """Walked through tick by tick: who last saw whom where, by the rule of section 3."""
    record = STORIES.story(index)
    for first, second in VERSIONS:
        trace = play(seeded_stories(2025)[index], first, second)
        layout, own = trace.story.layout, trace.story.order[1]
        seen = thought = trace.states[0].agents["participant"][0]
        door, known = None, {}

        def name(cell, layout=layout, rooms=trace.story.rooms) -> str:
            room = layout.room_of(cell)
            return "corridor" if room is None else rooms[room]

        for tick, state in enumerate(trace.states):
            cell = state.agents["participant"][0]
            seen = cell if cell in state.seen["protagonist"] else seen
            if layout.doors[own] in state.seen["participant"]:
                door = state.open_doors[own]
            room = layout.room_of(cell)
            shut = room is not None and not state.open_doors[room]
            shut_in = layout.room_of(state.agents["protagonist"][0]) == own and not door
            thought = thought if shut or shut_in else cell
            known[tick] = (name(cell), name(seen), name(thought))
        case = record.case(2 if second else 1, first, second)
        assert beliefs_at_nodes(record, case) == [known[node] for node in case.nodes]


def test_masked_cells_are_grey_pixel_for_pixel_and_all_else_is_as_from_above() -> None:
    case = STORIES.story(17).case(1, "FB")
    shown = cells_of(story.strip(STORIES.story(17), case), True, 7)
    trace = play(seeded_stories(2025)[17], "FB")
    layout, masked = trace.story.layout, 0
    for column, tick in zip(shown, key_frames(case.nodes), strict=True):
        for perspective, image in zip(PERSPECTIVES, column, strict=True):
            expected = column[0].copy()
            if perspective != "omniscient":
                for x, y in layout.cells():
                    if (x, y) not in trace.states[tick].seen[perspective]:
                        square = slice(42 * y, 42 * y + 42), slice(42 * x, 42 * x + 42)
                        # Walls never move, and stay.
                        wall = layout.mark((x, y)) == "#"
                        expected[square] = column[0][square] if wall else GREY
                        masked += not wall
            np.testing.assert_array_equal(image, expected)
            np.testing.assert_array_equal(image, case.frames(perspective, [tick])[0])
    assert masked > 50


@pytest.mark.parametrize(("first", "second"), VERSIONS)
def test_the_beliefs_are_those_of_the_record_and_mistakes_are_orange(first, second) -> None:
    record = STORIES.story(100)
    case = record.case(2 if second else 1, first, second)
    end = record.cast.beliefs(first, second)
    assert beliefs_at_nodes(record, case)[-1] == end
    views = {name: case.frames(name, [case.nodes[0], case.nodes[-1]]) for name in PERSPECTIVES}
    pictures = [story.picture(record, case, views, n, case.nodes[-n]) for n in (0, 1)]
    below = [np.asarray(one)[2 * LINE + 420 :] for one in pictures]
    # A mistake is about reality, or about the protagonist's belief; none at the beginning.
    mistaken = end[1] != end[0] or end[2] != end[1]
    assert [bool((one == WRONG).all(axis=2).any()) for one in below] == [False, mistaken]


def test_what_is_asked_and_labelled_is_written_in_full() -> None:
    record = STORIES.story(17)
    case = record.case(2, "TB", "FB")
    words = " ".join(story.story_words(record, case))
    for text in (*case.captions.values(), case.question.question):
        assert text in words
    assert all(asked.question in words for asked in record.initial)
    assert f"Right: {case.thought}." in words
    # The participant is mistaken about what the protagonist believes.
    labelled = {case.thought: "Y_p true, Y_o false", case.believed: "Y_p false, Y_o true"}
    assert case.thought != case.believed
    for room, labels in labelled.items():
        assert f"Statement ({labels}): {case.statement(room)}" in words


def test_a_story_made_by_hand_is_shown_as_it_is() -> None:
    record = made_story(3)
    case = record.case(2, "FB", "TB")
    greys = np.asarray(story.strip(record, case))[3 * LINE, GAP + 9 :: 294 + 2 * GAP, 0]
    first = 40 * 3 + 20 * (record.versions.index(case) % 2)
    assert greys.tolist() == [first + t for t in KEY_FRAMES]
    assert list(case.nodes) == list(NODES)


def test_strip_and_film_are_written_and_the_film_has_every_frame(tmp_path: Path) -> None:
    paths = story.draw(StoryConfig(17, gif=True, out=tmp_path / "new"))
    assert [path.name for path in paths] == [f"story-17_FB.{k}" for k in ("png", "gif")]
    case = STORIES.story(17).case(1, "FB")
    expected = np.array([case.frames(view, range(case.length)) for view in PERSPECTIVES])
    with Image.open(paths[1]) as opened:
        assert opened.n_frames == case.length
        for tick in range(case.length):
            opened.seek(tick)
            shown = cells_of(opened.convert("RGB"), False)[0]
            # Only edges of shapes, between two colours, may share a place of the palette.
            assert (shown != expected[:, tick]).any(axis=-1).mean() < 0.001
            grey = (expected[:, tick] == GREY).all(axis=-1)
            np.testing.assert_array_equal((shown == GREY).all(axis=-1), grey)


def test_all_maps_stand_on_one_sheet(tmp_path: Path) -> None:
    (path,) = story.draw(StoryConfig(maps=True, out=tmp_path))
    pixels = np.asarray(Image.open(path))
    for number in (0, 26):
        y, x = divmod(number, 9)
        y, x = y * (420 + LINE + GAP) + LINE, x * (294 + GAP)
        frame = STORIES.story(24 * number).case(1, "TB").frames(ticks=[0])[0]
        np.testing.assert_array_equal(pixels[y : y + 420, x : x + 294], frame)
