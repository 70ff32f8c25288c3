"""How many inputs go through a model together: as many as are asked for, or as fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

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
    """The batch size that ``--batch-size auto`` stands for: the same in all processes.

    On a GPU it is the largest of 64, 32, 16 ... whose trial fits in memory; on a CPU, which gains
    nothing from larger batches, it is a fixed number, so that runs can be repeated.

    Args:
        model: with its weights.
        trial: runs the batch of so many inputs that needs the most memory.
        on_cpu: what a CPU uses.
        processes: those that call this; the least of their sizes is taken.

    Raises:
        RuntimeError: not even one input fits, or the trial failed for another reason.
        ProcessError: another of the processes has ended.
    """
    if all(p.device.type == "cpu" for p in model.parameters()):
        return processes.all_min(on_cpu)
    return processes.all_min(most_that_fit(trial))


def most_that_fit(trial: Callable[[int], object], most: int = MOST) -> int:
    """The first of ``most``, ``most / 2``, ``most / 4`` ... whose trial does not run out of memory.

    Raises:
        RuntimeError: as of :func:`fitting`.
    """
    from accelerate.utils.memory import clear_device_cache

    size = most
    while True:
        try:
            trial(size)
            return size
        except (RuntimeError, MemoryError) as error:
            if size == 1 or not is_out_of_memory(error):
                raise
        # Only here: the error held on to what the trial had made.
        clear_device_cache(garbage_collection=True)
        size //= 2


def rows_that_fit(
    bytes_a_row: Mapping[Any, int], others: int, processes: Processes, most: int = MOST
) -> int:
    """How many rows go through a model together, if each keeps so much memory while it does.

    The first of ``most``, ``most / 2``, ``most / 4`` ... that takes, with the other rows, at most
    three quarters of what is free: the rest is for what one layer needs for itself.

    Args:
        bytes_a_row: what a row keeps on each device (``torch.device``).
        others: rows that are kept beside them.
        processes: those that call this; the least of their numbers is taken.
        most: the largest number.
    """
    rows = most
    for device, size in bytes_a_row.items():
        free = free_memory(device) // (processes.local_world_size if device.type == "cpu" else 1)
        while rows > 1 and (rows + others) * size > 0.75 * free:
            rows //= 2
    return processes.all_min(rows)


def free_memory(device: Any) -> int:
    """Bytes that can still be had on a ``torch.device``."""
    import torch

    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + int(kept)
    import psutil

    return int(psutil.virtual_memory().available)


@contextmanager
def within_memory(advice: str, kept: str = KEPT) -> Iterator[None]:
    """Say what to change if what is run in the block does not fit in memory; also a decorator.

    Args:
        advice: which option to change, e.g. ``use a smaller --batch-size``.
        kept: what becomes of the work that is done.

    Raises:
        OutOfMemoryError: it does not fit, on whatever device.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise OutOfMemoryError(f"out of memory: {advice}; {kept} ({said})") from error


def is_out_of_memory(error: Exception) -> bool:
    """Whether a GPU, torch on a CPU or Python has no memory left."""
    import torch
    from accelerate.utils.memory import should_reduce_batch_size

    no_room = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, no_room) or bool(should_reduce_batch_size(error))
