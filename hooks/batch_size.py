"""How many inputs go through a model together: as many as are asked for, or as fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from hooks.processes import Processes

Thing = TypeVar("Thing")
BatchSize = int | Literal["auto"]
AUTO: Literal["auto"] = "auto"
# Beyond this a GPU gains nothing from more long prompts.
MOST = 64


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
        return processes.least(on_cpu)
    return processes.least(most_that_fit(trial))


def most_that_fit(trial: Callable[[int], object], most: int = MOST) -> int:
    """The first of ``most``, ``most / 2``, ``most / 4`` ... whose trial does not run out of memory.

    Raises:
        RuntimeError: as of :func:`fitting`.
    """
    from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size

    size = most
    while True:
        try:
            trial(size)
            return size
        except RuntimeError as error:
            if size == 1 or not should_reduce_batch_size(error):
                raise
        # Only here: the error held on to what the trial had made.
        clear_device_cache(garbage_collection=True)
        size //= 2
