"""How many inputs go through a model together: a number, or as many as fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import psutil

from sally_anne.core.errors import OutOfMemoryError
from sally_anne.core.processes import Processes

Thing = TypeVar("Thing")
BatchSize = int | Literal["auto"]
AUTO: Literal["auto"] = "auto"
# Beyond this a GPU gains nothing from more long prompts.
MOST = 64
KEPT = "what was computed before is kept: the same command goes on with it"


def in_batches(things: Sequence[Thing], size: int) -> list[Sequence[Thing]]:
    """The things in their order, ``size`` at a time; the last batch holds what is left."""
    return [things[start : start + size] for start in range(0, len(things), size)]


def fitting(model: Any, trial: Callable[[int], object], on_cpu: int, processes: Processes) -> int:
    """The batch size that ``--batch-size auto`` stands for: the same in all processes, the least.

    On a GPU it is the largest of 64, 32, 16 ... whose trial, the batch of so many inputs that
    needs the most memory, fits. A CPU gains nothing from larger batches, and takes ``on_cpu``.

    Raises:
        RuntimeError: not even one input fits, or the trial failed for another reason.
    """
    if all(p.device.type == "cpu" for p in model.parameters()):
        return processes.all_min(on_cpu)
    from accelerate.utils.memory import clear_device_cache

    size = MOST
    while True:
        try:
            trial(size)
            break
        except (RuntimeError, MemoryError) as error:
            if size == 1 or not is_out_of_memory(error):
                raise
        # Only here: the error held on to what the trial had made.
        clear_device_cache(garbage_collection=True)
        size //= 2
    return processes.all_min(size)


def rows_that_fit(bytes_a_row: Mapping[Any, int], others: int, processes: Processes) -> int:
    """How many rows go through a model together, if each keeps so much on each ``torch.device``.

    The first of 64, 32, 16 ... that, with ``others`` more rows, takes at most three quarters of
    what is free, in all processes: one layer needs the rest for itself.
    """
    rows = MOST
    for device, size in bytes_a_row.items():
        free = free_memory(device) // (processes.local_world_size if device.type == "cpu" else 1)
        while rows > 1 and (rows + others) * size > 0.75 * free:
            rows //= 2
    return processes.all_min(rows)


def free_memory(device: Any) -> int:
    """Bytes that are free on a ``torch.device``."""
    import torch

    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + int(kept)
    return int(psutil.virtual_memory().available)


@contextmanager
def within_memory(advice: str, kept: str = KEPT) -> Iterator[None]:
    """Raise OutOfMemoryError if what is run in the block does not fit; also a decorator.

    ``advice`` is which option to change, ``kept`` what becomes of the work that is done.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise OutOfMemoryError(f"out of memory: {advice}; {kept} ({reason})") from error


def is_out_of_memory(error: Exception) -> bool:
    """Whether a GPU, torch or Python has no memory left."""
    import torch
    from accelerate.utils.memory import should_reduce_batch_size

    return isinstance(error, MemoryError | torch.OutOfMemoryError) or bool(
        should_reduce_batch_size(error)
    )
