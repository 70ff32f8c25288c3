"""Text and JSON files, with errors that name file and line."""

from __future__ import annotations

import codecs
import json
from collections import Counter
from pathlib import Path
from typing import Any

from sally_anne.core.errors import RecordError


def read_text(path: Path) -> str:
    """A text file in UTF-8, or in UTF-16 with a byte order mark.

    Raises:
        RecordError: it cannot be read, or is in another encoding; names the line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from error
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if wide else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].decode(encoding, "replace").count("\n") + 1
        raise RecordError(
            f"{path}, line {line}: is not {'UTF-16' if wide else 'UTF-8'} ({error.reason}); "
            "save the file as UTF-8"
        ) from error


def read_json(path: Path) -> Any:
    """The value of a JSON file; a name that an object has twice is an error.

    Raises:
        RecordError: as :func:`read_text`, or not JSON; names the line.
    """
    return parse_json(read_text(path), path)


def parse_json(text: str, path: Path | str) -> Any:
    """The value of a JSON text, see :func:`read_json`."""
    try:
        return json.loads(text, object_pairs_hook=_unrepeated)
    except json.JSONDecodeError as error:
        raise RecordError(f"{path}, line {error.lineno}: is not JSON ({error.msg})") from error
    # Numbers of thousands of digits, names that repeat; nesting without end.
    except ValueError as error:
        raise RecordError(f"{path}: is not usable as JSON ({error})") from error
    except RecursionError as error:
        raise RecordError(f"{path}: is nested too deeply") from error


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(n for n, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"an object has {twice[:40]!r} twice")
    return found
