"""Asking a model every item of a task, in batches, each answer kept as soon as it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from hooks.batch_size import AUTO, BatchSize, fitting, in_batches, within_memory
from sally_anne.core.errors import BenchmarkError, ContextError
from sally_anne.harness.config import DEFAULT_BATCH
from sally_anne.harness.items import FRAMES_MARK, Item
from sally_anne.harness.journal import Journal
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.results import score
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import reply_prompt
from sally_anne.models.videos import check_room, crop_notes

# What a frame's time takes in a note at most, and the words around the times.
_NOTE_OF_A_FRAME, _NOTE = "0000.00 seconds, ", 200 * " "


def check_items(loaded: LoadedModel, items: Sequence[Item], reply: int) -> list[str]:
    """Refuse items that do not fit the model's context with ``reply`` tokens; no frame is decoded.

    Damaged films are left to be named where they are decoded.

    Returns:
        What to say to the user, a line each: that frames are padded, and how many films.

    Raises:
        ContextError: names the item, its tokens, the context and what to change.
    """
    sizes: dict[tuple[int, int], int] = {}
    for item in items:
        if item.clip is not None and item.shape is None:
            continue
        try:
            shape = item.shape(False) if item.shape else None
        except BenchmarkError:
            continue
        if shape is not None:
            sizes[shape[1:]] = sizes.get(shape[1:], 0) + 1
        note = "" if item.note is None or shape is None else _NOTE + _NOTE_OF_A_FRAME * shape[0]
        try:
            _check(loaded, item, note, shape, reply)
        except ContextError:
            # There may be fewer frames in the film, and shorter notes.
            try:
                shape = item.shape(True) if item.shape else None
                note = item.note() if item.note else ""
            except BenchmarkError:
                continue
            _check(loaded, item, note, shape, reply)
    return crop_notes(loaded, sizes)


def _check(
    loaded: LoadedModel, item: Item, note: str, shape: tuple[int, int, int] | None, reply: int
) -> None:
    prompt = reply_prompt(loaded, item.text.replace(FRAMES_MARK, note), shape is not None)
    check_room(loaded, f"item {item.item_id}", prompt, shape, reply)


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
        on_progress: gets how many of how many items are answered, also at the start; of several
            processes, each counts what was answered before and its own part.

    Returns:
        :func:`sally_anne.harness.results.score` of all items.
    """

    def missing(some: Sequence[Item]) -> list[Item]:
        return [item for item in some if item.item_id not in journal.answers]

    def trial(size: int) -> None:
        longest = max(in_batches(items, size), key=lambda batch: max(len(i.text) for i in batch))
        for _, prompts in alike(longest):
            model.generate(prompts, max_new_tokens)

    size = DEFAULT_BATCH if batch_size == AUTO else batch_size
    if batch_size == AUTO and missing(items):
        size = fitting(model.loaded.model, trial, DEFAULT_BATCH, journal.processes)
    todo = [batch for batch in in_batches(items, size) if missing(batch)]
    todo = journal.processes.share(todo)
    answered = len(items) - len(missing(items))
    total = answered + sum(len(missing(batch)) for batch in todo)
    on_progress(answered, total)
    for planned in todo:
        for batch, prompts in alike(planned):
            if not (new := missing(batch)):
                continue
            replies = model.generate(prompts, max_new_tokens)
            answers: dict[str, dict[str, Any]] = {
                item.item_id: {"item_id": item.item_id, "reply": reply}
                for item, reply in zip(batch, replies, strict=True)
            }
            if options and all(item.options and not item.names for item in batch):
                labels = [[o.label for o in item.options] for item in batch]
                found = model.option_log_probs(prompts, labels)
                for answer, log_probs in zip(answers.values(), found, strict=True):
                    answer["option_log_probs"] = log_probs
            journal.add(answers[item.item_id] for item in new)
            answered += len(new)
            on_progress(answered, total)
    journal.gather(item.item_id for item in items)
    return score(items, [journal.answers[item.item_id] for item in items])


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
    """The user's turn, with the frames drawn or decoded now."""
    text = item.text.replace(FRAMES_MARK, item.note()) if item.note else item.text
    return Prompt(text, item.clip() if item.clip else None)
