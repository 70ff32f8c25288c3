"""Files, written and read: wholly or not at all, with our errors."""

from __future__ import annotations

import codecs
import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sally_anne.core.errors import SallyAnneError, StoreError, first_line

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
# TMP ends a file that is not whole yet, as a killed run leaves it.
LOCK, TMP = ".lock", ".tmp"
# How a file begins that Git LFS has left in the place of a large one, and what to say of it.
LFS = b"version https://git-lfs"
POINTER = "is a pointer of Git LFS, not the file itself: fetch that with `git lfs pull`"


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` by way of a temporary file next to it; a StoreError if the disk is full."""
    tmp = path.with_name(f".{path.name}{TMP}")
    try:
        with open(tmp, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, path)
        # A rename survives a power cut only once its folder is on disk, too; Windows opens none.
        if hasattr(os, "O_DIRECTORY"):
            handle = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except OSError as error:
        tmp.unlink(missing_ok=True)
        if error.errno not in _NO_SPACE:
            raise
        free = shutil.disk_usage(path.parent).free
        needs = f"it needs {len(data):,} bytes, {free:,} are free; make room and run again to go on"
        raise StoreError(f"no space left while writing {path}: {needs}") from error


def locked(folder: Path, error: type[SallyAnneError], patience: float = 0.0) -> FileLock:
    """Lock a folder for one run; an ``error`` if another one has it, or this process itself."""
    lock = FileLock(folder / LOCK, timeout=patience, thread_local=False)
    try:
        if lock.is_locked:  # lmms-eval makes all locks of one file in a process the same
            raise Timeout(lock.lock_file)
        lock.acquire()
    except Timeout as fault:
        way = "wait for it to end, or choose another --out"
        raise error(f"another run is writing to {folder}: {way}") from fault
    return lock


@contextmanager
def reading(
    path: Path | str, error: type[SallyAnneError], made_by: str | None = None
) -> Iterator[None]:
    """Read and take apart one file in the block; whatever a library raises there is ours outside.

    Each library has errors of its own for bytes that it cannot make sense of, so everything in the
    block is taken for that: keep other work out of it. Our own errors pass. `made_by` is the
    command that writes the file, None for one of the user's own.
    """
    path = Path(path)
    try:
        # Libraries have many errors for a folder, and for a file that they may not open.
        if stat.S_ISREG(os.stat(path).st_mode):
            path.open("rb").close()
        elif made_by is not None or path.is_dir():
            raise error(f"{path} is not a file" + (" but a folder" if path.is_dir() else ""))
        yield
    except SallyAnneError:
        raise
    except FileNotFoundError as fault:
        makes = f"; `{made_by}` makes it" if made_by else ""
        raise error(f"{path} is missing{makes}") from fault
    except Exception as fault:
        if isinstance(fault, OSError) and fault.errno is not None:
            raise error(f"{path} cannot be read ({fault.strerror}): see its permissions") from fault
        why = f"{path} is damaged or another kind of file ({first_line(fault)})"
        again = f"; delete it and run `{made_by}` again" if made_by else ""
        raise error(why + again) from fault


def text_of(data: bytes) -> str:
    """Text of bytes in UTF-8, or in UTF-16 with its byte-order mark; a ValueError for others."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    if b"\0" in data[:64]:
        raise ValueError("it is UTF-16 without a byte-order mark, or no text; save it as UTF-8")
    return data.decode("utf-8-sig")


def read_object(
    path: Path | str,
    error: type[SallyAnneError],
    made_by: str,
    parts: dict[str, tuple[str, ...]] | None = None,
) -> dict[str, Any]:
    """An object in a JSON file; ``parts`` are objects that it must hold, and what each must."""
    with reading(path, error, made_by):
        found = json.loads(text_of(Path(path).read_bytes()))
        if not isinstance(found, dict):
            raise TypeError(f"it holds a {type(found).__name__}, not an object")
        for part, names in (parts or {}).items():
            if not isinstance(found.get(part), dict):
                raise TypeError(f"it has no object {part!r}")
            if missing := [name for name in names if name not in found[part]]:
                raise TypeError(f"its {part!r} lacks {missing[0]!r}")
    return found


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object as JSON, wholly or not at all; what JSON has no form for becomes text."""
    write_atomic(path, f"{json.dumps(content, indent=2, default=str)}\n".encode())
