"""The files by which lm-eval and lmms-eval find benchmarks as tasks; imports nothing heavy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory

from sally_anne.harness.tasks import GROUP, TASKS


def names() -> list[str]:
    """The benchmarks that are tasks by their name: this project's and those of installed packages.

    GridToM's tasks have files of their own.
    """
    return [*TASKS[1:], *sorted(point.name for point in entry_points(group=GROUP))]


@contextmanager
def task_files(questions: str) -> Iterator[Path]:
    """A folder with a file for each of :func:`names`, as a task of a harness.

    ``questions`` is the harness's class as ``package.module.Class``.
    """
    with TemporaryDirectory(prefix="sally-anne-tasks-") as folder:
        for number, name in enumerate(names()):
            text = f"class: !function {questions}\ntask: {json.dumps(name)}\n"
            (Path(folder) / f"{number}.yaml").write_text(text, encoding="utf-8")
        yield Path(folder)
