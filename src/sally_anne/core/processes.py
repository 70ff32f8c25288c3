"""A run on its machine: its processes, their devices, and how many inputs go through together.

All that processes need is a place to meet. That is gloo, on GPUs too: it notices a process that
died, and waits for hours, after which NCCL would end the run.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

import psutil

from sally_anne.core.errors import ModelError, OutOfMemoryError, ProcessError, first_line

Piece = TypeVar("Piece")

# Ways to spread one model over all GPUs.
SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")
# One process may fit probes for hours while the others wait.
_PATIENCE = timedelta(days=365)
BatchSize = int | Literal["auto"]
AUTO: Literal["auto"] = "auto"
# Inputs in a batch, beyond which a GPU gains nothing from more long prompts.
MOST = 64


@dataclass(frozen=True)
class Processes:
    """One process among those of a run, and of those on its machine; by default it is alone."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that speaks, draws and writes the results."""
        return self.rank == 0

    def share(self, pieces: Sequence[Piece]) -> list[Piece]:
        """The pieces that fall to this process; each falls to one, if all see the same pieces."""
        return list(pieces[self.rank :: self.count])

    def wait(self) -> None:
        """Go on when all processes have come here."""
        self.all_min(0)

    def all_min(self, number: int) -> int:
        """The smallest of the numbers that all bring; ProcessError if one of them has ended."""
        if self.count == 1:
            return number
        import torch
        import torch.distributed as dist

        smallest = torch.tensor(number)
        try:
            dist.all_reduce(smallest, dist.ReduceOp.MIN, _meeting_place(self.rank, self.count))
        except (RuntimeError, ValueError) as error:
            why = f"({first_line(error)}); the same command goes on, with any number of processes"
            raise ProcessError(f"another process of this run has ended {why}") from error
        return int(smallest)

    def begin(self) -> None:
        """Leave progress bars to the first process."""
        if not self.first:
            from transformers.utils import logging

            logging.disable_progress_bar()

    def device_map(self, device_map: str | None) -> str | None:
        """Where this process loads the model: a GPU of its own, but for ``--device-map``."""
        if self.count > 1 and device_map in SPREAD:
            why = f"over all GPUs, and {self.count} processes load one each: leave it out"
            raise ProcessError(f"--device-map {device_map} spreads one model {why}")
        if device_map is not None:
            return device_map
        if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true"):
            return "cpu"
        if self.count == 1:
            return None
        import torch

        gpus = torch.cuda.device_count()
        return f"cuda:{self.local_rank % gpus}" if gpus else None


ALONE = Processes()


def here() -> Processes:
    """This process, as its launcher says; alone without one; ProcessError if that cannot be."""
    if "MASTER_ADDR" not in os.environ:
        return ALONE
    if "RANK" not in os.environ:
        if os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true":
            message = "accelerate launch starts one process on CPUs: use torchrun --nproc-per-node"
            warnings.warn(message, stacklevel=2)
        return ALONE
    said = {"RANK": os.environ["RANK"], "WORLD_SIZE": os.environ.get("WORLD_SIZE", "1")}
    for own, other in (("LOCAL_RANK", "RANK"), ("LOCAL_WORLD_SIZE", "WORLD_SIZE")):
        said[own] = os.environ.get(own, said[other])
    with suppress(ValueError):
        found = Processes(
            rank=int(said["RANK"]),
            count=int(said["WORLD_SIZE"]),
            local_rank=int(said["LOCAL_RANK"]),
            local_world_size=int(said["LOCAL_WORLD_SIZE"]),
        )
        if 0 <= found.rank < found.count and 0 <= found.local_rank < found.local_world_size:
            return found
    named = ", ".join(f"{name}={value}" for name, value in said.items())
    raise ProcessError(f"{named} name no process; start the run with accelerate launch or torchrun")


def exit_with_parent() -> None:
    """End this worker when its parent ends, however it does; called when the worker begins."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@functools.cache
def _meeting_place(rank: int, count: int) -> Any:
    import torch.distributed as dist

    if dist.is_initialized():
        return dist.new_group(backend="gloo", timeout=_PATIENCE)
    dist.init_process_group("gloo", rank=rank, world_size=count, timeout=_PATIENCE)
    return dist.group.WORLD


def place_of(device: str | None, device_map: str | None) -> str | None:
    """Where a model is put, as a device map; a ModelError if it is said twice."""
    if device is not None and device_map is not None:
        both = f"--device {device} and --device-map {device_map}"
        raise ModelError(f"{both} both say where the model is put: give one of them")
    return device or device_map


def first_gpu() -> str | None:
    """Where a model is put if nobody says: CUDA, then Apple's; None where there is no GPU."""
    import torch

    if torch.cuda.is_available():
        return "cuda:0"
    return "mps" if torch.backends.mps.is_available() else None


def check_place(device_map: str | None) -> None:
    """Refuse a device that is not here, before anything is read or made."""
    if device_map is None or device_map in SPREAD:
        return
    import torch

    try:
        torch.empty(0, device=device_map)
    # Without a driver torch asserts.
    except (RuntimeError, AssertionError) as error:
        why = f"({first_line(error).rstrip('.')}); give --device cpu, cuda, cuda:1 or mps"
        raise ModelError(f"device {device_map!r} cannot be used here {why}") from error


def in_batches(things: Sequence[Piece], size: int) -> list[Sequence[Piece]]:
    """The things in their order, ``size`` at a time; the last batch holds what is left."""
    return [things[start : start + size] for start in range(0, len(things), size)]


def fitting(model: Any, trial: Callable[[int], object], on_cpu: int, processes: Processes) -> int:
    """The batch size that ``--batch-size auto`` stands for: the same in all processes, the least.

    On a GPU it is the largest of 64, 32, 16 ... whose trial, the batch of so many inputs that
    needs the most memory, fits. A CPU gains nothing from larger batches, and takes ``on_cpu``.
    """
    if all(p.device.type == "cpu" for p in model.parameters()):
        return processes.all_min(on_cpu)
    from accelerate.utils.memory import clear_device_cache

    size = MOST
    while True:
        try:
            trial(size)
            return processes.all_min(size)
        except (RuntimeError, MemoryError) as error:
            if size == 1 or not is_out_of_memory(error):
                raise
        # Only here: the error held on to what the trial had made.
        clear_device_cache(garbage_collection=True)
        size //= 2


def rows_that_fit(bytes_a_row: Mapping[Any, int], others: int, processes: Processes) -> int:
    """Rows, 64, 32, 16 ..., that with ``others`` take at most 3/4 of what is free everywhere."""
    rows = MOST
    for device, size in bytes_a_row.items():
        free = free_memory(device) // (processes.local_world_size if device.type == "cpu" else 1)
        while rows > 1 and (rows + others) * size > 0.75 * free:
            rows //= 2
    return processes.all_min(rows)


def free_memory(device: Any) -> int:
    import torch

    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + int(kept)
    return int(psutil.virtual_memory().available)


@contextmanager
def within_memory(
    advice: str, kept: str = "what was computed before is kept: the same command goes on with it"
) -> Iterator[None]:
    """OutOfMemoryError, with which option to change, for what does not fit; also a decorator."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        why = f"out of memory: {advice}; {kept} ({first_line(error)})"
        raise OutOfMemoryError(why) from error


def is_out_of_memory(error: Exception) -> bool:
    import torch
    from accelerate.utils.memory import should_reduce_batch_size

    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or bool(should_reduce_batch_size(error))
