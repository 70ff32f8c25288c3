"""Stories, their records and sets: how many, how they vary, what each version says and shows."""

from __future__ import annotations

import pickle
import re
from collections import Counter

import pytest

from sally_anne.core.errors import BenchmarkError
from sally_anne.data.gridtom.narration import Cast, caption, environment
from sally_anne.data.gridtom.plot import PLOTS, play
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.stories import COMBINATIONS, RETURNING, StorySet, generate, generated

# Changes with any change of a map, a draw or a text; then raise GENERATOR_VERSION as well.
GOLDEN = "f8fb78df05438bbbbd6096dcf24dd72780ab58f4beae8b014bad11c0faa519c3"


@pytest.fixture(scope="module")
def record():
    return generated(stories=[12])[0]


@pytest.fixture(scope="module")
def both() -> StorySet:
    return generated(plots=PLOTS)


def test_a_map_has_two_starts_two_orientations_and_six_orders() -> None:
    stories = generate()
    assert [s.index for s in stories] == list(range(648))
    assert {*Counter(s.layout.name for s in stories).values()} == {24}
    for start in range(0, 648, 24):
        stagings = stories[start : start + 24]
        assert len({s.starts for s in stagings}) == 2
        assert len({s.directions for s in stagings}) == 2
        assert len({s.order for s in stagings}) == 6
        assert len({(s.starts, s.directions, s.order) for s in stagings}) == 24


def test_agents_and_rooms_have_five_different_colours() -> None:
    stories = generate()
    assert all(len(set(s.cast)) == 5 for s in stories)
    for part in range(5):
        assert len({s.cast[part] for s in stories}) == 6
    assert {frozenset(s.rooms) == frozenset(s.cast[2:]) for s in stories} == {True}


def test_the_order_of_the_rooms_tells_nothing_about_the_plot() -> None:
    places = Counter(s.rooms.index(s.cast.last_room) for s in generate())
    assert places == {0: 216, 1: 216, 2: 216}


def test_all_texts_and_stagings_are_those_of_this_generator_version() -> None:
    assert generated().fingerprint == GOLDEN


def test_subsets() -> None:
    stories = generated(stories=[4, 2])
    assert [r.index for r in stories] == [4, 2]
    assert stories.subset([4, 2]) is stories
    assert generated(stories=range(648)).fingerprint == generated().fingerprint
    prints = {generated(stories=s).fingerprint for s in ([4, 2], [2, 4], [4], None)}
    assert len(prints) == 4
    assert generated(1).fingerprint != generated(2).fingerprint
    assert open_stories(None, seed=3).fingerprint == generated(3).fingerprint
    with pytest.raises(BenchmarkError):
        generated(stories=[648])


def test_both_plots_hold_the_papers_stories_as_they_were(both: StorySet) -> None:
    moving = generated()
    assert both.of_plot("move").indices == moving.indices
    assert both.story(17) == moving.story(17) and len(both) == 2 * RETURNING
    with pytest.raises(BenchmarkError):
        moving.of_plot("return")
    for index in (0, 100, 647):
        assert both.identity(index)[:2] == both.identity(index + RETURNING)[:2]


def test_a_record_has_what_the_release_has(record) -> None:
    story = generate()[12]
    assert record.cast == story.cast
    assert (record.group, record.map) == ("story-0012", "map-00")
    assert list(record.colors)[:2] == ["participant", "protagonist"]
    assert tuple(record.colors.values()) == (*record.cast[:2], *record.rooms)
    assert record.nodes == play(story, "TB").nodes
    assert record.cast.participant not in record.initial_environment
    assert pickle.loads(pickle.dumps(record)) == record
    assert hash(record) == hash(generated(stories=[12])[0])


def test_questions_ask_for_the_right_mind(record) -> None:
    a, b, *_ = record.cast
    first, second = record.case(1, "TB").question, record.case(2, "TB", "TB").question
    assert first.question.endswith(f"does the {b} agent believe the {a} agent is?")
    assert second.question.endswith(
        f"does the {a} agent think the {b} agent believes the {a} agent is?"
    )
    for case in record.versions:
        assert case.question.options == (record.cast.first_room, record.cast.last_room)
        assert case.question.answer == (case.believed if case.order == 1 else case.thought)
        assert case.question.statement_false != case.question.statement_true


def test_initial_questions(record) -> None:
    count, first, second = record.initial
    assert set(count.answer) == {record.cast.participant, record.cast.protagonist}
    assert set(count.answer) <= set(count.choices)
    assert (first.answer, second.answer) == ((record.cast.first_room,), (record.cast.own_room,))
    assert first.choices == second.choices == record.rooms
    assert [q.section for q in record.initial] == [
        (0, record.nodes[3]),
        (0, record.nodes[1]),
        (0, record.nodes[2]),
    ]


def test_versions_show_their_own_events(record) -> None:
    def end(case):
        return case.frames(ticks=[case.length - 1]).tobytes()

    by_version = {(c.first, c.second): end(c) for c in record.versions}
    assert by_version["TB", None] == by_version["TB", "TB"] == by_version["TB", "FB"]
    assert by_version["FB", None] == by_version["FB", "TB"] == by_version["FB", "FB"]
    assert by_version["TB", None] != by_version["FB", None]
    middle = {
        pair: record.case(2, *pair).frames(ticks=[record.nodes[2]]).tobytes()
        for pair in COMBINATIONS
    }
    assert middle["TB", "FB"] == middle["FB", "TB"] != middle["TB", "TB"] == middle["FB", "FB"]


@pytest.mark.parametrize("order", [1, 2])
def test_captions_tell_what_is_so_and_what_is_seen(both: StorySet, order: int) -> None:
    for index in both.indices[::37]:
        record = both.story(index)
        for case in record.cases(order):  # type: ignore[arg-type]
            text = case.captions["omniscient"]
            a = record.cast.participant
            entered = re.findall(r"walks into the (\w+) room", text)
            entered = [room for room in entered if room != record.cast.own_room]
            assert tuple(entered[:2]) == record.cast.visited(record.plot)
            assert entered[-1] == case.reality and len(entered) == 2 + (record.plot == "return")
            shut = f"closes the {record.cast.own_room} door, so" in text
            assert shut == ((case.first == "FB") != (case.second == "FB"))
            known = case.captions["protagonist"]
            known_rooms = re.findall(r"walks into the (\w+) room", known)
            known_rooms = [room for room in known_rooms if room != record.cast.own_room]
            assert (known_rooms[-1] == case.believed) or case.second == "FB"
            assert f"The {a} agent" not in case.captions["protagonist"].split(" 3. ")[1]


CAST = Cast("white", "yellow", "red", "green", "purple")
VERSIONS = [("TB", None), ("FB", None), ("TB", "TB"), ("FB", "TB"), ("TB", "FB"), ("FB", "FB")]


def parts(text: str) -> tuple[str, str, str]:
    found = re.fullmatch(r"1\. (.+) 2\. (.+) 3\. (.+) The video ends here\.", text)
    assert found, text
    return found[1], found[2], found[3]


@pytest.mark.parametrize(("first", "second"), VERSIONS)
def test_nobody_knows_what_they_missed(first, second) -> None:
    known = caption(CAST, first, second, "protagonist")
    if first == "FB":
        assert "does not know what happens outside the green room" in known
        assert "purple" not in known and "leaves the red room" not in known
    else:
        transfer = parts(known)[2]
        assert "walks into the purple room" in transfer
        assert ("Just then the yellow agent opens the green door" in transfer) == (second == "FB")
    told = parts(caption(CAST, first, second, "participant"))
    closed = (first == "FB") != (second == "FB")
    assert "does not know what happens outside the red room" in told[1]
    assert "green" not in told[1]
    assert f"sees that the green door is {'closed' if closed else 'open'}." in told[2]
    assert "Just then" not in told[2] and "just then" not in told[2]
    assert "yellow agent" not in told[2]
    assert "walks into the purple room" in told[2]


def test_environments() -> None:
    world = environment(("red", "green", "purple"))
    assert "10 rows and 7 columns" in world
    assert "the red room, the green room and the purple room" in world
    bare = environment()
    assert "10 rows and 7 columns" in bare
    # The initial questions ask for these.
    for told in ("red", "green", "purple", "white", "yellow", "two", "three", " 2", " 3"):
        assert not re.search(rf"\b{told.strip()}\b", bare.replace("white squares", ""))
