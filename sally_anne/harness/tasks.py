"""Tasks by name: the benchmarks, a file of one's own, a module's, an installed package's.

`--task` takes one of :data:`TASKS`; a file of JSON lines, see :mod:`sally_anne.benchmarks.own`;
``package.module:NAME``, an object of :class:`sally_anne.benchmarks.items.Benchmark`; or the name
of such an object that an installed package offers in the entry-point group ``sally_anne.tasks``.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sally_anne.core.errors import HarnessError

if TYPE_CHECKING:
    from sally_anne.benchmarks.items import Benchmark

TASKS = ("gridtom", "moments", "mmtom_qa", "muma_tom", "mimeqa", "bigtom")
GROUP = "sally_anne.tasks"


def find_task(task: str) -> Benchmark:
    """The benchmark that `--task` names; any but GridToM, whose questions are worked out here.

    Modules are imported when they are asked for, so that --help answers at once.

    Raises:
        HarnessError: there is none of this name, or it is something else; says where it was looked
            for.
        RecordError: a file of one's own is damaged.
    """
    if task in TASKS[1:]:
        return getattr(importlib.import_module(f"sally_anne.benchmarks.{task}"), task.upper())
    if (path := own_file(task)) is not None:
        found = path.stat() if path.exists() else None
        return _own_task(path.absolute(), found and (found.st_mtime_ns, found.st_size))
    module, colon, name = task.partition(":")
    installed = {point.name: point for point in entry_points(group=GROUP)}
    names = ", ".join([*TASKS, *sorted(installed)])
    try:
        if colon:
            found = getattr(_imported(module), name)
        elif task in installed:
            found = installed[task].load()
        else:
            raise HarnessError(
                f"--task {task}: it is none of {names}; no package offers it as an entry point "
                f"of {GROUP!r}, and it is neither a file of JSON lines (.jsonl) nor "
                "package.module:NAME"
            )
    except (ImportError, AttributeError) as error:
        raise HarnessError(
            f"--task {task}: {error}; it should be package.module:NAME, a file of JSON lines "
            f"(.jsonl), or one of {names}"
        ) from error
    from sally_anne.benchmarks.items import Benchmark

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


def reply_tokens(task: str, style: str = "plain") -> int:
    """How many tokens replies need; those that talk on before they answer are not cut off."""
    if task == "gridtom":
        return 64 if style == "json" else 16
    return 128 if find_task(task).open_ended else 32


@lru_cache(maxsize=8)
def _own_task(path: Path, changed: tuple[int, int] | None) -> Benchmark:
    """The task of a file, read and checked once as long as it stays as it is."""
    from sally_anne.benchmarks.own import own_task

    return own_task(path)


def _imported(module: str) -> Any:
    # Modules of the working folder come after all others, so that none stands in their way.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return importlib.import_module(module)
