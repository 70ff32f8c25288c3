"""ToMBench: a file a task, in which each line is a question in two languages."""

from __future__ import annotations

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.read import Field
from sally_anne.data.tombench import TOMBENCH, load, read_question
from tests.data.text_sets import made

WORDS = {"en": ["Box", "Drawer", "Chest", "Table"], "zh": ["盒子", "抽屉", "箱子", "桌子"]}


@pytest.mark.parametrize("place", ["", "data"])
def test_every_field(tmp_path, place) -> None:
    made.tombench(tmp_path / place)
    items = load(tmp_path)
    belief, faux_pas = "False Belief Task", "Faux-pas Recognition Test"
    assert [item.item_id for item in items] == [
        f"{task}/{line}/{language}"
        for task, line in ((belief, 1), (belief, 2), (faux_pas, 1))
        for language in ("en", "zh")
    ]
    assert [item.group for item in items] == ["story-0001"] * 4 + ["story-0002"] * 2
    for number, item in enumerate(items):
        language = "en" if number % 2 == 0 else "zh"
        few = number > 3
        assert (item.benchmark, item.split, item.licence) == ("tombench", language, "MIT")
        options = [(o.label, o.text) for o in item.options]
        assert options == list(zip("ABCD"[: 2 if few else 4], WORDS[language], strict=False))
        assert item.answer == ("B" if few else "A")
        assert item.tags["task"] == (faux_pas if few else belief,)
        assert item.tags["language"] == (language,)
        assert item.tags["category"] == ("Non-literal communication" if few else "Belief",)
        assert item.tags["ability"] == (
            ("Non-literal communication: Faux pas",)
            if few
            else ("Belief: Location false beliefs", "Belief: Second-order beliefs")
        )
    assert [item.question for item in items[::2]] == [
        *("Where is the apple?", "Where was it before?", "Where is the apple?")
    ]
    assert {item.question for item in items[1::2]} == {"苹果在哪里？"}
    assert [item.context.scene for item in items] == [
        *("Xiaoming puts the apple into the box.", "小明把苹果放进盒子。") * 2,
        *("Another.", "另一个。"),
    ]
    assert TOMBENCH.default_split == "en"
    assert TOMBENCH.breakdowns == ("task", "category", "ability", "language")


def test_a_wrong_option_may_stand_there_twice() -> None:
    record = made.TOMBENCH | {"OPTION-C": "Drawer"}
    english, _ = read_question(Field(record, "t.jsonl, line 1"), "task", "group")
    assert [option.text for option in english.options] == ["Box", "Drawer", "Drawer", "Table"]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("答案\nANSWER", "E", "must be one of A, B, C, D"),
        ("能力\nABILITY", "Memory: Faces", "must be abilities, each after its category: Emotion, "),
        ("能力\nABILITY", "Belief: ", "must be abilities"),
        ("OPTION-A", "A. ", "OPTION-A is a letter alone"),
        ("OPTION-B", "Box", "is A, which must be one of the options, and once"),
        ("OPTION-D", None, "OPTION-C and the others must be A and B, or A to D"),
        ("选项B", float("nan"), "选项C and the others must be"),
        ("选项A", 3, "选项A must be a text"),
        ("STORY", None, "STORY must be a text"),
        ("问题", "\ud800", "问题 holds half of a character"),
    ],
)
def test_what_is_wrong_is_named(name, value, problem) -> None:
    with pytest.raises(RecordError):
        read_question(Field(made.TOMBENCH | {name: value}, "t.jsonl, line 1"), "task", "group")


def test_another_folder_is_told_what_it_lacks(tmp_path) -> None:
    with pytest.raises(RecordError):
        load(tmp_path)
    (tmp_path / "x.jsonl").write_text("\n")
    with pytest.raises(RecordError):
        load(tmp_path)
