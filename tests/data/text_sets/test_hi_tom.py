"""Hi-ToM: one JSON file, whose records of one story stand apart."""

from __future__ import annotations

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.hi_tom import HI_TOM, load, read_question
from sally_anne.data.items import Option
from sally_anne.data.read import Field
from tests.data.text_sets import made


def test_every_field(tmp_path) -> None:
    items = load(made.hi_tom(tmp_path))
    assert len(items) == 11
    for item, record in zip(items, made.hi_tom_records(), strict=True):
        order = record["question_order"]
        kind = "VP/Tell" if record["deception"] else "CoTP/No_Tell"
        second = record["deception"] and not record["story"].startswith("1 One")
        group = f"{kind}/length_2/sample_{1 + second}"
        assert (item.item_id, item.group) == (f"{group}/order_{order}", group)
        assert (item.benchmark, item.split) == ("hi_tom", record["prompting_type"])
        assert item.question == "Where does Al really think the kite is?"
        assert item.options == (
            Option("A", "blue_chest"),
            Option("B", "red_box"),
            Option("C", "green_treasure_chest"),
        )
        assert item.answer == "B"
        assert item.context.scene == record["story"].strip()
        assert item.tags == {
            "order": (str(order),),
            "deception": (kind.split("/")[1],),
            "length": ("2",),
            "joint": tuple(f"up to order {top}" for top in range(1, 5) if top >= order),
        }
        assert item.licence == "Apache-2.0"
    assert HI_TOM.default_split == "VP" and "Agents like to lie" in HI_TOM.notes[""]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("prompting_type", "MC", "prompting_type must be one of VP, CoTP"),
        ("deception", "yes", "deception must be true or false"),
        ("story_length", -1, "story_length must be a whole number"),
        ("question_order", 5, "question_order must be one of 0 to 4"),
        ("choices", "A. x, C. y", "choices must be the choices in order"),
        ("choices", "A. red_box", "choices must be the choices in order"),
        ("choices", "A. red_box, B. red_box", "choices has a choice twice"),
        ("answer", "bag", "answer must be one of the choices, is 'bag'"),
        ("story", " ", "story must be a text"),
        ("question", None, "question must be a text"),
    ],
)
def test_what_is_wrong_is_named(name, value, problem) -> None:
    with pytest.raises(RecordError):
        read_question(Field(made.HI_TOM | {name: value}, "q.json"))


def test_another_folder_is_told_what_it_lacks(tmp_path) -> None:
    with pytest.raises(RecordError):
        load(tmp_path)
    (tmp_path / "Hi-ToM_data.json").write_text('{"data": []}')
    with pytest.raises(RecordError):
        load(tmp_path)
