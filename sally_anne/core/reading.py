"""What can go wrong with a file that is read, as one of our errors: missing, refused or damaged.

Only what is damaged is worth making again. A file that the system will not give (permissions, a
disk, a folder in its place) may hold hours of work.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sally_anne.core.errors import SallyAnneError


@contextmanager
def reading(
    path: Path | str,
    error: type[SallyAnneError],
    made_by: str | None = None,
    damaged: type[SallyAnneError] | None = None,
) -> Iterator[None]:
    """Read and take apart one file in the block; whatever a library raises there is ours outside.

    JSON, Arrow, safetensors and the rest have kinds of errors of their own for bytes that they
    cannot make sense of, so everything in the block is taken for that: keep other work out of it.

    Args:
        path: the file.
        error: what to raise.
        made_by: the command that writes it, to be named; None for a file of the user's own.
        damaged: what to raise for a file that can be read and makes no sense; `error` by default.

    Raises:
        error, damaged: says what is wrong, and how to make it again unless it may be whole. Our own
            errors in the block pass.
    """
    path = Path(path)
    try:
        # Libraries tell a folder and a file they may not open from a damaged one in many ways.
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb"):
                pass
        elif made_by is not None or path.is_dir():
            raise error(f"{path} is not a file" + (" but a folder" if path.is_dir() else ""))
        yield
    except SallyAnneError:
        raise
    except FileNotFoundError as fault:
        raise error(
            f"{path} is missing" + (f"; `{made_by}` makes it" if made_by else "")
        ) from fault
    except Exception as fault:
        if isinstance(fault, OSError) and fault.errno is not None:
            raise error(
                f"{path} cannot be read ({fault.strerror}); what it holds may be whole: look to "
                "its permissions and its disk"
            ) from fault
        again = f"; delete it and run `{made_by}` again" if made_by else ""
        raise (damaged or error)(
            f"{path} is damaged or another kind of file ({_said(fault)}){again}"
        ) from fault


def read_object(
    path: Path | str,
    error: type[SallyAnneError],
    made_by: str,
    parts: dict[str, tuple[str, ...]] | None = None,
) -> dict[str, Any]:
    """An object in a JSON file.

    Args:
        path: the file.
        error: what to raise.
        made_by: the command that writes it.
        parts: names of objects that it must hold, and what each of those must.

    Raises:
        error: as :func:`reading`, or a part is missing; names it.
    """
    with reading(path, error, made_by):
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise TypeError(f"it holds a {type(found).__name__}, not an object")
        for part, names in (parts or {}).items():
            if not isinstance(found.get(part), dict):
                raise TypeError(f"it has no object {part!r}")
            if missing := [name for name in names if name not in found[part]]:
                raise TypeError(f"its {part!r} lacks {missing[0]!r}")
    return found


def _said(fault: Exception) -> str:
    """The first line of an error, or its kind."""
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]
