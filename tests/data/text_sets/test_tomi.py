"""ToMi: stories with their traces, as the authors' script writes them and as their zip has them."""

from __future__ import annotations

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.tomi import TOMI, load, read_stories
from tests.data.text_sets import made


def right_text(item) -> str:
    return next(option.text for option in item.options if option.label == item.answer)


@pytest.mark.parametrize(
    ("place", "name", "split"), [("", "test", "test"), ("data", "fb_all_val", "val")]
)
def test_every_field(tmp_path, place, name, split) -> None:
    made.tomi(tmp_path / place, name)
    items = load(tmp_path)
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
    assert TOMI.load is load and set(TOMI.breakdowns) == {"type", "order", "story", "condition"}


def test_which_option_is_a_does_not_tell_which_is_right() -> None:
    from sally_anne.data.items import two_options

    for number in range(50):
        one, other = two_options(f"{number}", "x", "y"), two_options(f"{number}", "y", "x")
        assert one[0] == other[0] and one[1] != other[1]
    assert {two_options(f"{number}", "x", "y")[1] for number in range(50)} == {"A", "B"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda t, r: (t.replace("2 Al", "3 Al", 1), r), "test.txt, line 2: must begin with 2"),
        (lambda t, r: (t.replace("\tred_box", "\tbag", 1), r), "line 7: its answer is 'bag'"),
        (lambda t, r: (t.replace("6 Al moved", "6 Al saw", 1), r), "its story names red_box as"),
        (lambda t, r: (t.replace("\tred_box\t1", "\t\t1", 1), r), "line 7: must be a question"),
        (lambda t, r: (t + "1 Al left.\n", r), "line 79: is the end of a story without a question"),
        (lambda t, r: ("\n\n", r), "test.trace, line 1: is of no question"),
        (lambda t, r: (t, r.replace(",memory,", ",why,", 1)), "test.trace, line 1: must end with"),
        (lambda t, r: (t, r.replace("true_b", "some_b", 1)), "test.trace, line 7: must end with"),
        (lambda t, r: (t, r + "x,memory,true_belief\n"), "test.trace, line 13: is of no question"),
        (lambda t, r: (t, r.partition("\n")[0]), "line 14: is a question without a line in test.t"),
        (lambda t, r: ("", ""), "test.txt: has no stories"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, change, problem) -> None:
    with pytest.raises(RecordError):
        read_stories(*change(*made.tomi_texts()), tmp_path / "test.txt")


def test_another_folder_is_told_what_it_lacks(tmp_path) -> None:
    with pytest.raises(RecordError):
        load(tmp_path)
    (tmp_path / "main.py").touch()
    with pytest.raises(RecordError):
        load(tmp_path)
    (made.tomi(tmp_path) / "test.trace").unlink()
    with pytest.raises(RecordError):
        load(tmp_path)
