"""Writing a file so that it is there wholly or not at all, whenever the process dies."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from sally_anne.core.errors import StoreError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_TMP = ".tmp"


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path` by way of a temporary file in the same folder.

    Raises:
        StoreError: the disk is full; names the file and the bytes needed. Nothing is left behind.
    """
    tmp = path.with_name(f".{path.name}{_TMP}")
    try:
        with open(tmp, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, path)
        _sync_folder(path.parent)
    except OSError as error:
        tmp.unlink(missing_ok=True)
        if error.errno not in _NO_SPACE:
            raise
        free = shutil.disk_usage(path.parent).free
        raise StoreError(
            f"no space left while writing {path}: it needs {len(data):,} bytes, {free:,} are free. "
            "Everything stored before is kept; make room and run again to go on."
        ) from error


def remove_leftovers(folder: Path, patterns: Iterable[str]) -> None:
    """Remove what a killed `write_atomic` of files named like `patterns` left in `folder`.

    Call it only while no other process writes there.
    """
    for pattern in patterns:
        for tmp in folder.glob(f".{pattern}{_TMP}"):
            tmp.unlink()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    # A rename survives a power cut only once its folder is on disk, too.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
