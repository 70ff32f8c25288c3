"""Asking a model every item of a task, in batches, each answer kept as soon as it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from harness.answers import Reader, answers_all, read_answer
from harness.items import Item
from harness.journal import Journal
from harness.model import Prompt, SteeredModel

READERS: tuple[Reader, ...] = ("official", "robust")


def ask(
    model: SteeredModel,
    items: Sequence[Item],
    journal: Journal,
    batch_size: int,
    max_new_tokens: int,
    options: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Ask what the journal does not hold yet.

    Args:
        model: whom.
        items: what; each id once.
        journal: open; keeps the answers.
        batch_size: prompts that go through the model together.
        max_new_tokens: length of a reply.
        options: score the options of questions with one answer by their probability, too.
        on_progress: told how many of how many items are answered, also at the start.

    Returns:
        :func:`score` of all items.
    """
    todo = [item for item in items if item.item_id not in journal.answers]
    on_progress(len(items) - len(todo), len(items))
    for start in range(0, len(todo), batch_size):
        batch = todo[start : start + batch_size]
        prompts = [prompt_of(item) for item in batch]
        replies = model.generate(prompts, max_new_tokens)
        answers: list[dict[str, Any]] = [
            {"item_id": item.item_id, "reply": reply}
            for item, reply in zip(batch, replies, strict=True)
        ]
        if options and not any(item.names for item in batch):
            scores = model.option_log_probs(prompts, [[o.text for o in i.options] for i in batch])
            for answer, found in zip(answers, scores, strict=True):
                answer["option_log_probs"] = found
        journal.add(answers)
        on_progress(len(items) - len(todo) + start + len(batch), len(items))
    return score(items, [journal.answers[item.item_id] for item in items])


def prompt_of(item: Item) -> Prompt:
    """The user's turn, with the frames drawn or read now."""
    return Prompt(item.text, item.clip() if item.clip else None)


def score(items: Sequence[Item], answers: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row an item: what was said, and how each reader reads it.

    Returns:
        Columns ``item_id, story, split, condition, first, answer, reply``, and for each reader
        (``official``, ``robust``, and ``options`` where options were scored) ``<reader>_correct``
        and ``<reader>_invalid``.
    """
    rows = []
    for item, answer in zip(items, answers, strict=True):
        row: dict[str, Any] = {
            name: getattr(item, name)
            for name in ("item_id", "story", "split", "condition", "first")
        }
        row |= {"answer": ", ".join(item.answer), "reply": answer["reply"]}
        for reader in READERS:
            row[f"{reader}_correct"], row[f"{reader}_invalid"] = _judge(
                item, answer["reply"], reader
            )
        if scores := answer.get("option_log_probs"):
            best = item.options[max(range(len(scores)), key=scores.__getitem__)].label
            row |= {"options_correct": best in item.answer, "options_invalid": False}
        rows.append(row)
    return pd.DataFrame(rows)


def _judge(item: Item, reply: str, reader: Reader) -> tuple[bool, bool]:
    """Whether the reply is right, and whether it is no answer at all."""
    if item.names:
        verdict = answers_all(reply, item.answer, [o.text for o in item.options], reader)
        return verdict is True, verdict is None
    label = read_answer(reply, item.options, reader)
    return label in item.answer, label is None
