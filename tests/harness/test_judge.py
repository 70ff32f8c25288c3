"""Judging a table: columns, resuming, and hand-made sheets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import Journal
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.judge import Asked, Verdict, judge_answers
from sally_anne.harness.pipeline import check

ABOUT = {"judge": "made up"}


class Scribe:
    """Says right where reply and reference are the same, and nothing to "mumble"."""

    about = ABOUT

    def __init__(self, calls_before_failure: int = 99) -> None:
        self.batches: list[list[str]] = []
        self.left = calls_before_failure

    def judge(self, questions: Sequence[Asked]) -> list[Verdict]:
        if not self.left:
            raise HarnessError("the judge is gone")
        self.left -= 1
        self.batches.append([asked.reply for asked in questions])
        return [
            Verdict(False, None, "well...", invalid=True)
            if asked.reply == "mumble"
            else Verdict(asked.reply == asked.reference, 0.75, "TRUE or not")
            for asked in questions
        ]


def sheet(replies: Sequence[str | None], references: Sequence[str | None]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "item_id": [f"film/{i}" for i in range(len(replies))],
            "story": "film",
            "question": "What is it?",
            "reply": replies,
            "reference": references,
        },
        index=range(10, 10 + len(replies)),
    )


@pytest.fixture
def journal(tmp_path: Path):
    with Journal(tmp_path / "verdicts.jsonl", ABOUT) as journal:
        yield journal


@pytest.mark.parametrize(
    ("replies", "right"),
    [
        (["a"] * 4, [True] * 4),
        (["b"] * 4, [False] * 4),
        (["a", "b", "a", "b"], [True, False, True, False]),
    ],
    ids=["all right", "all wrong", "half"],
)
def test_sheets(journal: Journal, replies: list[str], right: list[bool]) -> None:
    table = sheet(replies, ["a"] * 4)
    judged = judge_answers(table, Scribe(), journal, batch_size=3)
    assert judged["judge_correct"].tolist() == right and judged["judge_correct"].dtype == bool
    assert judged["judge_probability"].tolist() == [0.75] * 4
    assert not judged["judge_invalid"].any() and judged["judge_invalid"].dtype == bool
    pd.testing.assert_frame_equal(judged[list(table.columns)], table)


def test_unreadable_verdicts_are_wrong_and_counted_apart(journal: Journal) -> None:
    judged = judge_answers(sheet(["a", "mumble"], ["a", "a"]), Scribe(), journal, 8)
    assert judged["judge_correct"].tolist() == [True, False]
    assert judged["judge_invalid"].tolist() == [False, True]
    assert judged["judge_probability"].isna().tolist() == [False, True]


@pytest.mark.parametrize("hidden", [None, "", "  ", float("nan")])
def test_hidden_references_are_not_asked_about(journal: Journal, hidden: object) -> None:
    scribe = Scribe()
    judged = judge_answers(sheet(["a", "a"], ["a", hidden]), scribe, journal, 8)
    assert scribe.batches == [["a"]]
    assert judged["judge_correct"].tolist() == [True, False]
    assert judged["judge_probability"].isna().tolist() == [False, True]
    assert not judged["judge_invalid"].any()


def test_all_hidden_and_none_at_all(journal: Journal) -> None:
    scribe = Scribe()
    assert not judge_answers(sheet(["a"], [None]), scribe, journal, 8)["judge_correct"].any()
    assert judge_answers(sheet([], []), scribe, journal, 8)["judge_correct"].dtype == bool
    assert scribe.batches == []


def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    table = sheet(["a", "b", "a", "b", "a"], ["a"] * 5)
    path = tmp_path / "verdicts.jsonl"
    with Journal(path, ABOUT) as journal, pytest.raises(HarnessError, match="gone"):
        judge_answers(table, Scribe(calls_before_failure=1), journal, 2)
    scribe = Scribe()
    with Journal(path, ABOUT) as journal:
        judged = judge_answers(table, scribe, journal, 2)
    assert scribe.batches == [["a", "b"], ["a"]]
    assert judged["judge_correct"].tolist() == [True, False, True, False, True]
    again = Scribe()
    with Journal(path, ABOUT) as journal:
        pd.testing.assert_frame_equal(judge_answers(table, again, journal, 2), judged)
    assert again.batches == []


def test_another_reply_is_judged_anew(journal: Journal) -> None:
    judge_answers(sheet(["a", "a"], ["a", "a"]), Scribe(), journal, 8)
    scribe = Scribe()
    judged = judge_answers(sheet(["a", "b"], ["a", "a"]), scribe, journal, 8)
    assert scribe.batches == [["b"]] and judged["judge_correct"].tolist() == [True, False]


@pytest.mark.parametrize("column", ["reference", "question"])
def test_what_is_compared_with_another_text_is_judged_anew(tmp_path: Path, column: str) -> None:
    """A verdict is on a reply, a reference and a question; in another run of the folder, too."""
    path, table = tmp_path / "verdicts.jsonl", sheet(["a", "b"], ["a", "a"])
    with Journal(path, ABOUT) as journal:
        judge_answers(table, Scribe(), journal, 8)
    changed = table.assign(**{column: ["a", "b"]})
    changed.loc[10, column] = table.loc[10, column]
    scribe = Scribe()
    with Journal(path, ABOUT) as journal:
        judged = judge_answers(changed, scribe, journal, 8)
    assert scribe.batches == [["b"]]
    assert judged["judge_correct"].tolist() == [True, column == "reference"]
    again = Scribe()
    with Journal(path, ABOUT) as journal:
        pd.testing.assert_frame_equal(judge_answers(changed, again, journal, 8), judged)
    assert again.batches == []


def test_a_reply_that_is_missing_is_an_empty_one(journal: Journal) -> None:
    scribe = Scribe()
    judge_answers(sheet([None, float("nan")], ["a", "a"]), scribe, journal, 8)  # type: ignore[list-item]
    assert scribe.batches == [["", ""]]


@pytest.mark.parametrize("lacking", ["item_id", "question", "reply", "reference"])
def test_a_missing_column_is_named(journal: Journal, lacking: str) -> None:
    with pytest.raises(HarnessError, match=f"lack the column '{lacking}'"):
        judge_answers(sheet(["a"], ["a"]).drop(columns=lacking), Scribe(), journal, 8)


def test_what_cannot_be_judged(journal: Journal) -> None:
    table = sheet(["a", "a"], ["a", "a"])
    with pytest.raises(HarnessError, match="at least one reply, got 0"):
        judge_answers(table, Scribe(), journal, 0)
    with pytest.raises(HarnessError, match="'film/0' stands among the answers twice"):
        judge_answers(pd.concat([table, table]), Scribe(), journal, 8)

    class Short(Scribe):
        def judge(self, questions: Sequence[Asked]) -> list[Verdict]:
            return super().judge(questions)[1:]

    with pytest.raises(HarnessError, match="gave 1 verdicts on 2 replies"):
        judge_answers(table, Short(), journal, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"judge_model": "x"}, "--judge-model is for a judge: give one"),
        ({"judge_key": "KEY"}, "--judge-key is for a judge: give one"),
        ({"judge_words": ("YES", "NO")}, "--judge-words is for a judge: give one"),
        ({"judge": "qwen2-vl", "judge_key": "KEY"}, "at an address; --judge qwen2-vl is a model"),
        ({"judge": "https://host/v1"}, "needs --judge-model"),
        ({"judge": "https://host/v1?key=[hidden]", "judge_model": "x"}, "give --judge again"),
    ],
)
def test_options_of_a_judge_that_would_do_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HarnessError, match=re.escape(message)):
        check(EvalConfig(task="mimeqa", **options))
