"""A finished run's JSON vouches for itself and for the files beside it, by their SHA-256.

    write_sealed(folder / "results.json", {"config": ...}, ["answers.parquet"])

adds two entries: ``files``, the checksums of the files named, and ``sha256``, one of all other
entries. Whoever reads the JSON asks :func:`require_sealed`, and gets the files by :func:`intact`.
What has neither entry was written by an earlier version, or by hand, and is taken as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sally_anne.core.atomic import file_sha256, write_atomic
from sally_anne.core.errors import AlteredError, StoreError
from sally_anne.core.reading import reading

FILES, SEAL = "files", "sha256"


def write_sealed(path: Path, content: Mapping[str, Any], files: Iterable[str] = ()) -> None:
    """Write ``content`` as JSON, with checksums.

    Args:
        path: the JSON file; it is there wholly or not at all.
        content: may hold what :func:`write_sealed` added before; known files are not read again.
        files: paths of files, as seen from the same folder.

    Raises:
        StoreError: the disk is full.
    """
    known = dict(content.get(FILES, {}))
    known |= {name: file_sha256(path.parent / name) for name in files if name not in known}
    bare = {name: value for name, value in content.items() if name not in (FILES, SEAL)}
    body = json.loads(json.dumps({**bare, FILES: known}, default=str))
    text = json.dumps(body | {SEAL: _digest(body)}, indent=2)
    write_atomic(path, f"{text}\n".encode())


def require_sealed(path: Path, content: Any, again: str) -> None:
    """Check what was read from the JSON file ``path``.

    Args:
        path: for the error.
        content: of the file.
        again: how it is made again, as a sentence.

    Raises:
        AlteredError: it is not as it was written.
    """
    if not isinstance(content, dict) or not {FILES, SEAL} & set(content):
        return
    body = {name: value for name, value in content.items() if name != SEAL}
    if content.get(SEAL) != _digest(body) or not isinstance(content.get(FILES), dict):
        raise AlteredError(f"{path} is altered: its checksum does not fit what it says. {again}")


def intact(folder: Path, name: str, sealed: Mapping[str, Any], again: str) -> bytes:
    """The contents of a file that ``sealed``, the JSON of its folder, vouches for.

    Raises:
        AlteredError: it is not the file that was written with that JSON.
        StoreError: it is missing or refused.
    """
    path = folder / name
    with reading(path, StoreError):
        data = path.read_bytes()
    wanted = sealed.get(FILES, {}).get(name)
    if wanted is not None and hashlib.sha256(data).hexdigest() != wanted:
        raise AlteredError(
            f"{path} is altered, or of another run: its SHA-256 is not the one noted when it was "
            f"written. {again}"
        )
    return data


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
