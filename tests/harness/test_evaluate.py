"""What goes through a model together, and which answer belongs to which item."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.errors import OutOfMemoryError
from sally_anne.core.folder import Journal
from sally_anne.data.items import Option
from sally_anne.harness.evaluate import ask
from sally_anne.harness.items import Item
from sally_anne.harness.judge import JudgeRequest, JudgeResult, judge_answers
from sally_anne.harness.model import Completion, Prompt
from tests.made_replies import replied

# Frames, height and width of the items' clips; None is shown in words.
SHAPES = [(2, 4, 4), (2, 4, 4), (3, 4, 4), (2, 4, 4), (2, 8, 4), None, None, (2, 4, 4)]


class Scripted:
    """Replies with the number that a prompt's text ends with; its frames must say the same."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def replies(self, prompts: Sequence[Prompt], max_new_tokens: int) -> list[Completion]:
        shapes = {None if p.clip is None else p.clip.shape for p in prompts}
        assert len(shapes) == 1, "one batch of clips of several shapes"
        assert all(p.clip is None or (p.clip == int(p.text[-1])).all() for p in prompts)
        self.batches.append([prompt.text[-1] for prompt in prompts])
        return replied(f"option {'AB'[int(prompt.text[-1]) % 2]}" for prompt in prompts)

    def option_log_probs(
        self, prompts: Sequence[Prompt], options: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        assert [prompt.text[-1] for prompt in prompts] == self.batches[-1]
        assert all(list(labels) == ["A", "B", "C"] for labels in options)
        # The likeliest is option n mod 3, the least likely the one after it.
        return [np.roll([-0.5, -4.0, -2.0], int(p.text[-1]) % 3).tolist() for p in prompts]


def item(number: int) -> Item:
    shape = SHAPES[number]
    return Item(
        item_id=f"i{number}",
        story=f"s{number}",
        split="test",
        condition="",
        first="",
        text=f"What is {number}",
        options=tuple(Option(label, f"thing {label}") for label in "ABC"),
        answer=("ABC"[number % 3],),
        clip=None if shape is None else partial(np.full, (*shape, 3), number, np.uint8),
    )


@pytest.mark.parametrize(
    ("size", "batches"),
    [
        (8, ["0137", "2", "4", "56"]),
        (3, ["01", "2", "3", "4", "5", "6", "7"]),
        (1, list("01234567")),
    ],
)
def test_clips_of_one_batch_have_one_shape(tmp_path: Path, size: int, batches: list[str]) -> None:
    model, items = Scripted(), [item(number) for number in range(8)]
    with Journal(tmp_path / "answers.jsonl", {}) as journal:
        table = ask(model, items, journal, size, 16, options=True)  # type: ignore[arg-type]
    assert ["".join(batch) for batch in model.batches] == batches
    assert table["item_id"].tolist() == [f"i{n}" for n in range(8)]
    assert table["reply"].tolist() == [f"option {'AB'[n % 2]}" for n in range(8)]
    assert table["robust_label"].tolist() == ["AB"[n % 2] for n in range(8)]
    assert table["robust_correct"].tolist() == [n % 2 == n % 3 for n in range(8)]


def test_the_option_of_highest_probability_is_the_one_chosen(tmp_path: Path) -> None:
    items = [item(number) for number in range(8)]
    with Journal(tmp_path / "answers.jsonl", {}) as journal:
        table = ask(Scripted(), items, journal, 2, 16, options=True)  # type: ignore[arg-type]
    assert table["options_label"].tolist() == ["ABC"[n % 3] for n in range(8)]
    assert table["options_correct"].all() and not table["options_invalid"].any()
    assert table["options_correct"].dtype == bool


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
