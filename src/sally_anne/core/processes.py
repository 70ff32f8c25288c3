"""Several processes at one run: which one this is, what falls to it, and waiting for the others.

Every process writes files of its own, so all they need is a place to meet. That is gloo, on GPUs
too: it notices a process that died, and waits for hours, after which NCCL would end the run.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from sally_anne.core.errors import ProcessError

Piece = TypeVar("Piece")

# Rank, number of processes, and both on this machine: torchrun, then the kinds of MPI that
# `accelerate launch` starts on CPUs.
_NAMES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    *(
        tuple(f"{mpi}_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
        for mpi in ("OMPI", "MV2")
    ),
)
# Ways to spread one model over all GPUs.
SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")
# One process may fit probes for hours while the others wait.
_PATIENCE = timedelta(days=365)


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
            group = _meeting_place(self.rank, self.count)
            dist.all_reduce(smallest, dist.ReduceOp.MIN, group=group)
        except (RuntimeError, ValueError) as error:
            raise ProcessError(
                "another process of this run has ended, or cannot be reached "
                f"({str(error).splitlines()[0]}); what is finished is kept: the same command goes "
                "on, with any number of processes"
            ) from error
        return int(smallest)

    def begin(self) -> None:
        """Take a part of the machine's cores, and leave progress bars to the first process.

        `OMP_NUM_THREADS` goes before; `accelerate launch` and `torchrun` set it to 1 if nobody did.
        """
        if self.local_world_size > 1 and "OMP_NUM_THREADS" not in os.environ:
            import torch

            torch.set_num_threads(max(1, (os.cpu_count() or 1) // self.local_world_size))
        if not self.first:
            from transformers.utils import logging

            logging.disable_progress_bar()

    def device_map(self, device_map: str | None) -> str | None:
        """Where this process loads the model: a GPU of its own, unless ``--device-map`` says where.

        ProcessError where one of several is to spread it over all GPUs.
        """
        if self.count > 1 and device_map in SPREAD:
            raise ProcessError(
                f"--device-map {device_map} spreads one model over all GPUs, and {self.count} "
                "processes load one each: leave it out, and each takes a GPU of its own, or start "
                "a single process"
            )
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
    for names in _NAMES:
        if names[0] in os.environ and names[1] in os.environ:
            rank, count = _number(names[0]), _number(names[1])
            local_rank, local_size = _number(names[2], rank), _number(names[3], count)
            if not (0 <= rank < count and 0 <= local_rank < local_size):
                raise ProcessError(
                    f"{names[0]}={rank}, {names[1]}={count}, {names[2]}={local_rank} and "
                    f"{names[3]}={local_size} name no process; start the run with accelerate "
                    "launch or torchrun"
                )
            return Processes(rank, count, local_rank, local_size)
    if os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true":
        warnings.warn(
            "on CPUs accelerate launch starts several processes by MPI alone; this one works by "
            "itself. Use torchrun --nproc-per-node instead.",
            stacklevel=2,
        )
    return ALONE


def exit_with_parent() -> None:
    """End this worker when its parent ends, however it does; called when the worker begins."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _number(name: str, default: int | None = None) -> int:
    value = os.environ.get(name)
    if value is None and default is not None:
        return default
    try:
        return int(value or "")
    except ValueError as error:
        raise ProcessError(f"the environment variable {name} is no number: {value!r}") from error


@functools.cache
def _meeting_place(rank: int, count: int) -> Any:
    """The processes as a group of torch.distributed."""
    import torch.distributed as dist

    if dist.is_initialized():
        return dist.new_group(backend="gloo", timeout=_PATIENCE)
    dist.init_process_group("gloo", rank=rank, world_size=count, timeout=_PATIENCE)
    return dist.group.WORLD
