"""OpenToM: questions on short and long stories, each with all that is known of its story."""

from __future__ import annotations

import copy

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.opentom import OPENTOM, SEEN, load, read_question
from sally_anne.data.read import Field
from tests.data.text_sets import made

FULL = ("more full", "equally full", "less full")
NEAR = ("more accessible", "equally accessible", "less accessible")
PLACES = {"red_box", "a blue chest"}
# Type, hop, perspective, condition where the move is not seen, options, right answer.
EXPECTED = [
    ("attitude", "", "observer", "", ("positive", "neutral", "negative"), "neutral"),
    ("multihop, first order", "fullness", "mover", "", FULL, "less full"),
    ("multihop, second order", "accessibility", "observer", "", NEAR, "equally accessible"),
    ("location coarse, first order", "", "mover", "TB", ("Yes", "No"), "No"),
    ("location coarse, first order", "", "observer", "FB", ("Yes", "No"), "Yes"),
    ("location fine, first order", "", "narrator", "", PLACES, "a blue chest"),
    ("location fine, first order", "", "mover", "TB", PLACES, "a blue chest"),
    ("location fine, first order", "", "observer", "FB", PLACES, "red_box"),
    ("location fine, second order", "", "observer", "", PLACES, "red_box"),
]


@pytest.mark.parametrize("place", ["", "data"])
def test_every_field(tmp_path, place) -> None:
    made.opentom(tmp_path / place)
    items = load(tmp_path)
    assert len(items) == 2 * 9 + 2
    assert [item.split for item in items] == ["test"] * 18 + ["long"] * 2
    narratives = (made.OPENTOM["narrative"], "Al and Bo saw it all.", "At great length.")
    groups = ["test/001", "test/002"] * 9 + ["long/001"] * 2
    for number, (item, group) in enumerate(zip(items, groups, strict=True)):
        story = 2 if group.startswith("long") else int(group[-1]) - 1
        turn = number // 2 if story < 2 else number - 18
        kind, hop, perspective, condition, options, right = EXPECTED[turn]
        assert item.group == group and item.item_id == f"{group}/{turn + 1:02d}"
        question = made.OPENTOM_QUESTIONS[turn][0]
        assert item.question == (question.rstrip("?") + SEEN if kind == "attitude" else question)
        assert item.context.scene == narratives[story]
        texts = [option.text for option in item.options]
        assert [o.label for o in item.options] == list("ABC"[: len(texts)])
        assert tuple(texts) == options or set(texts) == options
        assert texts["ABC".index(item.answer)] == right
        tags = {"type": (kind,), "perspective": (perspective,)}
        tags |= {"hop": (hop,)} if hop else {}
        # Where the observer sees the move nobody is wrong.
        tags |= {"condition": (condition,)} if condition and story != 1 else {}
        assert item.tags == tags
        assert (item.benchmark, item.licence) == ("opentom", "CC-BY-NC-4.0")
    assert OPENTOM.cells == ("type",)


def test_a_misspelt_place_is_the_same_place() -> None:
    record = made.opentom_records()[6]
    record["plot_info"]["move_to_place"] = "center of dinint table"
    record["question"]["answer"] = "center of dining table"
    item = read_question(Field(record, "o.json"), "test")
    assert {option.text for option in item.options} == {"red_box", "center of dining table"}


@pytest.mark.parametrize(
    ("number", "path", "value", "problem"),
    [
        (0, ("question", "answer"), "good", "answer must be one of positive, neutral, negative"),
        (3, ("question", "answer"), "no", "answer must be one of Yes, No"),
        (
            6,
            ("question", "answer"),
            "bag",
            "answer must be one of the two places, red_box and a bl",
        ),
        (6, ("plot_info", "move_to_place"), "the red_box", "answer must be one of the two places"),
        (3, ("question", "type"), "attitude", "question is no question of type 'attitude'"),
        (0, ("question", "type"), "attitude-fo", "is no question of type"),
        (3, ("question", "type"), "location", "is no question of type"),
        (3, ("question", "question"), "Is it there?", "question is no question of type"),
        (3, ("plot_info", "mover"), "Cy", "question must begin with the perspective of Cy, Bo or"),
        (3, ("plot_info",), None, "plot_info must be an object"),
        (3, ("observed",), "no", "observed must be true or false"),
        (3, ("narrative",), "", "narrative must be a text"),
    ],
)
def test_what_is_wrong_is_named(number, path, value, problem) -> None:
    record = copy.deepcopy(made.opentom_records()[number])
    inside = record
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    with pytest.raises(RecordError):
        read_question(Field(record, "o.json"), "test")


def test_another_folder_is_told_what_it_lacks(tmp_path) -> None:
    with pytest.raises(RecordError):
        load(tmp_path)
    (tmp_path / "opentom.json").write_text("[]")
    with pytest.raises(RecordError):
        load(tmp_path)
