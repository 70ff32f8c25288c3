"""The text sets in their official layouts: made records whole, and wrong ones refused."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Question, two_options
from sally_anne.data.read import Field
from sally_anne.data.text_sets import (
    BIGTOM,
    FANTOM,
    HI_TOM,
    OPENTOM,
    SEEN,
    TOMBENCH,
    TOMI,
    load_bigtom,
    load_fantom,
    load_hi_tom,
    load_opentom,
    load_tombench,
    load_tomi,
    read_opentom,
    read_stories,
)
from tests.data import made_text_sets as made
from tests.shared_data import official_data


def right_text(item: Question) -> str:
    return next(option.text for option in item.options if option.label == item.answer)


def texts(item: Question) -> list[str]:
    assert [option.label for option in item.options] == list("ABCD"[: len(item.options)])
    return [option.text for option in item.options]


@pytest.mark.parametrize(
    ("place", "name", "split"), [("", "test", "test"), ("data", "fb_all_val", "val")]
)
def test_tomi(tmp_path, place, name, split) -> None:
    made.tomi(tmp_path / place, name)
    items = load_tomi(tmp_path)
    stories = ((made.MOVED, made.TOMI_QUESTIONS, "false"), (made.SEEN, made.TOMI_SEEN, "true"))
    conditions = {"first_order_1_tom": ("FB",), "first_order_0_no_tom": ("TB",)}
    orders = {"memory": "0", "reality": "0", "first": "1", "second": "2"}
    place_ = iter(items)
    for number, (lines, questions, belief) in enumerate(stories, 1):
        for kind, (question, right) in questions.items():
            item = next(place_)
            assert item.item_id == f"{name}/000{number}/{kind}"
            assert (item.split, item.group) == (split, f"{name}/000{number}")
            assert (item.question, item.context.scene) == (question, "\n".join(lines))
            assert set(texts(item)) == {"red_box", "blue_chest"} and right_text(item) == right
            condition = conditions.get(kind) if belief == "false" else None
            assert item.tags == {
                "type": (kind.replace("_0_", "_").replace("_1_", "_"),),
                "order": (orders[kind.split("_")[0]],),
                "story": (f"{belief}_belief",),
                "joint": ("story",),
                **({"condition": condition} if condition else {}),
            }
    assert next(place_, None) is None and TOMI.load is load_tomi


def test_which_option_is_a_does_not_tell_which_is_right() -> None:
    for number in range(50):
        one, other = two_options(f"{number}", "x", "y"), two_options(f"{number}", "y", "x")
        assert one[0] == other[0] and one[1] != other[1]
    assert {two_options(f"{number}", "x", "y")[1] for number in range(50)} == {"A", "B"}


def test_hi_tom(tmp_path) -> None:
    items = load_hi_tom(made.hi_tom(tmp_path))
    for item, record in zip(items, made.hi_tom_records(), strict=True):
        order = record["question_order"]
        kind = "VP/Tell" if record["deception"] else "CoTP/No_Tell"
        second = record["deception"] and not record["story"].startswith("1 One")
        group = f"{kind}/length_2/sample_{1 + second}"
        assert (item.item_id, item.group) == (f"{group}/order_{order}", group)
        assert (item.benchmark, item.split) == ("hi_tom", record["prompting_type"])
        assert item.question == "Where does Al really think the kite is?"
        assert texts(item) == ["blue_chest", "red_box", "green_treasure_chest"]
        assert item.answer == "B" and item.context.scene == record["story"].strip()
        assert item.tags == {
            "order": (str(order),),
            "deception": (kind.split("/")[1],),
            "length": ("2",),
            "joint": tuple(f"up to order {top}" for top in range(1, 5) if top >= order),
        }
    assert HI_TOM.default_split == "VP" and "Agents like to lie" in HI_TOM.notes[""]


def test_fantom(tmp_path) -> None:
    items = load_fantom(made.fantom(tmp_path / "data" / "fantom").parents[1])
    # Two beliefs; of three speakers one is not in the short conversation; two kinds of questions.
    assert len(items) == 3 * ((2 + 2 * 2) + (2 + 2 * 3))
    found = {item.item_id: item for item in items}
    draws = random.Random(99)
    for name, control in (("3-1-0", ""), ("3-1-1", ""), ("4-0-0", " control")):
        record = made.fantom_set(name, "accessible" if control else "inaccessible")
        lasts = [draws.choice([True, False]) for _ in record["beliefQAs"]]
        for split in ("short", "full"):
            for number, asked in enumerate(record["beliefQAs"]):
                item = found[f"{split}/{name}/belief-{number}"]
                assert (item.split, item.group) == (split, f"{split}/{name[0]}")
                assert item.question == asked["question"]
                offered = [asked["correct_answer"], asked["wrong_answer"]]
                assert texts(item) == (offered[::-1] if lasts[number] else offered)
                assert item.answer == ("B" if lasts[number] else "A")
                assert item.tags == {
                    "type": (f"belief{control}",),
                    "order": (asked["tom_type"],),
                    "set": (name,),
                    "joint": (f"all but lists{control}",),
                }
                assert item.context.dialogue == record[f"{split}_context"]
            # All of the conversation has been missed by Di.
            kept = control if split == "short" else ""
            item = found[f"{split}/{name}/info-access-0"]
            about = "Information: What is Al's dog called? Al's dog is called Rex."
            assert item.question == f"{about}\nDoes Al know this information?"
            assert texts(item) == ["Yes", "No"] and item.answer == "A"
            assert item.tags == {
                "type": (f"info-access{kept}",),
                "set": (name,),
                "joint": (f"all but lists{kept}", f"all info-access{kept}"),
            }
            assert (f"{split}/{name}/answerability-2" in found) == (split == "full")
    assert found["full/3-1-0/answerability-2"].answer == "B"
    assert FANTOM.default_split == "short" and "two lists of speakers" in FANTOM.left_out


FULL = ["more full", "equally full", "less full"]
NEAR = ["more accessible", "equally accessible", "less accessible"]
PLACES = ["a blue chest", "red_box"]
# Type, hop, perspective, condition where the move is not seen, options, right answer.
EXPECTED = [
    ("attitude", "", "observer", "", ["positive", "neutral", "negative"], "neutral"),
    ("multihop, first order", "fullness", "mover", "", FULL, "less full"),
    ("multihop, second order", "accessibility", "observer", "", NEAR, "equally accessible"),
    ("location coarse, first order", "", "mover", "TB", ["Yes", "No"], "No"),
    ("location coarse, first order", "", "observer", "FB", ["Yes", "No"], "Yes"),
    ("location fine, first order", "", "narrator", "", PLACES, "a blue chest"),
    ("location fine, first order", "", "mover", "TB", PLACES, "a blue chest"),
    ("location fine, first order", "", "observer", "FB", PLACES, "red_box"),
    ("location fine, second order", "", "observer", "", PLACES, "red_box"),
]


@pytest.mark.parametrize("place", ["", "data"])
def test_opentom(tmp_path, place) -> None:
    made.opentom(tmp_path / place)
    items = load_opentom(tmp_path)
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
        assert item.context.scene == narratives[story] and right_text(item) == right
        assert (sorted(texts(item)) if options is PLACES else texts(item)) == options
        # Where the observer sees the move nobody is wrong.
        condition = condition if story != 1 else ""
        tags = {"type": kind, "perspective": perspective, "hop": hop, "condition": condition}
        assert item.tags == {name: (value,) for name, value in tags.items() if value}
    assert OPENTOM.cells == ("type",)


def test_a_misspelt_place_is_the_same_place() -> None:
    record = made.opentom_records()[6]
    record["plot_info"]["move_to_place"] = "center of dinint table"
    record["question"]["answer"] = "center of dining table"
    item = read_opentom(Field(record, "o.json"), "test", {})
    assert set(texts(item)) == {"red_box", "center of dining table"}


WORDS = {"en": ["Box", "Drawer", "Chest", "Table"], "zh": ["盒子", "抽屉", "箱子", "桌子"]}


@pytest.mark.parametrize("place", ["", "data"])
def test_tombench(tmp_path, place) -> None:
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
        few = number > 3
        assert texts(item) == WORDS[item.split][: 2 if few else 4]
        assert item.answer == ("B" if few else "A")
        abilities = ("Belief: Location false beliefs", "Belief: Second-order beliefs")
        assert item.tags == {
            "task": (faux_pas if few else belief,),
            "language": (item.split,),
            "category": ("Non-literal communication" if few else "Belief",),
            "ability": ("Non-literal communication: Faux pas",) if few else abilities,
        }
    assert {item.question for item in items[1::2]} == {"苹果在哪里？"}
    assert items[2].question == "Where was it before?"
    scenes = ("Xiaoming puts the apple into the box.", "小明把苹果放进盒子。")
    assert [item.context.scene for item in items] == [*scenes, *scenes, "Another.", "另一个。"]
    assert TOMBENCH.default_split == "en"


FB, TB = "0_forward_belief_false_belief", "0_forward_belief_true_belief"
ROW = (
    "Ann sees it.",
    "Does Ann believe it is here or there?",
    "Ann believes it is there.",
    "Ann believes it is here.",
)
UNSEEN = ("Ann does not see it.", ROW[1], ROW[3], ROW[2])


def line(*columns: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=";").writerow(columns)
    return text.getvalue().encode()


def write(folder: Path, name: str, *lines: bytes) -> Path:
    """A condition's folder below the benchmark's folder."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "stories.csv").write_bytes(b"".join(lines))
    return folder


@pytest.mark.parametrize("place", ["", "conditions", "data/conditions"])
def test_the_same_row_of_two_conditions_is_one_group(tmp_path, place) -> None:
    for name, row in ((FB, UNSEEN), (TB, ROW)):
        write(tmp_path / place, name, line(*row))
    unseen, seen = BIGTOM.load(tmp_path)
    assert unseen.group == seen.group == "story-001" and seen.item_id == f"{TB}/001"
    assert (unseen.tags["condition"], seen.tags["condition"]) == (("FB",), ("TB",))
    assert right_text(unseen) == UNSEEN[2] and right_text(seen) == ROW[2]
    assert (seen.context.scene, seen.question) == ROW[:2]
    assert seen.tags["variable"] == ("forward_belief",)
    assert seen.tags["initial_belief"] == ("hidden",)


def test_semicolons_quotation_marks_and_lines_stay_inside_quotes(tmp_path) -> None:
    story = 'Ann says: "It is here; I\nsaw it."'
    found = load_bigtom(write(tmp_path, TB, line(story, *ROW[1:]), line(*ROW)))
    assert found[0].context.scene == story and found[1].group == "story-002"


def test_letters_are_balanced_and_the_same_in_every_run() -> None:
    rows = read_stories(b"".join([line(*ROW)] * 1000), Path(TB) / "stories.csv")
    assert 450 < sum(item.answer == "A" for item in rows) < 550
    # Fixed, so that a change of the rule is noticed: published results would no longer fit.
    assert "".join(str(item.answer) for item in rows[:20]) == "ABBAABAABABAABBAABAB"


@pytest.mark.parametrize(("source", "count"), [("made", 4), ("published", 200)])
def test_the_same_row_is_the_same_story_with_the_other_answer(source: str, count: int) -> None:
    items = BIGTOM.load(official_data(source, "bigtom"))
    found = {item.item_id: item for item in items}
    assert len(found) == len(items) == count * len({item.item_id[:-4] for item in items})
    for number in range(1, count + 1):
        seen, unseen = (found[f"{name}/{number:03d}"] for name in (TB, FB))
        assert seen.question == unseen.question and seen.group == f"story-{number:03d}"
        # They differ in the last sentence alone, which tells what the person noticed.
        assert seen.context.scene != unseen.context.scene
        told = [item.context.scene.rsplit(". ", 1)[0] for item in (seen, unseen)]
        assert told[0] == told[1]
        assert {o.text for o in seen.options} == {o.text for o in unseen.options}
        assert right_text(seen) != right_text(unseen)


@pytest.mark.parametrize(
    ("row", "place"),
    [(ROW[:3], "line 2: must have"), ((*ROW[:3], ROW[2]), "line 2: field wrong answer is")],
)
def test_an_error_names_file_line_and_column(tmp_path, row, place) -> None:
    with pytest.raises(RecordError, match=place):
        load_bigtom(write(tmp_path, TB, line(*ROW), line(*row)))
    with pytest.raises(RecordError, match="must hold folders"):
        load_bigtom(tmp_path / "elsewhere")
