"""Tasks by name: the benchmarks, a file of one's own, a module's, an installed package's.

`--task` takes one of :data:`TASKS`, a file of JSON lines (benchmarks/own.py), the
``package.module:NAME`` of a Benchmark, or a name in the entry-point group ``sally_anne.tasks``.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from sally_anne.core.errors import HarnessError
from sally_anne.harness.prompting import THOUGHTS, Prompting
from sally_anne.harness.protocols import PROTOCOLS, ProtocolName

if TYPE_CHECKING:
    from sally_anne.data.items import Benchmark

TASKS = (
    *("gridtom", "moments", "mmtom_qa", "muma_tom", "mimeqa", "bigtom"),
    *("tomi", "hi_tom", "fantom", "opentom", "tombench"),
)
GROUP = "sally_anne.tasks"


def find_task(task: str) -> Benchmark:
    """The benchmark that `--task` names, or a HarnessError; GridToM's questions are made here."""
    if task in TASKS[1:]:
        return pkgutil.resolve_name(f"sally_anne.data.{task}:{task.upper()}")
    if (path := own_file(task)) is not None:
        found = path.stat() if path.exists() else None
        return _own_task(path.absolute(), found and (found.st_mtime_ns, found.st_size))
    installed = {point.name: point for point in entry_points(group=GROUP)}
    names = ", ".join([*TASKS, *sorted(installed)])
    if ":" not in task and task not in installed:
        raise HarnessError(
            f"--task {task}: it is none of {names}; no package offers it as an entry point of "
            f"{GROUP!r}, and it is neither a file of JSON lines (.jsonl) nor package.module:NAME"
        )
    try:
        # Modules of the working folder come after all others, so that none stands in their way.
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        found = pkgutil.resolve_name(task) if ":" in task else installed[task].load()
    except (ImportError, AttributeError, ValueError) as error:
        raise HarnessError(
            f"--task {task}: {error}; it should be package.module:NAME, a file of JSON lines "
            f"(.jsonl), or one of {names}"
        ) from error
    from sally_anne.data.items import Benchmark

    if not isinstance(found, Benchmark):
        kind = f"{Benchmark.__module__}.{Benchmark.__name__}"
        raise HarnessError(f"--task {task}: is a {type(found).__name__}, not a {kind}")
    return found


def own_file(task: str) -> Path | None:
    """The file of JSON lines that a task is; None if it is a name."""
    return Path(task) if task.endswith((".jsonl", ".json")) else None


def short_name(task: str) -> str:
    """A task in the name of a folder."""
    path = own_file(task)
    return path.stem if path else task.rpartition(":")[2]


def reply_tokens(
    task: str,
    style: str = "plain",
    prompting: Prompting = "direct",
    protocol: ProtocolName = "sally-anne",
) -> int:
    """How many tokens replies need; those that talk on before they answer are not cut off."""
    if protocol == "official" and task in PROTOCOLS:
        return PROTOCOLS[task].reply_tokens
    if prompting == "cot":
        return THOUGHTS
    if task == "gridtom":
        return 64 if style == "json" else 16
    return 128 if find_task(task).open_ended else 32


@lru_cache(maxsize=8)
def _own_task(path: Path, changed: tuple[int, int] | None) -> Benchmark:
    """The task of a file, read and checked once as long as it stays as it is."""
    from sally_anne.data.own import own_task

    return own_task(path)
