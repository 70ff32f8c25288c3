"""What goes through a model together, and which answer belongs to which item."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sally_anne.core.folder import Journal
from sally_anne.data.items import Option
from sally_anne.harness.evaluate import ask
from sally_anne.harness.items import Item
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
