"""What was measured, written as it goes: a run that is cut off keeps what it has."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.errors import PerfError
from sally_anne.core.files import write_atomic
from sally_anne.core.run_folder import COMPARISON, claimed

RESULTS, TABLE = "results.json", "table.md"


class Results:
    """A folder with ``results.json`` and ``table.md``.

    Args:
        folder: made if it is not there; an older comparison in it is replaced. It is held as long
            as this object lives.
        head: what stands first, e.g. machine and options.

    Raises:
        FolderError: the folder cannot be made, or holds something else.
    """

    def __init__(self, folder: Path, head: dict[str, Any]) -> None:
        self._claim = ExitStack()
        self._claim.enter_context(claimed(folder, COMPARISON))
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
