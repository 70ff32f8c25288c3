"""What was measured, written as it goes: a run that is cut off keeps what it has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.perf.errors import PerfError
from hooks.atomic import write_atomic

RESULTS, TABLE = "results.json", "table.md"


class Results:
    """A folder with ``results.json`` and ``table.md``.

    Args:
        folder: made if it is not there; older files of these names are replaced.
        head: what stands first, e.g. machine and options.

    Raises:
        PerfError: the folder cannot be made.
    """

    def __init__(self, folder: Path, head: dict[str, Any]) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PerfError(
                f"the folder {folder} cannot be made ({error.strerror}); choose another --out"
            ) from error
        self.folder = folder
        self.values = dict(head)
        self.write()

    def put(self, name: str, value: Any) -> None:
        """Set an entry and write everything."""
        self.values[name] = value
        self.write()

    def write(self) -> None:
        """Write ``results.json``."""
        text = json.dumps(self.values, indent=2, default=str, allow_nan=True)
        write_atomic(self.folder / RESULTS, (text + "\n").encode())

    def table(self, text: str) -> None:
        """Write ``table.md``."""
        write_atomic(self.folder / TABLE, (text.rstrip() + "\n").encode())


def read_results(path: Path) -> dict[str, Any]:
    """``results.json`` of a folder, or that file itself.

    Raises:
        PerfError: it is missing or no JSON object.
    """
    file = path / RESULTS if path.is_dir() else path
    try:
        found = json.loads(file.read_text())
    except OSError as error:
        raise PerfError(f"{file} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise PerfError(f"{file} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise PerfError(f"{file} holds a {type(found).__name__}, not an object")
    return found
