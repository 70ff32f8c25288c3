"""Asking a model every item of a task, in batches, each answer kept as soon as it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from hooks.batch_size import AUTO, BatchSize, fitting, in_batches, within_memory
from sally_anne.core.processes import Processes
from sally_anne.harness.answers import Reader, answers_all, read_answer, read_words
from sally_anne.harness.config import DEFAULT_BATCH
from sally_anne.harness.items import FRAMES_MARK, Item
from sally_anne.harness.journal import Journal
from sally_anne.harness.model import Prompt, SteeredModel

READERS: tuple[Reader, ...] = ("official", "robust")


@within_memory("use a smaller --batch-size, and if it is 1 smaller --max-pixels or fewer --frames")
def ask(
    model: SteeredModel,
    items: Sequence[Item],
    journal: Journal,
    batch_size: BatchSize,
    max_new_tokens: int,
    options: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Ask what the journal does not hold yet.

    Batches are planned over all items, answered or not, and the journal's processes share them: a
    prompt's company, and with it the last digits of its numbers, is the same in every run.

    Args:
        model: whom.
        items: what; each id once.
        journal: open; keeps the answers.
        batch_size: prompts that go through the model together; auto tries what fits.
        max_new_tokens: length of a reply.
        options: score the options of questions with one answer by their probability, too.
        on_progress: told how many of how many items are answered, also at the start; of several
            processes, each counts what was answered before and its own share.

    Returns:
        :func:`score` of all items.
    """
    size = DEFAULT_BATCH if batch_size == AUTO else batch_size
    if batch_size == AUTO and _missing(items, journal):
        size = _fitting(model, items, max_new_tokens, journal.processes)
    batches = in_batches(items, size)
    todo = journal.processes.share([batch for batch in batches if _missing(batch, journal)])
    answered = len(items) - len(_missing(items, journal))
    total = answered + sum(len(_missing(batch, journal)) for batch in todo)
    on_progress(answered, total)
    for planned in todo:
        for batch, prompts in alike(planned):
            if not (missing := _missing(batch, journal)):
                continue
            replies = model.generate(prompts, max_new_tokens)
            answers: dict[str, dict[str, Any]] = {
                item.item_id: {"item_id": item.item_id, "reply": reply}
                for item, reply in zip(batch, replies, strict=True)
            }
            if options and all(item.options and not item.names for item in batch):
                labels = [[o.label for o in item.options] for item in batch]
                scores = model.option_log_probs(prompts, labels)
                for answer, found in zip(answers.values(), scores, strict=True):
                    answer["option_log_probs"] = found
            journal.add(answers[item.item_id] for item in missing)
            answered += len(missing)
            on_progress(answered, total)
    journal.gather(item.item_id for item in items)
    return score(items, [journal.answers[item.item_id] for item in items])


def _fitting(
    model: SteeredModel, items: Sequence[Item], max_new_tokens: int, processes: Processes
) -> int:
    """The batch size that auto stands for, found on the batch with the longest text."""

    def trial(size: int) -> None:
        longest = max(in_batches(items, size), key=lambda batch: max(len(i.text) for i in batch))
        for _, prompts in alike(longest):
            model.generate(prompts, max_new_tokens)

    return fitting(model.loaded.model, trial, DEFAULT_BATCH, processes)


def _missing(items: Sequence[Item], journal: Journal) -> list[Item]:
    return [item for item in items if item.item_id not in journal.answers]


def alike(items: Sequence[Item]) -> Iterator[tuple[list[Item], list[Prompt]]]:
    """Items in their order, in batches that end where clips differ in shape.

    Clips of one batch are one tensor in LLaVA-NeXT-Video.
    """
    batch: list[Item] = []
    prompts: list[Prompt] = []
    for item in items:
        prompt = prompt_of(item)
        if batch and _shape(prompt) != _shape(prompts[0]):
            yield batch, prompts
            batch, prompts = [], []
        batch.append(item)
        prompts.append(prompt)
    if batch:
        yield batch, prompts


def _shape(prompt: Prompt) -> tuple[int, ...] | None:
    return None if prompt.clip is None else prompt.clip.shape


def prompt_of(item: Item) -> Prompt:
    """The user's turn, with the frames drawn or read now."""
    text = item.text.replace(FRAMES_MARK, item.note()) if item.note else item.text
    return Prompt(text, item.clip() if item.clip else None)


def score(items: Sequence[Item], answers: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row an item: what was said, and how each reader reads it.

    Returns:
        Columns ``item_id, story, split, condition, first, answer, reply, hidden``, ``map`` where
        stories have one, a column
        ``tag_<kind>`` for each kind of tag (values joined by ``|``), and for each reader
        (``official``, ``robust``, and ``options`` where options were scored) ``<reader>_label``,
        ``<reader>_correct`` and ``<reader>_invalid``. Where the key is hidden nothing is correct:
        leave these rows out by ``hidden``. Open questions have ``question`` and ``reference``
        instead of readers' columns; a judge reads them.
    """
    kinds = dict.fromkeys(kind for item in items for kind in item.tags)
    rows = []
    for item, answer in zip(items, answers, strict=True):
        row: dict[str, Any] = {
            name: getattr(item, name)
            for name in ("item_id", "story", "split", "condition", "first", "hidden")
        }
        row |= {"map": item.map} if item.map else {}
        row |= {"answer": ", ".join(item.answer), "reply": answer["reply"]}
        row |= {f"tag_{kind}": "|".join(item.tags.get(kind, ())) for kind in kinds}
        if not item.options:
            rows.append(row | {"question": item.question, "reference": item.reference})
            continue
        for reader in READERS:
            label, right = _read(item, answer["reply"], reader)
            row[f"{reader}_label"] = label
            row[f"{reader}_correct"], row[f"{reader}_invalid"] = right, label is None
        if scores := answer.get("option_log_probs"):
            best = item.options[max(range(len(scores)), key=scores.__getitem__)].label
            row["options_label"] = best
            row |= {"options_correct": best in item.answer, "options_invalid": False}
        rows.append(row)
    return pd.DataFrame(rows)


def _read(item: Item, reply: str, reader: Reader) -> tuple[str | None, bool]:
    """What the reply chooses, None if nothing, and whether that is right."""
    if item.names:
        named = read_words(reply, [o.text for o in item.options], reader)
        verdict = answers_all(reply, item.answer, [o.text for o in item.options], reader)
        return ", ".join(sorted(named)) or None, verdict is True
    label = read_answer(reply, item.options, reader)
    return label, label in item.answer
