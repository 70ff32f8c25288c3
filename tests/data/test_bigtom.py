"""BigToM: folders of stories, made, published and wrong."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Question
from sally_anne.data.text_sets import BIGTOM, load_bigtom, read_stories
from tests.shared_data import SOURCES, official_data

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


def right_text(item: Question) -> str:
    return next(option.text for option in item.options if option.label == item.answer)


def test_a_row_gives_an_item(tmp_path) -> None:
    (item,) = load_bigtom(write(tmp_path, TB, line(*ROW)))
    assert item.item_id == f"{TB}/001"
    assert (item.benchmark, item.split, item.group) == ("bigtom", "test", "story-001")
    assert (item.context.scene, item.question) == ROW[:2]
    assert [option.label for option in item.options] == ["A", "B"]
    assert {option.text for option in item.options} == set(ROW[2:])
    assert right_text(item) == ROW[2]
    assert item.tags == {
        "variable": ("forward_belief",),
        "condition": ("TB",),
        "initial_belief": ("hidden",),
    }
    assert item.media == ()


@pytest.mark.parametrize("place", ["", "conditions", "data/conditions"])
def test_the_same_row_of_two_conditions_is_one_group(tmp_path, place) -> None:
    for name, row in ((FB, UNSEEN), (TB, ROW)):
        write(tmp_path / place, name, line(*row))
    unseen, seen = BIGTOM.load(tmp_path)
    assert unseen.group == seen.group == "story-001"
    assert (unseen.tags["condition"], seen.tags["condition"]) == (("FB",), ("TB",))
    assert right_text(unseen) == UNSEEN[2]
    assert right_text(seen) == ROW[2]


def test_semicolons_quotation_marks_and_lines_stay_inside_quotes(tmp_path) -> None:
    story = 'Ann says: "It is here; I\nsaw it."'
    found = load_bigtom(write(tmp_path, TB, line(story, *ROW[1:]), line(*ROW)))
    assert found[0].context.scene == story
    assert found[1].group == "story-002"


def test_letters_are_balanced_and_the_same_in_every_run() -> None:
    content = b"".join([line(*ROW)] * 1000)
    rows = read_stories(content, Path(TB) / "stories.csv")
    assert 450 < sum(item.answer == "A" for item in rows) < 550
    # Fixed, so that a change of the rule is noticed: published results would no longer fit.
    assert "".join(str(item.answer) for item in rows[:20]) == "ABBAABAABABAABBAABAB"


ROWS = {"made": 4, "published": 200}
# The right answers of the made stories; which letter they have hangs on the item's name.
LETTERS = {
    "0_forward_belief_false_belief": "ABBA",
    "0_forward_belief_false_control": "ABAA",
    "0_forward_belief_true_belief": "BBAA",
    "0_forward_belief_true_control": "AABB",
}


@pytest.fixture(scope="module", params=SOURCES)
def source(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def items(source: str) -> list[Question]:
    return BIGTOM.load(official_data(source, "bigtom"))


def first_order(items: list[Question]) -> dict[tuple[str, str], Question]:
    """Forward belief with the first belief hidden, by group and condition."""
    return {
        (item.group, item.tags["condition"][0]): item
        for item in items
        if item.item_id.startswith("0_forward_belief_") and "control" not in item.item_id
    }


def test_every_condition_has_all_stories(items, source) -> None:
    sizes = Counter(item.item_id.split("/")[0] for item in items)
    assert set(sizes.values()) == {ROWS[source]}
    assert {FB, TB} <= set(sizes) and len({item.item_id for item in items}) == len(items)
    assert {item.group for item in items} == {f"story-{n:03d}" for n in range(1, ROWS[source] + 1)}


def test_the_same_row_is_the_same_story_with_the_other_answer(items, source) -> None:
    found = first_order(items)
    for number in range(1, ROWS[source] + 1):
        seen, unseen = (found[f"story-{number:03d}", condition] for condition in ("TB", "FB"))
        assert seen.question == unseen.question
        # They differ in the last sentence alone, which tells what the person noticed.
        assert seen.context.scene != unseen.context.scene
        told = [item.context.scene.rsplit(". ", 1)[0] for item in (seen, unseen)]
        assert told[0] == told[1]
        assert {o.text for o in seen.options} == {o.text for o in unseen.options}
        assert right_text(seen) != right_text(unseen)


def test_letters_are_balanced_in_every_condition(items, source) -> None:
    letters: dict[str, str] = {}
    for item in items:
        name = item.item_id.split("/")[0]
        letters[name] = letters.get(name, "") + item.answer
    if source == "made":
        assert letters == LETTERS
        return
    for name, answers in letters.items():
        assert 0.4 < answers.count("A") / len(answers) < 0.6, name


@pytest.mark.parametrize(
    ("row", "place"),
    [(ROW[:3], "line 2: must have"), ((*ROW[:3], ROW[2]), "line 2: field wrong answer is")],
)
def test_an_error_names_file_line_and_column(tmp_path, row, place) -> None:
    with pytest.raises(RecordError, match=place):
        load_bigtom(write(tmp_path, TB, line(*ROW), line(*row)))
    with pytest.raises(RecordError, match="has no condition"):
        load_bigtom(tmp_path / "elsewhere")
