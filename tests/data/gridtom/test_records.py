"""The interface to stories, as prompts and probes use it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from sally_anne.core.errors import BenchmarkError, MediaError
from sally_anne.data.gridtom.narration import BeliefQuestion, Cast, first_order, second_order
from sally_anne.data.gridtom.render import key_frames
from sally_anne.data.gridtom.stories import COMBINATIONS, Story, generate, generated


@pytest.fixture(scope="module")
def record():
    return generated(stories=[12])[0]


def test_a_set_simulates_nothing_until_a_story_is_asked_for(monkeypatch) -> None:
    played = []
    real = Story.play

    def spy(self, first, second="TB"):
        played.append(self.index)
        return real(self, first, second)

    monkeypatch.setattr(Story, "play", spy)
    stories = generated(seed=99)
    assert len(stories) == 648
    assert len(stories.fingerprint) == 64
    assert played == []
    assert stories[3].index == 3
    assert stories.story(5) is stories[5]
    assert played == [3, 5]


def test_subsets() -> None:
    stories = generated(stories=[4, 2])
    assert [r.index for r in stories] == [4, 2]
    assert [r.index for r in stories[1:]] == [2]
    assert tuple(stories) == (stories[0], stories[1])
    assert stories.subset([4, 2]) is stories
    assert generated(stories=range(648)).fingerprint == generated().fingerprint
    prints = {generated(stories=s).fingerprint for s in ([4, 2], [2, 4], [4], None)}
    assert len(prints) == 4
    assert generated(1).fingerprint != generated(2).fingerprint
    for wrong, problem in (([648], "no story 648"), ([], "no stories"), ([1, 1], "twice")):
        with pytest.raises(BenchmarkError, match=problem):
            generated(stories=wrong)
    with pytest.raises(BenchmarkError, match="no story 7 among the 2 of generated with seed 2025"):
        stories.story(7)


def test_a_record_has_what_the_release_has(record) -> None:
    story = generate()[12]
    assert record.cast == story.cast
    assert record.group == "story-0012"
    assert record.map == "map-00"
    assert list(record.colors)[:2] == ["participant", "protagonist"]
    assert tuple(record.colors.values()) == (*record.cast[:2], *record.rooms)
    assert record.nodes == story.play("TB").nodes
    assert record.cast.participant not in record.initial_environment
    assert pickle.loads(pickle.dumps(record)) == record
    assert hash(record) == hash(generated(stories=[12])[0])


@pytest.mark.parametrize(
    ("first", "room", "protagonist", "omniscient"),
    [
        ("TB", "last_room", True, True),
        ("TB", "first_room", False, False),
        ("FB", "last_room", False, True),
        ("FB", "first_room", True, False),
    ],
)
def test_first_order_truth_table_of_figure_6(record, first, room, protagonist, omniscient) -> None:
    case = record.case(1, first)
    named = getattr(record.cast, room)
    statement = case.statement(named)
    assert statement == f"The {record.cast.participant} agent is now in the {named} room."
    assert (case.believed == named) == protagonist
    assert (case.reality == named) == omniscient
    assert (statement == case.question.statement_true) == protagonist
    assert (named == case.question.answer) == protagonist


@pytest.mark.parametrize(
    ("first", "second", "room", "participant", "protagonist"),
    [
        ("TB", "TB", "last_room", True, True),
        ("TB", "TB", "first_room", False, False),
        ("FB", "TB", "last_room", False, False),
        ("FB", "TB", "first_room", True, True),
        ("TB", "FB", "last_room", False, True),
        ("TB", "FB", "first_room", True, False),
        ("FB", "FB", "last_room", True, False),
        ("FB", "FB", "first_room", False, True),
    ],
)
def test_second_order_truth_table_of_figure_7(
    record, first, second, room, participant, protagonist
) -> None:
    case = record.case(2, first, second)
    named = getattr(record.cast, room)
    statement = case.statement(named)
    assert statement == (
        f"The {record.cast.protagonist} agent believes the {record.cast.participant} agent is "
        f"now in the {named} room."
    )
    assert (case.thought == named) == participant
    assert (case.believed == named) == protagonist
    assert (statement == case.question.statement_true) == participant


def test_belief_questions_to_the_letter() -> None:
    cast = Cast("red", "green", "blue", "purple", "yellow")
    assert first_order(cast, "blue") == BeliefQuestion(
        "At the end of the video, in which room does the green agent believe the red agent is?",
        ("blue", "yellow"),
        "blue",
        "The red agent is now in the blue room.",
        "The red agent is now in the yellow room.",
    )
    assert second_order(cast, "yellow") == BeliefQuestion(
        "At the end of the video, in which room does the red agent think the green agent "
        "believes the red agent is?",
        ("blue", "yellow"),
        "yellow",
        "The green agent believes the red agent is now in the yellow room.",
        "The green agent believes the red agent is now in the blue room.",
    )


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


def test_a_statement_about_any_room_of_the_story_and_no_other(record) -> None:
    own = record.cast.own_room
    assert record.case(1, "TB").statement(own).endswith(f"is now in the {own} room.")
    assert "believes" in record.case(2, "TB", "FB").statement(own)
    with pytest.raises(BenchmarkError, match="story 12 has no 'pink' room"):
        record.case(1, "TB").statement("pink")


def test_frames(record) -> None:
    case = record.case(1, "FB")
    keys = case.frames("protagonist")
    assert keys.shape == (7, 420, 294, 3)
    assert keys.dtype == np.uint8
    again = case.frames("protagonist", key_frames(record.nodes))
    assert np.array_equal(keys, again)
    keys[:] = 0
    assert np.array_equal(case.frames("protagonist"), again)
    last = case.frames(ticks=[case.length - 1])
    assert not np.array_equal(last[0], again[-1])
    for wrong in (-1, case.length):
        with pytest.raises(MediaError, match=f"frame {wrong} does not exist; the frames are 0 to"):
            case.frames(ticks=[0, wrong])
    with pytest.raises(MediaError, match="no frame numbers"):
        case.frames(ticks=[])


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
