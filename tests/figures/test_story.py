"""The story viewer: what is masked, believed and asked is what the story says, pixel for pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from sally_anne.data.gridtom.plot import PERSPECTIVES, PLOTS, play
from sally_anne.data.gridtom.stories import VERSIONS, beliefs_at_nodes, generated, story_of
from sally_anne.figures import story, style
from sally_anne.figures.config import StoryConfig
from sally_anne.figures.story import FOOT, GAP, HEAD, film
from tests.made_stories import KEY_FRAMES, NODES, made_story

pytestmark = pytest.mark.integration

STORIES = generated(plots=PLOTS)
GREY = (50, 50, 50)


def pictured(index: int, *version: str, **more):
    """The figure of a generated story, with its record and version."""
    record = STORIES.story(index)
    case = record.case(1 if len(version) == 1 else 2, *version)
    with style.look():
        figure = story.story_figure(record, case, "made here", **more)
        figure.draw_without_rendering()
    return figure, record, case


def words_of(figure) -> str:
    """All that is written, without line breaks."""
    found = [figure.get_suptitle(), *(text.get_text() for text in figure.texts)]
    return " ".join(" ".join(found).split())


@pytest.mark.parametrize("index", [0, 17, 331, 647, 648 + 17, 648 + 400])
def test_beliefs_at_nodes_are_those_that_the_agents_come_to(index) -> None:
    """Walked through tick by tick: who last saw whom where, by the rule of section 3."""
    record = STORIES.story(index)
    for first, second in VERSIONS:
        trace = play(story_of(2025, index), first, second)
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
    figure, _, case = pictured(17, "FB")
    trace = play(story_of(2025, 17), "FB")
    layout, masked = trace.story.layout, 0
    shown = {a.get_label(): np.asarray(a.images[0].get_array()) for a in figure.axes if a.images}
    assert len(shown) == 3 * 7
    for label, image in shown.items():
        perspective, tick = label.split()
        above = shown[f"omniscient {tick}"]
        expected = above.copy()
        if perspective != "omniscient":
            for x, y in layout.cells():
                if (x, y) not in trace.states[int(tick)].seen[perspective]:
                    square = slice(42 * y, 42 * y + 42), slice(42 * x, 42 * x + 42)
                    # Walls never move, and stay.
                    expected[square] = above[square] if layout.mark((x, y)) == "#" else GREY
                    masked += layout.mark((x, y)) != "#"
        np.testing.assert_array_equal(image, expected)
        np.testing.assert_array_equal(image, case.frames(perspective, [int(tick)])[0])
    assert masked > 50


@pytest.mark.parametrize(("first", "second"), VERSIONS)
def test_the_rows_of_beliefs_are_those_of_the_record(first, second) -> None:
    figure, record, case = pictured(100, *([first, second] if second else [first]))
    table = story.story_table(record, case)
    assert list(table["frame"]) == list(case.nodes)
    end = record.cast.beliefs(first, second)
    assert tuple(table.iloc[-1][["reality", "protagonist", "participant"]]) == end
    panel = next(axis for axis in figure.axes if not axis.images)
    written = [text.get_text() for text in panel.texts]
    assert [word.split()[0] for word in written[-3:]] == list(end)
    # A mistake is about reality, or about the protagonist's belief.
    mistaken = [False, end[1] != end[0], end[2] != end[1]]
    assert ["(wrong)" in word for word in written[-3:]] == mistaken
    assert not any("(wrong)" in word for word in written[:-3])


def test_what_is_asked_and_labelled_is_written_in_full() -> None:
    figure, record, case = pictured(17, "TB", "FB")
    words = words_of(figure)
    for caption in case.captions.values():
        assert caption in words
    for asked in record.initial:
        assert asked.question in words
    assert case.question.question in words
    assert f"Right: {case.thought}." in words
    # The participant is mistaken about what the protagonist believes.
    labelled = {case.thought: "$Y_p$ true, $Y_o$ false", case.believed: "$Y_p$ false, $Y_o$ true"}
    assert case.thought != case.believed
    for room, labels in labelled.items():
        assert f"Statement ({labels}): {case.statement(room)}" in words


def test_a_story_made_by_hand_is_shown_as_it_is() -> None:
    record = made_story(3)
    case = record.case(2, "FB", "TB")
    with style.look():
        figure = story.story_figure(record, case, "by hand")
    greys = {a.get_label(): int(a.images[0].get_array().mean()) for a in figure.axes if a.images}
    first = 40 * 3 + 20 * (record.versions.index(case) % 2)
    for perspective in PERSPECTIVES:
        assert [greys[f"{perspective} {t}"] for t in KEY_FRAMES] == [first + t for t in KEY_FRAMES]
    assert list(story.story_table(record, case)["frame"]) == list(NODES)


def test_the_film_has_every_frame_and_masks_what_is_masked(tmp_path: Path) -> None:
    record = STORIES.story(17)
    case = record.case(1, "FB")
    path = film(record, case, tmp_path / "new" / "film.gif")
    frames = {view: case.frames(view, range(case.length)) for view in PERSPECTIVES}
    with Image.open(path) as opened:
        assert opened.n_frames == case.length
        assert opened.size == (3 * (294 + GAP) + GAP, HEAD + 420 + FOOT)
        for tick in range(case.length):
            opened.seek(tick)
            picture = np.asarray(opened.convert("RGB"))
            for number, view in enumerate(PERSPECTIVES):
                x = GAP + number * (294 + GAP)
                shown, expected = picture[HEAD : HEAD + 420, x : x + 294], frames[view][tick]
                # Only the edges of shapes, between two colours, may share a place of the palette.
                assert (shown != expected).any(axis=2).mean() < 0.005
                grey = (expected == GREY).all(axis=2)
                assert ((shown == GREY).all(axis=2) == grey).all()
    assert film(record, case, tmp_path / "again.gif").read_bytes() == path.read_bytes()


def test_all_maps_stand_on_one_sheet(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sally_anne.figures.style.render", lambda *_: b"")
    table = pd.read_parquet(story.draw(StoryConfig(maps=True, out=tmp_path))[2])
    assert list(table["map"]) == [f"map-{n:02d}" for n in range(27)]
    assert list(table["story"]) == [24 * n for n in range(27)]
