"""Reading the folders of stories: rows come out right or the error says what is wrong."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import RecordError
from sally_anne.data.bigtom import (
    BIGTOM,
    CELLS,
    CONDITIONS,
    VARIABLES,
    load,
    read_row,
    read_stories,
)
from sally_anne.data.items import BenchmarkItem
from sally_anne.data.read import Field

FB, TB = "0_forward_belief_false_belief", "0_forward_belief_true_belief"
ROW = (
    "Ann sees it.",
    "Does Ann believe it is here or there?",
    "Ann believes it is there.",
    "Ann believes it is here.",
)
CELL = CELLS[TB]
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


def cells(columns: Sequence[str]) -> list[Field]:
    return [Field(column, "stories.csv, line 1") for column in columns]


def right_text(item: BenchmarkItem) -> str:
    return next(option.text for option in item.options if option.label == item.answer)


def test_a_row_gives_an_item(tmp_path) -> None:
    (item,) = load(write(tmp_path, TB, line(*ROW)))
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


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("initial", ["0", "1"])
def test_a_folder_s_name_says_what_it_holds(initial, variable, condition) -> None:
    cell = CELLS[f"{initial}_{variable}_{condition}"]
    assert cell.initial == {"0": "hidden", "1": "told"}[initial]
    assert cell.variable == variable
    assert cell.condition[:2] == ("TB" if condition.startswith("true") else "FB")
    assert cell.condition.endswith("control") is condition.endswith("control")
    assert cell.asked == ("action" if variable == "forward_action" else "belief")


@pytest.mark.parametrize("name", ["", "stories", "2_forward_belief_true_belief", FB + "_2", "0_x"])
def test_other_names_are_none_of_bigtom_s(name) -> None:
    assert name not in CELLS


@pytest.mark.parametrize("given", ["", "data", "data/bigtom"])
def test_a_clone_whose_conditions_are_not_made_says_how_to_make_them(tmp_path, given) -> None:
    clone = tmp_path / "procedural-evals-tom"
    (clone / "data" / "bigtom").mkdir(parents=True)
    (clone / "data" / "bigtom" / "bigtom.csv").write_bytes(line(*ROW))
    with pytest.raises(RecordError) as error:
        load(clone / given)
    assert f"`cd code/src && python generate_conditions.py` in {clone}, " in str(error.value)
    made = write(clone / "data" / "conditions", TB, line(*ROW))
    if given != "data/bigtom":
        assert len(load(clone / given)) == 1
        return
    with pytest.raises(RecordError) as error:
        load(clone / given)
    assert str(error.value).endswith(f"has no condition; give {made}")


def test_semicolons_quotation_marks_and_lines_stay_inside_quotes(tmp_path) -> None:
    story = 'Ann says: "It is here; I\nsaw it."'
    found = load(write(tmp_path, TB, line(story, *ROW[1:]), line(*ROW)))
    assert found[0].context.scene == story
    assert found[1].group == "story-002"


def test_a_byte_order_mark_blank_lines_and_blanks_change_nothing(tmp_path) -> None:
    other = (ROW[0], "Where?", "Here.", "There.")
    plain = load(write(tmp_path / "a", TB, line(*ROW), line(*other)))
    blanks = line(*(f"  {column} " for column in other)).rstrip() + b"\n"
    odd = load(write(tmp_path / "b", TB, b"\xef\xbb\xbf" + line(*ROW), b"\r\n  \n", blanks, b"\n"))
    assert odd == plain


def test_an_answer_s_letter_depends_on_no_column(tmp_path) -> None:
    """With right and wrong changed over, the same text is A."""
    for number in range(1, 201):
        one = read_row(cells(ROW), CELL, number)
        other = read_row(cells([*ROW[:2], ROW[3], ROW[2]]), CELL, number)
        assert one.options == other.options
        assert one.answer != other.answer


def test_letters_are_balanced_and_the_same_in_every_run() -> None:
    rows = [read_row(cells(ROW), CELL, number) for number in range(1, 1001)]
    assert 450 < sum(item.answer == "A" for item in rows) < 550
    # Fixed, so that a change of the rule is noticed: published results would no longer fit.
    assert "".join(str(item.answer) for item in rows[:20]) == "ABBAABAABABAABBAABAB"


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (line(*ROW[:3]), "must have 4 columns .* has 3; put a column with a semicolon in quot"),
        (line(*ROW, "more"), "must have 4 columns .* has 5"),
        (b"Ann; Bob; Cid\n", "must have 4 columns .* has 3"),
        (b"Ann\n", "must have 4 columns .* has 1"),
        (b";;;\n", "field story is empty"),
        (line(" ", *ROW[1:]), "field story is empty"),
        (line(ROW[0], "", *ROW[2:]), "field question is empty"),
        (line(*ROW[:2], "", ROW[3]), "field right answer is empty"),
        (line(*ROW[:3], " "), "field wrong answer is empty"),
        (line(*ROW[:3], ROW[2] + " "), "field wrong answer is the right answer too"),
        (b'"Ann;Where?;Here;There\n', "is no row of columns .*; check its quotation marks"),
        (b'"Ann"!;Where?;Here;There\n', "is no row of columns"),
        (b"Ann \xff;Where?;Here;There\n", "field story holds NUL or bytes that are not UTF-8"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(tmp_path, bad, problem) -> None:
    long = line("Two\nlines", *ROW[1:])
    folder = write(tmp_path, TB, long, b"\n", bad, line(*ROW))
    with pytest.raises(RecordError):
        load(folder)


def test_rows_of_two_folders_must_be_about_one_story(tmp_path) -> None:
    write(tmp_path, FB, line(*UNSEEN), line(*UNSEEN))
    write(tmp_path, TB, line(*ROW), line(ROW[0], "Where?", *ROW[2:]))
    with pytest.raises(
        RecordError,
    ):
        load(tmp_path)
    write(tmp_path, TB, line(*ROW), line(*ROW[:3], "Ann believes nothing."))
    with pytest.raises(RecordError):
        load(tmp_path)
    # Actions are asked for in other words.
    write(tmp_path, TB, line(*ROW))
    write(tmp_path, "0_forward_action_true_belief", line(ROW[0], "What next?", "Go.", "Stay."))
    assert len(load(tmp_path)) == 4


def test_missing_empty_and_unknown_folders_are_named(tmp_path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(RecordError):
            load(folder)
    (tmp_path / "notes").mkdir()
    write(tmp_path, "notes", b"not;ours")
    write(tmp_path, TB, b"\xef\xbb\xbf\n")
    with pytest.raises(RecordError):
        load(tmp_path)
    write(tmp_path, TB, line(*ROW))
    assert len(load(tmp_path)) == 1
    write(tmp_path, "0_forward_belief_other", line(*ROW))
    with pytest.raises(RecordError):
        load(tmp_path)
    (tmp_path / "0_forward_belief_other" / "stories.csv").unlink()
    (tmp_path / TB / "stories.csv").unlink()
    (tmp_path / TB / "stories.csv").mkdir()
    with pytest.raises(RecordError):
        load(tmp_path)


PIECES = (
    "",
    " ",
    ";",
    '"',
    '""',
    "\n",
    "\r",
    "\r\n",
    "\x00",
    "é",
    "\u2028",
    ";;",
    ROW[2],
    "x" * 99,
)


def mutated(seed: int) -> bytes:
    """A good row with one to three of its pieces changed, written with or without quotes."""
    chance = random.Random(seed)
    columns = list(ROW)
    for _ in range(chance.randint(0, 2)):
        i = chance.randrange(len(columns))
        place, length = chance.randint(0, len(columns[i])), chance.choice((0, 1, 99))
        new = chance.choice(PIECES)
        columns[i] = columns[i][:place] + new + columns[i][place + length :]
    if chance.random() < 0.2:
        columns = columns[: chance.randint(0, 4)] + chance.choice(([], ["more"]))
    data = line(*columns) if chance.random() < 0.5 else ";".join(columns).encode() + b"\n"
    if chance.random() < 0.1:
        place = chance.randint(0, len(data))
        data = data[:place] + bytes([chance.randint(0, 255)]) + data[place:]
    return data


@pytest.mark.fuzz
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    # A smaller seed is no simpler record.
    phases=[Phase.generate],
)
@given(seeds=st.lists(st.integers(0, 2**32), min_size=50, max_size=50, unique=True))
def test_a_mutated_row_is_right_or_a_named_error(seeds) -> None:
    for seed in seeds:
        data = mutated(seed)
        try:
            items = [item for item, _ in read_stories(data, Path("stories.csv"), CELL)]
        except RecordError as error:
            message = str(error)
            assert message.startswith("stories.csv")
            assert ", line " in message or message.endswith("has no stories")
            continue
        assert_right(items, data)


def assert_right(items: list[BenchmarkItem], data: bytes) -> None:
    """Every row of the file is an item that says what its columns say."""
    text = data.decode("utf-8-sig")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=";")
    expected = [tuple(column.strip() for column in row) for row in rows if len(row) > 1]
    found = []
    for number, item in enumerate(items, start=1):
        assert item.group == f"story-{number:03d}"
        right = right_text(item)
        (wrong,) = (option.text for option in item.options if option.text != right)
        found.append((item.context.scene, item.question, right, wrong))
    assert found == expected


@settings(max_examples=200, deadline=None, derandomize=True)
@given(columns=st.lists(st.text(max_size=3), min_size=1, max_size=6))
def test_any_row_is_an_item_or_a_named_error(columns) -> None:
    try:
        item = read_row(cells(columns), CELL, 1)
    except RecordError as error:
        assert str(error).startswith("stories.csv, line 1: ")
    else:
        assert (item.context.scene, item.question) == tuple(c.strip() for c in columns[:2])
        assert right_text(item) == columns[2].strip()
