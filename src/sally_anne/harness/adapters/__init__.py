"""Steered models and our tasks for other evaluation harnesses, all of them optional.

Here are the files by which lm-eval and lmms-eval find our tasks; nothing heavy is imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sally_anne.harness.tasks import TASKS

_ORDERS = {"order1": "1", "order2": "2", "initial": "initial"}
_SETTINGS = ("multimodal", "video", "text")


def tasks() -> dict[str, dict[str, str]]:
    """What each task asks, by its name: GridToM's by order and setting, then all benchmarks."""
    found = {
        f"gridtom_{name}_{setting}": {"task": "gridtom", "order": order, "setting": setting}
        for (name, order), setting in product(_ORDERS.items(), _SETTINGS)
    }
    return found | {name: {"task": name} for name in TASKS[1:]}


@contextmanager
def task_files(questions: str) -> Iterator[Path]:
    """A folder with a file for each of :func:`tasks`; ``questions`` names the harness's class."""
    with TemporaryDirectory(prefix="sally-anne-tasks-") as folder:
        for number, (name, options) in enumerate(tasks().items()):
            parts: dict[str, Any] = {"task": name, "dataset_kwargs": options}
            if setting := options.get("setting"):
                parts["tag"] = ["gridtom", f"gridtom_{setting}"]
            lines = (f"{part}: {json.dumps(value)}\n" for part, value in parts.items())
            text = f"class: !function {questions}\n{''.join(lines)}"
            (Path(folder) / f"{number}.yaml").write_text(text, encoding="utf-8")
        yield Path(folder)


def add_tasks(harness: Any, ours: Path, first: bool) -> None:
    """Every search of a harness for tasks finds ours, too.

    A user's own of the same name go before: ours are ``first`` where the last of a name stands.
    """
    manager = harness.TaskManager

    def with_ours(*args: Any, include_path: Any = None, **kwargs: Any) -> Any:
        several = isinstance(include_path, (list, tuple))
        own = list(include_path) if several else [include_path] if include_path else []
        paths = [str(ours), *own] if first else [*own, str(ours)]
        return manager(*args, include_path=paths, **kwargs)

    harness.TaskManager = with_ours
