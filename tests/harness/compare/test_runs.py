"""Which runs can be compared, what they are called, and what is refused and said."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sally_anne.core.errors import (
    HarnessError,
    MissingRunFileError,
    RunFolderError,
    SallyAnneError,
)
from sally_anne.core.files import write_json
from sally_anne.harness.compare.paired import shared_readers
from sally_anne.harness.compare.runs import Shared, differences, in_words, open_run, share
from tests.made_evaluations import answers, beliefs, evaluation

RIGHT = [1, 0] * 6


def shared(*folders: Path) -> Shared:
    return share([open_run(folder) for folder in folders])


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ({"task": "muma_tom"}, "b asked muma_tom and .*a moments: only runs of one task"),
        ({"table": answers(RIGHT).assign(item_id=lambda t: "x" + t["item_id"])}, "b has no item"),
        ({"table": answers(RIGHT).assign(answer="B")}, "b: item 'q000' has another key"),
        ({"table": answers(RIGHT, films=5)}, "b: item 'q005' has another story"),
        ({"table": answers(RIGHT).assign(hidden=True)}, "b: item 'q000' has another hidden"),
        ({"table": answers(RIGHT).assign(condition="TB")}, "b: item 'q000' has another condition"),
        ({"table": answers(RIGHT).assign(tag_cue="gaze")}, "b: item 'q001' has another cue"),
        ({"table": answers(RIGHT).drop(columns="tag_cue")}, "b: item 'q000' has another cue"),
    ],
)
def test_other_questions_are_refused_by_the_folder_at_fault(tmp_path: Path, there, wanted) -> None:
    first = evaluation(tmp_path / "a", answers(RIGHT))
    second = evaluation(tmp_path / "b", **{"table": answers(RIGHT)} | there)
    with pytest.raises(HarnessError, match=wanted):
        shared(first, second)


def test_open_questions_are_the_same_if_their_words_are(tmp_path: Path) -> None:
    judged = answers(RIGHT, readers=("judge",)).assign(question="Why?", reference="So.")
    first = evaluation(tmp_path / "a", judged, task="mimeqa")
    same = evaluation(tmp_path / "b", judged, task="mimeqa", view="multimodal")
    assert shared(first, same).said == ()
    other = evaluation(tmp_path / "c", judged.assign(reference="No."), task="mimeqa")
    with pytest.raises(HarnessError, match=r"c: item 'q000' has another reference .*'No\.', not"):
        shared(first, other)


def test_stories_and_orders_of_gridtom_must_be_the_same(tmp_path: Path) -> None:
    how = {"task": "gridtom", "order": "1"}
    table = beliefs([(1, 1)] * 6)
    first = evaluation(tmp_path / "a", table, {"data": "x"}, **how)
    second = evaluation(tmp_path / "b", table, {"data": "y"}, **how)
    with pytest.raises(HarnessError, match="b asked of other stories than"):
        shared(first, second)
    third = evaluation(tmp_path / "c", table, {"data": "x"}, **how | {"order": "2"})
    with pytest.raises(HarnessError, match="c asked gridtom order 2 and .* gridtom order 1"):
        shared(first, third)


def test_folders_that_hold_no_finished_evaluation_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingRunFileError, match="no run folder at .*gone"):
        open_run(tmp_path / "gone")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "answers.jsonl").write_text("")
    with pytest.raises(MissingRunFileError, match="begun holds no finished evaluation"):
        open_run(tmp_path / "begun")
    other = evaluation(tmp_path / "limp", answers(RIGHT))
    write_json(other / "results.json", {"config": {"mode": "log"}, "results": {}})
    with pytest.raises(RunFolderError, match="limp is a run of another command"):
        open_run(other)


def test_items_that_one_run_did_not_ask_are_left_out_and_counted(tmp_path: Path) -> None:
    few = evaluation(tmp_path / "few", answers(RIGHT).iloc[:9])
    many = evaluation(tmp_path / "many", answers(RIGHT).iloc[::-1][:10])
    found = shared(few, many)
    assert found.said == (
        f"2 of 9 items of {few} left out: another run did not ask them",
        f"3 of 10 items of {many} left out: another run did not ask them",
    )
    ids = [list(table["item_id"]) for table in found.tables]
    assert ids[0] == ids[1] == [f"q{n:03}" for n in range(2, 9)]
    assert (found.tables[0]["robust_correct"] == found.tables[1]["robust_correct"]).all()


def test_hidden_keys_are_not_compared(tmp_path: Path) -> None:
    table = answers(RIGHT).assign(hidden=[False] * 8 + [True] * 4)
    one, two = (evaluation(tmp_path / name, table) for name in "ab")
    found = shared(one, two)
    assert found.said == ("4 of 12 items have a hidden key: not compared",)
    assert len(found.tables[0]) == 8
    three, four = (evaluation(tmp_path / name, table.assign(hidden=True)) for name in "cd")
    with pytest.raises(HarnessError, match="c has no item whose key is known"):
        shared(three, four)


def test_keys_of_other_protocols_are_labels_of_their_own(tmp_path: Path) -> None:
    first = evaluation(tmp_path / "a", answers(RIGHT))
    theirs = answers(RIGHT).assign(answer=lambda t: t["answer"].str.lower())
    second = evaluation(tmp_path / "b", theirs, protocol="official")
    found = shared(first, second)
    assert found.said == (
        f"the keys of {second} are not compared with those of {first}: the protocols name and "
        "order options in ways of their own",
    )
    assert found.labels == ("protocol by default", "protocol official")


@pytest.mark.parametrize(
    ("options", "labels", "said"),
    [
        (({"view": "video"}, {"view": "text"}), ("video", "text"), ["view: video against text"]),
        (
            ({"frames": 8}, {"frames": None}),
            ("frames 8", "frames by default"),
            ["frames: 8 against none"],
        ),
        (
            ({"model": "qwen2-vl"}, {"model": "checkpoints/other"}),
            ("qwen2-vl", "other"),
            ["model: qwen2-vl against checkpoints/other"],
        ),
        (
            ({}, {"steer": "v/my-vector", "alpha": 2.0}),
            ("not steered", "steered by my-vector, alpha 2.0"),
            ["steer: none against v/my-vector", "alpha: none against 2.0"],
        ),
        (
            ({}, {"endpoint": "https://host/v1", "endpoint_model": "big"}),
            ("tiny-qwen2-vl", "big"),
            ["model: tiny-qwen2-vl against big"],
        ),
        (({"out": "x", "batch_size": 2, "limit": 3}, {"device": "cpu"}), ("a", "b"), []),
        (({"seed": 1}, {"seed": 2, "view": "text", "window": "full"}), ("a", "b"), None),
    ],
)
def test_runs_are_called_by_what_differs(tmp_path: Path, options, labels, said) -> None:
    folders = [
        evaluation(tmp_path / name, answers(RIGHT), **one)
        for name, one in zip("ab", options, strict=True)
    ]
    assert shared(*folders).labels == labels
    if said is not None:
        assert list(in_words([open_run(folder) for folder in folders])) == said


def test_views_that_were_not_chosen_are_told_as_they_were(tmp_path: Path) -> None:
    one = evaluation(tmp_path / "a", answers(RIGHT), {"view": "multimodal", "window": "full"})
    two = evaluation(tmp_path / "b", answers(RIGHT), {"view": "multimodal", "window": "focused"})
    runs = [open_run(folder) for folder in (one, two)]
    assert differences(runs) == {"window": ["full", "focused"]}
    assert shared(one, two).labels == ("full", "focused")
    assert shared(one, one).labels == ("1: a", "2: a")


def test_a_reader_that_a_run_lacks_is_refused(tmp_path: Path) -> None:
    one = evaluation(tmp_path / "a", answers(RIGHT))
    two = evaluation(tmp_path / "b", answers(RIGHT, readers=("options",)))
    three = evaluation(tmp_path / "c", answers(RIGHT, readers=()))
    with pytest.raises(
        SallyAnneError, match=r"b and .*a have no reader in common \(options; robust\)"
    ):
        shared_readers(shared(one, two))
    with pytest.raises(HarnessError, match=r"a was not read by 'judge' \(readers: robust\)"):
        shared_readers(shared(one, one), "judge")
    with pytest.raises(HarnessError, match=r"\(none; none\); open replies need --judge"):
        shared_readers(shared(three, three))


def test_a_table_with_an_item_twice_is_refused(tmp_path: Path) -> None:
    folder = evaluation(tmp_path / "a", answers(RIGHT))
    pd.concat([answers(RIGHT)] * 2).to_parquet(folder / "answers.parquet")
    saved = {"config": {"task": "moments"}, "results": {}}
    write_json(folder / "results.json", saved)
    with pytest.raises(RunFolderError, match="has item 'q000' more than once"):
        open_run(folder)
