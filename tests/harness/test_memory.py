"""Where memory ends in the middle of long work, one line says what to change; nothing is lost."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from sally_anne.core.errors import OutOfMemoryError
from sally_anne.core.folder import Journal
from sally_anne.data.items import Option
from sally_anne.harness.evaluate import ask
from sally_anne.harness.items import Item
from sally_anne.harness.judge import JudgeRequest, JudgeResult, judge_answers
from sally_anne.harness.model import Completion
from tests.made_replies import replied

FULL = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"


class Crowded:
    """A model and a judge with room for so many at once, after which memory is full."""

    about = {"judge": "made up"}

    def __init__(self, room: int) -> None:
        self.room = room
        self.loaded = SimpleNamespace()
        self.done = 0

    def replies(self, prompts: list[Any], max_new_tokens: int) -> list[Completion]:
        if len(prompts) > self.room:
            raise RuntimeError(FULL)
        self.done += len(prompts)
        return replied(["red"] * len(prompts))

    def judge(self, questions: list[JudgeRequest]) -> list[JudgeResult]:
        return [JudgeResult(reply.text == "red") for reply in self.replies(questions, 1)]


ITEMS = [
    Item(f"i{n}", f"s{n}", "test", "", "", f"{n}?", (Option("red", "red"),), ("red",))
    for n in range(5)
]


def test_asking(tmp_path: Path) -> None:
    crowded: Any = Crowded(1)
    with Journal(tmp_path / "a.jsonl", {}) as journal:
        ask(crowded, ITEMS[:1], journal, 1, 4)
        with pytest.raises(
            OutOfMemoryError, match="smaller --batch-size, and .* fewer --frames; what"
        ):
            ask(crowded, ITEMS, journal, 2, 4)
    with Journal(tmp_path / "a.jsonl", {}) as journal:
        assert list(journal.answers) == ["i0"]
        table = ask(crowded, ITEMS, journal, 1, 4)
    assert table["robust_correct"].all() and crowded.done == len(ITEMS)


def test_judging(tmp_path: Path) -> None:
    sheet = pd.DataFrame(
        {"item_id": list("abc"), "question": "?", "reply": "red", "reference": "red"}
    )
    crowded = Crowded(2)
    with Journal(tmp_path / "v.jsonl", {}) as journal:
        judge_answers(sheet[:2], crowded, journal, 2)
        crowded.room = 0
        with pytest.raises(OutOfMemoryError, match="smaller --batch-size, or a smaller judge"):
            judge_answers(sheet, crowded, journal, 2)
        assert len(journal.answers) == 2
