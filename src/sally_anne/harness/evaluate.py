"""Asking a model every item of a task, in batches, each answer kept as soon as it is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

import pandas as pd

from sally_anne.core.errors import BenchmarkError, ContextError, HarnessError
from sally_anne.core.folder import Journal
from sally_anne.data.sound import RATE
from sally_anne.harness.config import DEFAULT_BATCH
from sally_anne.harness.endpoint.model import EndpointModel
from sally_anne.harness.endpoint.replies import Said
from sally_anne.harness.items import COUNT_MARK, FRAMES_MARK, LENGTH_MARK, TIMES_MARK, Item
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.prompting import KNOWN_MARK, RETOLD
from sally_anne.harness.replies import Reply
from sally_anne.harness.results import score
from sally_anne.hooks.batch_size import AUTO, BatchSize, fitting, in_batches, within_memory
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import reply_prompt, sound_tokens
from sally_anne.models.videos import REMEDY, check_room, crop_notes

_HEARD_REMEDY = "play less of the film (--window focused), or take another --view"
# What a frame's time takes in a note at most, and the words around the times.
_NOTE_OF_A_FRAME, _NOTE = "0000 min:00.00 sec, ", 200 * " "


def check_items(
    loaded: LoadedModel, items: Sequence[Item], reply: int, retold: int = RETOLD
) -> list[str]:
    """Refuse items that do not fit the model's context with ``reply`` tokens; no frame is decoded.

    Damaged films are left to be named where they are decoded. What is returned is to be said to the
    user, a line each: that frames are padded, and how many films. A ContextError names the item.
    """
    sizes: Counter[tuple[int, int]] = Counter()
    tokens = cache(partial(sound_tokens, loaded))

    def check(item: Item, shape: tuple[int, int, int] | None, notes: Mapping[str, str]) -> None:
        turns = Prompt(item.told(notes), system=item.system).turns
        samples = round(RATE * item.seconds()) if item.seconds else 0
        pieces = tokens(samples) if samples else []
        prompt = reply_prompt(loaded, turns, shape is not None, len(pieces))
        written, heard = retold if item.before else reply, sum(pieces) - len(pieces)
        remedy = _HEARD_REMEDY if pieces and shape is None else REMEDY
        check_room(loaded, f"item {item.item_id}", prompt, shape, written, remedy, heard)
        if item.before:
            prompt = reply_prompt(loaded, item.text, False)
            check_room(loaded, f"item {item.item_id}", prompt, None, retold + reply)

    for item in items:
        if item.clip is not None and item.shape is None:
            continue
        with suppress(BenchmarkError):
            shape = item.shape(False) if item.shape else None
            sizes.update([shape[1:]] if shape else [])
            times = _NOTE_OF_A_FRAME * shape[0] if shape else ""
            most = {FRAMES_MARK: _NOTE + times, TIMES_MARK: times}
            most |= dict.fromkeys((LENGTH_MARK, COUNT_MARK), _NOTE_OF_A_FRAME)
            try:
                check(item, shape, most if item.notes and shape else {})
            except ContextError:
                # There may be fewer frames in the film, and shorter notes.
                shape = item.shape(True) if item.shape else None
                check(item, shape, item.notes() if item.notes else {})
    return crop_notes(loaded, sizes)


@within_memory("use a smaller --batch-size, and if it is 1 smaller --max-pixels or fewer --frames")
def ask(
    model: SteeredModel | EndpointModel,
    items: Sequence[Item],
    journal: Journal,
    batch_size: BatchSize,
    max_new_tokens: int,
    options: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    retold: int = RETOLD,
) -> pd.DataFrame:
    """Ask what the journal does not hold yet.

    Batches are planned over all items, answered or not, and the journal's processes share them: a
    prompt's company, and with it the last digits of its numbers, is the same in every run.

    With ``options`` those of questions with one answer are scored by their probability, too.
    ``on_progress`` gets how many of how many items are answered, also at the start; of several
    processes, each counts its own part. Replies to SimToM's first prompts have ``retold`` tokens.
    What is returned is :func:`sally_anne.harness.results.score` of all items.
    """

    def missing(some: Sequence[Item]) -> list[Item]:
        return [item for item in some if item.item_id not in journal.answers]

    def trial(size: int) -> None:
        longest = max(in_batches(items, size), key=lambda b: max(len(i.first_text) for i in b))
        for some, prompts in alike(longest):
            model.replies(prompts, retold if some[0].before else max_new_tokens)

    size = DEFAULT_BATCH if batch_size == AUTO else batch_size
    if isinstance(model, EndpointModel):
        if options:
            raise HarnessError("a model behind an endpoint gives no probabilities of options")
    elif batch_size == AUTO and missing(items):
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
            told: Sequence[Reply | Said] = model.replies(prompts, retold) if batch[0].before else ()
            if told:
                prompts = [second_step(i, said.text) for i, said in zip(batch, told, strict=True)]
            replies: Sequence[Reply | Said] = model.replies(prompts, max_new_tokens)
            answers: dict[str, dict[str, Any]] = {
                item.item_id: {"item_id": item.item_id, "reply": reply.text, "ended": reply.ended}
                for item, reply in zip(batch, replies, strict=True)
            }
            for answer, said in zip(answers.values(), told, strict=False):
                answer |= {"perspective": said.text, "perspective_ended": said.ended}
            chosen = all(item.options and not item.names for item in batch)
            if options and chosen and not isinstance(model, EndpointModel):
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
    """Items by the shape of their clips, each shape's in their order.

    Clips of one batch are one tensor in LLaVA-NeXT-Video.
    """
    groups: dict[Any, list[tuple[Item, Prompt]]] = {}
    for item in items:
        prompt = prompt_of(item)
        groups.setdefault(prompt.shape, []).append((item, prompt))
    for group in groups.values():
        batch, prompts = zip(*group, strict=True)
        yield list(batch), list(prompts)


def prompt_of(item: Item) -> Prompt:
    """The user's first turn, with the frames and the sound drawn or decoded now."""
    text = item.told(item.notes() if item.notes else {})
    clip, sound = (made() if made else None for made in (item.clip, item.sound))
    return Prompt(text, clip, sound=sound, system=item.system)


def second_step(item: Item, told: str) -> Prompt:
    """SimToM's question on what was retold in the first step, and on nothing else."""
    return Prompt(item.text.replace(KNOWN_MARK, told.strip(), 1))
