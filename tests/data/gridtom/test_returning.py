"""Stories in which the participant comes back: belief and reality crossed with first and last."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.errors import BenchmarkError, RecordError
from sally_anne.data.gridtom.build import BuildConfig, build
from sally_anne.data.gridtom.plot import PARTICIPANT, PLOTS, PROTAGONIST
from sally_anne.data.gridtom.release import load, open_stories
from sally_anne.data.gridtom.samples import assign, question_pairs, sample_set
from sally_anne.data.gridtom.stories import (
    COMBINATIONS,
    RETURNING,
    StorySet,
    generated,
    seeded_stories,
)
from sally_anne.probing.extraction import items_table
from sally_anne.probing.reporting import confound_report

# The fingerprint of the stories before there was another plot.
MOVING = "f8fb78df05438bbb"


@pytest.fixture(scope="module")
def both() -> StorySet:
    return generated(plots=PLOTS)


def test_the_papers_stories_are_as_they_were(both: StorySet) -> None:
    moving = generated()
    assert moving.fingerprint.startswith(MOVING) and len(moving) == RETURNING
    assert both.of_plot("move").indices == moving.indices
    assert both.story(17) == moving.story(17) and len(both) == 2 * RETURNING
    with pytest.raises(BenchmarkError, match=r"seed 2025 has no story of the plot 'return'.*build"):
        moving.of_plot("return")


@pytest.mark.integration
def test_every_returning_story_plays_to_its_beliefs() -> None:
    """``play`` raises where what the agents saw gives other rooms than the plot wants."""
    for moving, story in zip(seeded_stories(2025), seeded_stories(2025, PLOTS[1:]), strict=True):
        traces = {pair: story.play(*pair) for pair in COMBINATIONS}
        assert len({(trace.nodes, len(trace.states)) for trace in traces.values()}) == 1
        assert story.cast.visited("return") == moving.cast.visited("move")
        assert story.rooms == moving.rooms
        layout, (left, own, end) = story.staging.layout, story.staging.order
        for (first, _), trace in traces.items():
            begun, entered, waited, over = (trace.states[node] for node in trace.nodes)
            rooms = [layout.room_of(s.agents[PARTICIPANT][0]) for s in (begun, entered, waited)]
            assert rooms == [None, end, left]
            assert layout.room_of(over.agents[PARTICIPANT][0]) == end
            assert layout.room_of(over.agents[PROTAGONIST][0]) == own
            # At the very end the door is open to him who saw the last move.
            assert over.open_doors[own] == (first == "TB")
            assert not over.open_doors[end] and not waited.open_doors[left]


@pytest.mark.parametrize("order", [1, 2])
def test_captions_tell_what_is_so_and_what_is_seen(both: StorySet, order: int) -> None:
    for index in both.indices[::37]:
        record = both.story(index)
        for case in record.cases(order):  # type: ignore[arg-type]
            told = case.captions["omniscient"]
            a = record.cast.participant
            entered = re.findall(r"walks into the (\w+) room", told)
            entered = [room for room in entered if room != record.cast.own_room]
            assert tuple(entered[:2]) == record.cast.visited(record.plot)
            assert entered[-1] == case.reality and len(entered) == 2 + (record.plot == "return")
            shut = f"closes the {record.cast.own_room} door, so" in told
            assert shut == ((case.first == "FB") != (case.second == "FB"))
            known = case.captions["protagonist"]
            heard = re.findall(r"walks into the (\w+) room", known)
            heard = [room for room in heard if room != record.cast.own_room]
            assert (heard[-1] == case.believed) or case.second == "FB"
            assert f"The {a} agent" not in case.captions["protagonist"].split(" 3. ")[1]


def test_both_labels_are_independent_of_all_else(both: StorySet) -> None:
    data = sample_set(both, 1, "crossed", "text", 60)
    items = items_table(data.samples)
    table = items.assign(room=[s.tags["room"] for s in data.samples])
    cells = table.groupby(["plot", "condition", "room"])[["y_p", "y_o"]]
    assert (cells.nunique() == 1).all(axis=None) and len(cells) == 8
    for one, other in combinations(("y_p", "y_o", "room", "plot", "condition"), 2):
        if {one, other} & {"y_p", "y_o"}:
            counts = pd.crosstab(table[one], table[other]).to_numpy()
            assert (counts == counts[0, 0]).all(), (one, other)
    for row in confound_report(items, data):
        assert float(str(row["accuracy"])) == pytest.approx(0.5, abs=0.1), row
    lengths = [len(sample.text) for sample in data.samples]
    for label in ("y_p", "y_o"):
        held = items[label].to_numpy(bool)
        assert abs(np.mean(np.array(lengths)[held]) - np.mean(np.array(lengths)[~held])) < 1


def test_the_two_plots_of_a_stage_are_one_group(both: StorySet) -> None:
    data = sample_set(both, 1, "crossed", "text", 40)
    table = pd.DataFrame({"group": [s.group for s in data.samples]})
    table["split"] = [s.split for s in data.samples]
    table["plot"] = [s.tags["plot"] for s in data.samples]
    assert (table.groupby("group")["split"].nunique() == 1).all()
    assert (table.groupby(["group", "plot"]).size() == 4).all() and table["group"].nunique() == 40
    split = assign(generated())
    for sample in data.samples:
        assert sample.split == split[int(sample.group.removeprefix("story-"))]
    for index in (0, 100, 647):
        assert both.identity(index)[:2] == both.identity(index + RETURNING)[:2]
    pairs = question_pairs(both, 1, "text", 40).pairs
    assert len(pairs) == 80 and len({pair.name for pair in pairs}) == 80
    assert {pair.answers[0] != pair.answers[1] for pair in pairs} == {True}
    # Those of the other contrasts are asked as if there was no other plot.
    asked = {pair.name: pair for pair in question_pairs(generated(), 1, "text", 40).pairs}
    assert asked.items() <= {pair.name: pair for pair in pairs}.items()


@pytest.mark.integration
def test_both_plots_are_written_and_read(both: StorySet, tmp_path: Path) -> None:
    out = tmp_path / "data"
    said = build(BuildConfig(out=out, stories=30, plots=PLOTS, metadata_only=True, workers=1))
    assert "60 stories on 2 maps" in said
    every = load(out)
    assert every.indices == (*range(30), *range(RETURNING, RETURNING + 30))
    assert list(every) == list(both.subset(every.indices))
    assert list(open_stories(out)) == list(generated(stories=range(30)))
    assert open_stories(out, plots=PLOTS).indices == every.indices
    with pytest.raises(BenchmarkError, match="begun with stories = 60"):
        build(BuildConfig(out=out, stories=30, metadata_only=True, workers=1))

    lines = (out / "info.json").read_text().splitlines()
    (tmp_path / "bad").mkdir()
    damaged = lines[30].replace(f'"index": {RETURNING}', '"index": 7')
    (tmp_path / "bad" / "info.json").write_text(damaged + "\n")
    with pytest.raises(RecordError, match=r"line 1 \(story 7\).*plot.*from 648 on"):
        load(tmp_path / "bad")
