"""Many settings at once: the prompt is read once, and each setting is a row of a batch.

Vectors at ``last_prompt``, ``generated`` or both leave all earlier tokens alone. So these are the
same in every cell, and one reading of them, frames and all, serves the whole grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pandas as pd
import torch

from hooks.batch_size import AUTO, BatchSize, in_batches, rows_that_fit, within_memory
from hooks.edit import Edit
from hooks.positions import ALL
from hooks.vector import SteeringVector
from sally_anne.core.errors import SteeringError
from sally_anne.core.processes import Processes
from sally_anne.harness.evaluate import prompt_of
from sally_anne.harness.items import Item
from sally_anne.harness.journal import Journal
from sally_anne.harness.model import cut_prompts, prefill_prompts
from sally_anne.harness.results import score
from sally_anne.models.decoding import ROOM, decode, extend, greedy, row_bytes_by_device
from sally_anne.models.loading import LoadedModel
from steering.grid import Cell


@within_memory("use fewer --rows, then a smaller --batch-size, then smaller --max-pixels")
def run_cells(
    loaded: LoadedModel,
    items: Sequence[Item],
    vectors: Mapping[Cell, SteeringVector | None],
    journal: Journal,
    batch_size: int,
    rows: BatchSize,
    max_new_tokens: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Every item in every cell; what the journal holds is not run again.

    The journal's processes share the batches of items.

    Args:
        loaded: the model.
        items: what is asked.
        vectors: the cells, and the vector of each; None for the baseline.
        journal: open; keeps an answer for each cell and item.
        batch_size: prompts that are read together.
        rows: answers (prompts x cells) that are given together; auto as many as fit in memory.
        max_new_tokens: length of a reply.
        on_progress: told how many of how many answers there are; of several processes, each counts
            what there was before and its own share.

    Returns:
        The columns of :func:`harness.evaluate.score` and ``cell, direction, k, alpha, seed``.

    Raises:
        SteeringError: vectors differ in site or positions, or are for all positions.
        OutOfMemoryError: so many rows or prompts do not fit.
    """
    site, positions = _common(vectors)
    for vector in vectors.values():
        if vector is not None:
            vector.check(loaded.skeleton)
    keys = {(cell, item.item_id): _key(cell, item) for cell in vectors for item in items}

    def missing(cell: Cell, item: Item) -> bool:
        return keys[cell, item.item_id] not in journal.answers

    left = [cell for cell in vectors if any(missing(cell, item) for item in items)]
    batches = in_batches(items, batch_size)
    todo = journal.processes.share(
        [b for b in batches if any(missing(cell, item) for item in b for cell in left)]
    )
    done = sum(key in journal.answers for key in keys.values())
    total = done + sum(missing(cell, item) for batch in todo for item in batch for cell in left)
    on_progress(done, total)
    width = min(batch_size, len(items))
    if rows == AUTO:
        rows = _fitting(loaded, items, width, max_new_tokens, journal.processes) if left else 1
    deltas = {cell: None if v is None else v.delta() for cell, v in vectors.items()}
    for batch in todo:
        with torch.inference_mode():
            state, endings = prefill_prompts(loaded, [prompt_of(item) for item in batch])
            for part in _parts(left, batch, width, rows):
                wanted = [missing(cell, batch[number]) for cell, number in part]
                if not any(wanted):
                    continue
                delta = _stack([deltas[cell] for cell, _ in part])
                numbers = [number for _, number in part]
                ends = [endings[number] for number in numbers]
                with _edited(loaded, delta, site, positions):
                    after = extend(loaded, state, numbers, ends)
                    tokens = greedy(loaded, after, max_new_tokens)
                replies = zip(part, wanted, decode(loaded, tokens), strict=True)
                journal.add(
                    {"item_id": keys[cell, batch[number].item_id], "reply": reply}
                    for (cell, number), asked, reply in replies
                    if asked
                )
                done += sum(wanted)
                on_progress(done, total)
    journal.gather(keys.values())
    return pd.concat([_table(cell, items, journal) for cell in vectors], ignore_index=True)


def _fitting(
    loaded: LoadedModel,
    items: Sequence[Item],
    width: int,
    max_new_tokens: int,
    processes: Processes,
) -> int:
    """The rows that auto stands for: those whose caches fit, by the item with the longest text."""
    longest = prompt_of(max(items, key=lambda item: len(item.text)))
    inputs, (ending,) = cut_prompts(loaded, [longest])
    tokens = inputs["input_ids"].shape[1] + len(ending) + max(max_new_tokens, ROOM)
    return rows_that_fit(row_bytes_by_device(loaded.model, tokens), width, processes)


def _parts(
    cells: Sequence[Cell], batch: Sequence[Item], width: int, rows: int
) -> Iterator[Sequence[tuple[Cell, int]]]:
    """Cells and numbers of items that go through the model together, ``rows`` at most.

    Cells are put together without regard to how many items a batch has. Whatever part of a run was
    answered before, what is left is then put together as it would have been.
    """
    together = max(1, rows // width)
    for group in in_batches(cells, together):
        pairs = [(cell, number) for cell in group for number in range(len(batch))]
        yield from in_batches(pairs, rows)


def _key(cell: Cell, item: Item) -> str:
    return f"{cell.name}|{item.item_id}"


def _table(cell: Cell, items: Sequence[Item], journal: Journal) -> pd.DataFrame:
    table = score(items, [journal.answers[_key(cell, item)] for item in items])
    return table.assign(
        cell=cell.name, direction=cell.direction, k=cell.k, alpha=cell.alpha, seed=cell.seed
    )


def _common(vectors: Mapping[Cell, SteeringVector | None]) -> tuple[str, str]:
    """Site and positions that all vectors share."""
    found: set[tuple[str, str]] = {(v.site, v.positions) for v in vectors.values() if v is not None}
    if len(found) > 1:
        raise SteeringError(f"the vectors of a sweep differ in site or positions: {sorted(found)}")
    if not found:
        return "head_out", "last_prompt+generated"
    site, positions = found.pop()
    if positions == ALL:
        raise SteeringError(
            "positions 'all' change the whole prompt, which a sweep reads only once; use "
            "'last_prompt+generated', or evaluate such vectors one by one (--steer)"
        )
    return site, positions


def _stack(deltas: Iterable[torch.Tensor | None]) -> torch.Tensor | None:
    """``[R, L, H, D]``, zero for rows that are not steered; None if no row is."""
    given = list(deltas)
    some = next((d for d in given if d is not None), None)
    if some is None:
        return None
    return torch.stack([torch.zeros_like(some) if d is None else d for d in given])


def _edited(loaded: LoadedModel, delta: torch.Tensor | None, site: str, positions: str) -> Any:
    return nullcontext() if delta is None else Edit(loaded.model, delta, site, positions)
