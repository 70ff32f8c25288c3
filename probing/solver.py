"""Logistic regressions of all heads and of many label vectors at once, to the optimum, certified.

The objective is scikit-learn's: ``0.5 ||w||^2 + C sum_i s_i loss_i``, the intercept free; one logit
for two classes, one a class for more. Heads are taken in blocks: enough of them that calls cost
little. A block is brought near the optimum in float32 and finished in float64, where an error bound
on the weights that needs no reference is computed for every problem (``probing/certificate.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from math import ceil
from queue import SimpleQueue

import torch

from probing.logistic import Losses
from probing.problems import Problems, Settings
from probing.samples import Fits, Memory, Samples

__all__ = ["Fits", "Problems", "Settings", "solve", "solve_blocks"]

# Bytes a block may fill: of the order of a processor's cache, or a part of a GPU's memory.
CPU_BLOCK, GPU_BLOCK = 24e6, 2e9
# Bytes of the heads that are in float64 at a time on a processor: they should stay in its cache.
CPU_PIECE = 4e6
# Arrays as large as the logits that an iteration holds.
LOGIT_ARRAYS = 6


def solve(problems: Problems, settings: Settings | None = None) -> Fits:
    """Fit every label vector on every head; the fits are on the CPU.

    Raises:
        ProbingError: a head's samples hold NaN or infinity (it is named).
    """
    heads, width = problems.x.shape[1:]
    count = len(problems.labels)
    outputs = 1 if problems.n_classes == 2 else problems.n_classes
    fits = Fits(
        coef=torch.empty(heads, count, outputs, width, dtype=torch.float64),
        intercept=torch.empty(heads, count, outputs, dtype=torch.float64),
        bound=torch.empty(heads, count, dtype=torch.float64),
        converged=torch.empty(heads, count, dtype=torch.bool),
        quiet=torch.empty(heads, count, dtype=torch.bool),
        iterations=torch.empty(heads, count, dtype=torch.int64),
    )
    for at, part in solve_blocks(problems, settings):
        for field in fields(Fits):
            getattr(fits, field.name)[at] = getattr(part, field.name).cpu()
    return fits


def solve_blocks(
    problems: Problems, settings: Settings | None = None
) -> Iterator[tuple[tuple[slice, slice], Fits]]:
    """The fits block by block, for results that are too large to keep: heads, label vectors, fits.

    The fits stay on the device. Errors as of :func:`solve`.
    """
    settings = settings or Settings()
    device = settings.device
    place = torch.device(device) if device is not None else problems.x.device
    losses = Losses.of(
        problems.labels.to(place),
        problems.n_classes,
        problems.c,
        None if problems.weights is None else problems.weights.to(place),
    )
    n, heads, width = problems.x.shape
    count, outputs = len(losses.targets), losses.outputs
    room = GPU_BLOCK if place.type == "cuda" else CPU_BLOCK
    columns = int(max(1, min(count, 0.5 * room // (4 * LOGIT_ARRAYS * outputs * n))))
    rows = int(max(1, min(heads, room // (4 * n * (width + LOGIT_ARRAYS * outputs * columns)))))
    exact = rows if place.type == "cuda" else int(max(1, min(rows, CPU_PIECE // (8 * n * width))))
    memories: SimpleQueue[Memory] = SimpleQueue()

    def fits_of(block: slice) -> Iterator[tuple[tuple[slice, slice], Fits]]:
        memory = memories.get()
        try:
            samples = Samples.of(problems, block, losses, memory)
            for start in range(0, count, columns):
                part = slice(start, min(start + columns, count))
                yield (block, part), samples.fit(losses.take(part), settings)
        finally:
            memories.put(memory)

    # The products of few label vectors are too small to share: each core takes blocks of its own.
    workers = torch.get_num_threads() if place.type == "cpu" and columns == count else 1
    # Of one size and, if there are several, an even number, so that cores end together. Their size
    # does not depend on the number of cores, as the last digits depend on it.
    turns = ceil(heads / rows)
    rows = ceil(heads / (turns + (turns % 2 if turns > 1 else 0)))
    blocks = [slice(first, min(first + rows, heads)) for first in range(0, heads, rows)]
    workers = min(workers, len(blocks))
    for _ in range(workers):
        memories.put(Memory.of(rows, exact, n, min(width, n) + 1, place))
    if workers == 1:
        for block in blocks:
            yield from fits_of(block)
        return
    with _one_thread_each(workers) as pool:
        for found in pool.map(lambda block: list(fits_of(block)), blocks):
            yield from found


@contextmanager
def _one_thread_each(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads whose products stay on one core; afterwards torch has its own again."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)
