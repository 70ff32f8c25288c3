"""BigToM: folders of stories, made, published and wrong."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.text_sets import BIGTOM, load_bigtom, read_stories
from tests.data.test_text_sets import right_text
from tests.shared_data import official_data

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
