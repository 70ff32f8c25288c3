"""What a timing was made on; without it seconds mean nothing."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.errors import PerfError

PACKAGES = (
    "torch",
    "transformers",
    "numpy",
    "scikit-learn",
    "nnsight",
    "transformer-lens",
    "pyvene",
)


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads that this machine has not; None stands for all its cores.

    Raises:
        PerfError: names the option.
    """
    if threads is not None and not 1 <= threads <= cores():
        raise PerfError(f"--threads must be 1 to {cores()}, got {threads}")


def confine(threads: int) -> None:
    """Keep this process, its threads and its children on ``threads`` cores.

    A contender that starts processes of its own then has no more of the machine than the others.
    Where the system cannot confine processes, only torch's threads are limited.
    """
    import torch

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:threads]))
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)


def describe(threads: int) -> dict[str, Any]:
    """Processor, memory, accelerator, versions, and how busy the machine was at the beginning.

    Args:
        threads: of every contender.
    """
    import torch

    versions: dict[str, str] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads of every contender": threads,
        "memory GiB": _memory(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
        "load average before": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "versions": versions,
    }


def line(machine: dict[str, Any]) -> str:
    """One line for the head of a table."""
    device = f", {machine['gpu']}" if machine["gpu"] else ""
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory GiB']} GiB{device}; "
        f"{machine['threads of every contender']} threads for every contender; {versions}"
    )


def _cpu() -> str:
    try:
        for entry in Path("/proc/cpuinfo").read_text().splitlines():
            if entry.startswith("model name"):
                return entry.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
