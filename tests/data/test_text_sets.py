"""The text sets in their official layouts: every field of made records, and wrong ones refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sally_anne.data.items import Option, two_options
from sally_anne.data.read import Field
from sally_anne.data.text_sets import (
    FANTOM,
    HI_TOM,
    OPENTOM,
    SEEN,
    TOMBENCH,
    TOMI,
    load_fantom,
    load_hi_tom,
    load_opentom,
    load_tombench,
    load_tomi,
    read_fantom,
    read_hi_tom,
    read_opentom,
    read_tombench,
)
from tests.data import made_text_sets as made


def right_text(item) -> str:
    return next(option.text for option in item.options if option.label == item.answer)


@pytest.mark.parametrize(
    ("place", "name", "split"), [("", "test", "test"), ("data", "fb_all_val", "val")]
)
def test_every_field_of_tomi(tmp_path, place, name, split) -> None:
    made.tomi(tmp_path / place, name)
    items = load_tomi(tmp_path)
    stories = ((made.MOVED, made.TOMI_QUESTIONS, "false"), (made.SEEN, made.TOMI_SEEN, "true"))
    expected = [
        (number, "\n".join(lines), kind, asked, belief)
        for number, (lines, questions, belief) in enumerate(stories, 1)
        for kind, asked in questions.items()
    ]
    assert len(items) == len(expected) == 12
    conditions = {"first_order_1_tom": ("FB",), "first_order_0_no_tom": ("TB",)}
    orders = {"memory": "0", "reality": "0", "first": "1", "second": "2"}
    for item, (number, scene, kind, (question, right), belief) in zip(items, expected, strict=True):
        assert item.item_id == f"{name}/000{number}/{kind}"
        assert (item.benchmark, item.split, item.group) == ("tomi", split, f"{name}/000{number}")
        assert (item.question, item.context.scene) == (question, scene)
        assert [option.label for option in item.options] == ["A", "B"]
        assert {option.text for option in item.options} == {"red_box", "blue_chest"}
        assert right_text(item) == right
        condition = item.tags.get("condition")
        assert condition == (conditions.get(kind) if belief == "false" else None)
        assert {**item.tags, "condition": ()} == {
            "type": (kind.replace("_0_", "_").replace("_1_", "_"),),
            "order": (orders[kind.split("_")[0]],),
            "story": (f"{belief}_belief",),
            "joint": ("story",),
            "condition": (),
        }
        assert item.licence == "CC-BY-NC-4.0" and item.media == () and item.drawn == ()
    assert TOMI.load is load_tomi and set(TOMI.breakdowns) == {
        "type",
        "order",
        "story",
        "condition",
    }


def test_which_option_is_a_does_not_tell_which_is_right() -> None:
    for number in range(50):
        one, other = two_options(f"{number}", "x", "y"), two_options(f"{number}", "y", "x")
        assert one[0] == other[0] and one[1] != other[1]
    assert {two_options(f"{number}", "x", "y")[1] for number in range(50)} == {"A", "B"}


def test_every_field_of_hi_tom(tmp_path) -> None:
    items = load_hi_tom(made.hi_tom(tmp_path))
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


def test_every_field_of_fantom(tmp_path) -> None:
    items = load_fantom(made.fantom(tmp_path / "data" / "fantom").parents[1])
    sets = [
        made.fantom_set("3-1-0"),
        made.fantom_set("3-1-1"),
        made.fantom_set("4-0-0", "accessible"),
    ]
    # Two beliefs; of three speakers one is not in the short conversation; two kinds of questions.
    assert len(items) == 3 * ((2 + 2 * 2) + (2 + 2 * 3))
    draws = random.Random(99)
    place = iter(items)
    for record in sets:
        lasts = [draws.choice([True, False]) for _ in record["beliefQAs"]]
        control = " control" if record["set_id"].startswith("4") else ""
        for split in ("short", "full"):
            name = f"{split}/{record['set_id']}"
            for number, asked in enumerate(record["beliefQAs"]):
                item = next(place)
                assert item.item_id == f"{name}/belief-{number}"
                assert (item.split, item.group) == (split, f"{split}/{record['set_id'][0]}")
                assert item.question == asked["question"]
                texts = [asked["correct_answer"], asked["wrong_answer"]]
                texts = texts[::-1] if lasts[number] else texts
                assert [(o.label, o.text) for o in item.options] == list(
                    zip("AB", texts, strict=True)
                )
                assert item.answer == ("B" if lasts[number] else "A")
                assert item.tags == {
                    "type": (f"belief{control}",),
                    "order": (asked["tom_type"],),
                    "set": (record["set_id"],),
                    "joint": (f"all but lists{control}",),
                }
                assert item.context.dialogue == record[f"{split}_context"]
                assert (item.benchmark, item.licence) == ("fantom", "MIT")
            for kind, field, before in (
                ("answerability", "answerabilityQAs_binary", "Target: What is Al's dog called?"),
                (
                    *("info-access", "infoAccessibilityQAs_binary"),
                    "Information: What is Al's dog called? Al's dog is called Rex.",
                ),
            ):
                # All of the conversation has been missed by Di.
                kept = control if split == "short" else ""
                for number, asked in enumerate(record[field]):
                    if split == "short" and asked["correct_answer"] == "no:long":
                        continue
                    item = next(place)
                    assert item.item_id == f"{name}/{kind}-{number}"
                    assert item.question == f"{before}\n{asked['question']}"
                    assert [(o.label, o.text) for o in item.options] == [("A", "Yes"), ("B", "No")]
                    assert item.answer == ("A" if asked["correct_answer"] == "yes" else "B")
                    assert item.tags == {
                        "type": (f"{kind}{kept}",),
                        "set": (record["set_id"],),
                        "joint": (f"all but lists{kept}", f"all {kind}{kept}"),
                    }
    assert next(place, None) is None
    assert FANTOM.default_split == "short" and "two lists of speakers" in FANTOM.left_out


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
def test_every_field_of_opentom(tmp_path, place) -> None:
    made.opentom(tmp_path / place)
    items = load_opentom(tmp_path)
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
    item = read_opentom(Field(record, "o.json"), "test")
    assert {option.text for option in item.options} == {"red_box", "center of dining table"}


WORDS = {"en": ["Box", "Drawer", "Chest", "Table"], "zh": ["盒子", "抽屉", "箱子", "桌子"]}


@pytest.mark.parametrize("place", ["", "data"])
def test_every_field_of_tombench(tmp_path, place) -> None:
    made.tombench(tmp_path / place)
    items = load_tombench(tmp_path)
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


# By benchmark a good record, how it is read, and changes: a path, and a value that must be refused.
READ = {
    "fantom": lambda record: read_fantom(record, random.Random(0)),
    "hi_tom": read_hi_tom,
    "opentom": lambda record: read_opentom(record, "test"),
    "tombench": lambda record: read_tombench(record, "task", "group"),
}
GOOD: dict[str, Any] = {
    "fantom": made.fantom_set(),
    "hi_tom": made.HI_TOM,
    "opentom": made.opentom_records()[3],
    "tombench": made.TOMBENCH,
}
WRONG: list[tuple[str, tuple[Any, ...], Any]] = [
    ("fantom", ("short_context",), None),
    ("fantom", ("beliefQAs", 1, "wrong_answer"), "Al believes that Bo does not know."),
    ("fantom", ("beliefQAs", 0, "missed_info_accessibility"), "x"),
    ("fantom", ("answerabilityQAs_binary", 2, "correct_answer"), "maybe"),
    ("hi_tom", ("prompting_type",), "MC"),
    ("hi_tom", ("deception",), "yes"),
    ("hi_tom", ("question_order",), 5),
    ("hi_tom", ("choices",), "A. x, C. y"),
    ("hi_tom", ("choices",), "A. red_box, B. red_box"),
    ("hi_tom", ("answer",), "bag"),
    ("opentom", ("question", "answer"), "no"),
    ("opentom", ("question", "type"), "attitude"),
    ("opentom", ("question", "question"), "Is it there?"),
    ("opentom", ("plot_info",), None),
    ("opentom", ("observed",), "no"),
    ("tombench", ("答案\nANSWER",), "E"),
    ("tombench", ("能力\nABILITY",), "Belief: "),
    ("tombench", ("OPTION-A",), "A. "),
    ("tombench", ("OPTION-B",), "Box"),
    ("tombench", ("选项B",), float("nan")),
    ("tombench", ("问题",), "\ud800"),
]
