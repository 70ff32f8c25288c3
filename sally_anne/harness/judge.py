"""Judging a table of open replies, each verdict kept as soon as it is given."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from hooks.batch_size import in_batches, within_memory
from sally_anne.core.errors import HarnessError
from sally_anne.harness.endpoint_judge import EndpointJudge
from sally_anne.harness.journal import Journal
from sally_anne.harness.local_judge import LocalJudge
from sally_anne.harness.verdicts import Asked, Judge, Verdict

__all__ = ["Asked", "EndpointJudge", "Judge", "LocalJudge", "Verdict", "judge_answers"]

COLUMNS = ("item_id", "question", "reply", "reference")


@within_memory("use a smaller --batch-size, or a smaller judge")
def judge_answers(
    table: pd.DataFrame,
    judge: Judge,
    journal: Journal,
    batch_size: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Judge what the journal does not hold yet.

    Args:
        table: one row an open question: ``item_id``, ``question``, ``reply`` and ``reference``,
            which is empty where it is hidden; as :func:`harness.evaluate.score` gives it.
        judge: whom to ask.
        journal: open; keeps the verdicts. One on another reply or reference is given anew.
        batch_size: replies that go to the judge together.
        on_progress: told how many of how many replies are judged, also at the start.

    Returns:
        The table with ``judge_correct`` (bool; never where the reference is hidden),
        ``judge_probability`` (of being right; NaN where there is none) and ``judge_invalid``
        (bool: the judge's words could not be read).

    Raises:
        HarnessError: the table lacks a column or has an id twice, the batch size is not positive,
            the journal is damaged, or the judge fails.
    """
    if batch_size < 1:
        raise HarnessError(f"a batch needs at least one reply, got {batch_size}")
    asked = _asked(table)
    kept = {
        item_id: verdict
        for item_id, one in asked.items()
        if (verdict := _kept(journal, item_id, one)) is not None
    }
    todo = [item_id for item_id in asked if item_id not in kept]
    on_progress(len(kept), len(asked))
    for batch in in_batches(todo, batch_size):
        verdicts = judge.judge([asked[item_id] for item_id in batch])
        if len(verdicts) != len(batch):
            raise HarnessError(f"the judge gave {len(verdicts)} verdicts on {len(batch)} replies")
        given = dict(zip(batch, verdicts, strict=True))
        journal.add(_line(item_id, asked[item_id], verdict) for item_id, verdict in given.items())
        kept |= given
        on_progress(len(kept), len(asked))
    none = Verdict(right=False)
    found = [kept.get(str(item_id), none) for item_id in table["item_id"]]
    chances = [math.nan if v.probability is None else v.probability for v in found]
    return table.assign(
        judge_correct=pd.Series([v.right for v in found], table.index, dtype=bool),
        judge_probability=pd.Series(chances, table.index, dtype=float),
        judge_invalid=pd.Series([v.invalid for v in found], table.index, dtype=bool),
    )


def _asked(table: pd.DataFrame) -> dict[str, Asked]:
    """What there is to judge, by id."""
    if missing := [name for name in COLUMNS if name not in table.columns]:
        raise HarnessError(
            f"the answers lack the column {missing[0]!r}, which a judge needs; were they given to "
            "open questions?"
        )
    twice = table["item_id"][table["item_id"].duplicated()]
    if not twice.empty:
        raise HarnessError(f"item {twice.iloc[0]!r} stands among the answers twice")
    found = {}
    for item_id, question, reply, reference in table[list(COLUMNS)].itertuples(index=False):
        if isinstance(reference, str) and reference.strip():
            found[str(item_id)] = Asked(_text(question), _text(reply), reference)
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _line(item_id: str, asked: Asked, verdict: Verdict) -> dict[str, Any]:
    return {
        "item_id": item_id,
        "asked": _hash(asked),
        "right": verdict.right,
        "probability": verdict.probability,
        "text": verdict.text,
        "invalid": verdict.invalid,
    }


def _hash(asked: Asked) -> str:
    parts = json.dumps([asked.question, asked.reply, asked.reference])
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _kept(journal: Journal, item_id: str, asked: Asked) -> Verdict | None:
    """The journal's verdict on this very reply, if it has one."""
    line = journal.answers.get(item_id)
    if line is None or line.get("asked") != _hash(asked):
        return None
    right, invalid, text = line.get("right"), line.get("invalid"), line.get("text")
    chance = line.get("probability")
    number = isinstance(chance, float | int) and not isinstance(chance, bool) and 0 <= chance <= 1
    if not (isinstance(right, bool) and isinstance(invalid, bool) and isinstance(text, str)) or (
        chance is not None and not number
    ):
        raise HarnessError(
            f"{journal.path}: the verdict on item {item_id!r} is damaged; delete the file and run "
            "again"
        )
    return Verdict(right, chance, text, invalid)
