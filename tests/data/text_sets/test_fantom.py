"""FANToM: sets of questions, asked on a part of their conversation and on all of it."""

from __future__ import annotations

import random

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.fantom import FANTOM, load, read_set
from sally_anne.data.read import Field
from tests.data.text_sets import made


def test_every_field(tmp_path) -> None:
    items = load(made.fantom(tmp_path / "data" / "fantom").parents[1])
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


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("set_id",), "", "set_id must be a text"),
        (("short_context",), None, "short_context must be a text"),
        (("beliefQAs",), {}, "beliefQAs must be a list"),
        (("beliefQAs", 1, "wrong_answer"), "Al believes that Bo does not know.", "is the right"),
        (("beliefQAs", 0, "missed_info_accessibility"), "x", r"beliefQAs\[0\].missed_info_access"),
        (("beliefQAs", 0, "tom_type"), 1, r"beliefQAs\[0\].tom_type must be a text"),
        (("factQA",), None, "factQA must be an object"),
        (
            *(("answerabilityQAs_binary", 2, "correct_answer"), "maybe"),
            r"answerabilityQAs_binary\[2\].correct_answer must be one of yes, no, no:long",
        ),
    ],
)
def test_what_is_wrong_is_named(path, value, problem) -> None:
    record = made.fantom_set()
    inside = record
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    with pytest.raises(RecordError):
        read_set(Field(record, "f.json"), random.Random(0))


def test_another_folder_is_told_what_it_lacks(tmp_path) -> None:
    with pytest.raises(RecordError):
        load(tmp_path)
    (tmp_path / "fantom_v1.json").write_text("[]")
    with pytest.raises(RecordError):
        load(tmp_path)
