"""BigToM: folders of stories, made, published and wrong."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Question
from sally_anne.data.text_sets import BIGTOM, KINDS, load_bigtom, read_stories
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


@pytest.mark.parametrize("given", ["", "data", "data/bigtom"])
def test_a_clone_whose_conditions_are_not_made_says_how_to_make_them(tmp_path, given) -> None:
    clone = tmp_path / "procedural-evals-tom"
    (clone / "data" / "bigtom").mkdir(parents=True)
    (clone / "data" / "bigtom" / "bigtom.csv").write_bytes(line(*ROW))
    with pytest.raises(RecordError) as error:
        load_bigtom(clone / given)
    assert f"`cd code/src && python generate_conditions.py` in {clone}" in str(error.value)
    made = write(clone / "data" / "conditions", TB, line(*ROW))
    if given != "data/bigtom":
        assert len(load_bigtom(clone / given)) == 1
        return
    with pytest.raises(RecordError) as error:
        load_bigtom(clone / given)
    assert str(error.value).endswith(f"has no condition; give {made}")


def test_semicolons_quotation_marks_and_lines_stay_inside_quotes(tmp_path) -> None:
    story = 'Ann says: "It is here; I\nsaw it."'
    found = load_bigtom(write(tmp_path, TB, line(story, *ROW[1:]), line(*ROW)))
    assert found[0].context.scene == story
    assert found[1].group == "story-002"


def test_a_byte_order_mark_blank_lines_and_blanks_change_nothing(tmp_path) -> None:
    other = (ROW[0], "Where?", "Here.", "There.")
    plain = load_bigtom(write(tmp_path / "a", TB, line(*ROW), line(*other)))
    blanks = line(*(f"  {column} " for column in other)).rstrip() + b"\n"
    odd = load_bigtom(
        write(tmp_path / "b", TB, b"\xef\xbb\xbf" + line(*ROW), b"\r\n  \n", blanks, b"\n")
    )
    assert odd == plain


def test_letters_are_balanced_and_the_same_in_every_run() -> None:
    content = b"".join([line(*ROW)] * 1000)
    rows = [item for item, _ in read_stories(content, Path("stories.csv"), KINDS[TB])]
    assert 450 < sum(item.answer == "A" for item in rows) < 550
    # Fixed, so that a change of the rule is noticed: published results would no longer fit.
    assert "".join(str(item.answer) for item in rows[:20]) == "ABBAABAABABAABBAABAB"


@pytest.mark.parametrize(
    "bad",
    [
        line(*ROW[:3]),
        line(*ROW, "more"),
        b"Ann; Bob; Cid\n",
        b"Ann\n",
        b";;;\n",
        line(" ", *ROW[1:]),
        line(ROW[0], "", *ROW[2:]),
        line(*ROW[:2], "", ROW[3]),
        line(*ROW[:3], " "),
        line(*ROW[:3], ROW[2] + " "),
        b'"Ann;Where?;Here;There\n',
        b'"Ann"!;Where?;Here;There\n',
        b"Ann \xff;Where?;Here;There\n",
    ],
)
def test_a_wrong_row_is_named_with_its_line(tmp_path, bad) -> None:
    long = line("Two\nlines", *ROW[1:])
    folder = write(tmp_path, TB, long, b"\n", bad, line(*ROW))
    with pytest.raises(RecordError):
        load_bigtom(folder)


def test_rows_of_two_folders_must_be_about_one_story(tmp_path) -> None:
    write(tmp_path, FB, line(*UNSEEN), line(*UNSEEN))
    write(tmp_path, TB, line(*ROW), line(ROW[0], "Where?", *ROW[2:]))
    with pytest.raises(
        RecordError,
    ):
        load_bigtom(tmp_path)
    write(tmp_path, TB, line(*ROW), line(*ROW[:3], "Ann believes nothing."))
    with pytest.raises(RecordError):
        load_bigtom(tmp_path)
    # Actions are asked for in other words.
    write(tmp_path, TB, line(*ROW))
    write(tmp_path, "0_forward_action_true_belief", line(ROW[0], "What next?", "Go.", "Stay."))
    assert len(load_bigtom(tmp_path)) == 4


def test_missing_empty_and_unknown_folders_are_named(tmp_path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(RecordError):
            load_bigtom(folder)
    (tmp_path / "notes").mkdir()
    write(tmp_path, "notes", b"not;ours")
    write(tmp_path, TB, b"\xef\xbb\xbf\n")
    with pytest.raises(RecordError):
        load_bigtom(tmp_path)
    write(tmp_path, TB, line(*ROW))
    assert len(load_bigtom(tmp_path)) == 1
    write(tmp_path, "0_forward_belief_other", line(*ROW))
    with pytest.raises(RecordError):
        load_bigtom(tmp_path)
    (tmp_path / "0_forward_belief_other" / "stories.csv").unlink()
    (tmp_path / TB / "stories.csv").unlink()
    (tmp_path / TB / "stories.csv").mkdir()
    with pytest.raises(RecordError):
        load_bigtom(tmp_path)


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
    assert {"0_forward_belief_false_belief", "0_forward_belief_true_belief"} <= set(sizes)
    assert len({item.item_id for item in items}) == len(items)
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


def test_no_part_is_empty_and_every_answer_is_an_option(items) -> None:
    for item in items:
        assert [option.label for option in item.options] == ["A", "B"]
        assert item.answer in ("A", "B")
        parts = [item.context.scene, item.question, *(option.text for option in item.options)]
        assert all(part and part == part.strip() for part in parts)
        assert item.question.endswith("?")


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


FIRST_STORY = {
    "made": (
        "Ilse keeps bees behind a mill.",
        ("Ilse sees her nephew change the jars.", "Ilse believes the jar holds heather honey."),
        (
            "Ilse does not see her nephew change the jars.",
            "Ilse believes the jar holds lime honey.",
        ),
    ),
    "published": (
        "Noor is working as a barista at a busy coffee shop.",
        (
            "Noor sees her coworker swapping the milk.",
            "Noor believes the milk pitcher contains almond milk.",
        ),
        (
            "Noor does not see her coworker swapping the milk.",
            "Noor believes the milk pitcher contains oat milk.",
        ),
    ),
}


def test_the_first_story_word_by_word(items, source) -> None:
    found = first_order(items)
    begins, *sides = FIRST_STORY[source]
    for condition, (ends, right) in zip(("TB", "FB"), sides, strict=True):
        item = found["story-001", condition]
        assert item.context.scene.startswith(begins) and item.context.scene.endswith(ends)
        assert right_text(item) == right


def test_controls_are_conditions_of_their_own() -> None:
    """What happens there leaves the belief as it was, whether it is noticed or not."""
    items = BIGTOM.load(official_data("made", "bigtom"))
    controls = [item for item in items if item.item_id.split("/")[0].endswith("control")]
    assert Counter(item.tags["condition"] for item in controls) == {
        ("TB control",): 4,
        ("FB control",): 4,
    }
    unseen = first_order(items)
    for item in controls:
        assert right_text(item) == right_text(unseen[item.group, "FB"])
