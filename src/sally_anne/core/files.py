"""Files, written and read: wholly or not at all, with our errors, and sealed by their SHA-256.

A sealed JSON has ``files``, checksums of files beside it, and ``sha256``, that of its other
entries. One that has neither is of an earlier version, or by hand, and is taken as it is.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sally_anne.core.errors import AlteredError, SallyAnneError, StoreError

FILES, SEAL = "files", "sha256"

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_TMP = ".tmp"


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` by way of a temporary file beside it; a StoreError if the disk is full."""
    tmp = path.with_name(f".{path.name}{_TMP}")
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
        raise StoreError(
            f"no space left while writing {path}: it needs {len(data):,} bytes, {free:,} are free. "
            "Everything stored before is kept; make room and run again to go on."
        ) from error


def remove_leftovers(folder: Path, patterns: Iterable[str]) -> None:
    """Remove what a killed `write_atomic` of such files left; no other process may write there."""
    for pattern in patterns:
        for tmp in folder.glob(f".{pattern}{_TMP}"):
            tmp.unlink()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def reading(
    path: Path | str,
    error: type[SallyAnneError],
    made_by: str | None = None,
    damaged: type[SallyAnneError] | None = None,
) -> Iterator[None]:
    """Read and take apart one file in the block; whatever a library raises there is ours outside.

    Each library has errors of its own for bytes that it cannot make sense of, so everything in the
    block is taken for that: keep other work out of it. Our own errors pass. What is raised is an
    `error`, or `damaged` where the file can be read and makes no sense; `made_by` is the command
    that writes it, None for a file of the user's own.
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
        said = (str(fault).strip().splitlines() or [type(fault).__name__])[0]
        again = f"; delete it and run `{made_by}` again" if made_by else ""
        raise (damaged or error)(
            f"{path} is damaged or another kind of file ({said}){again}"
        ) from fault


def read_object(
    path: Path | str,
    error: type[SallyAnneError],
    made_by: str,
    parts: dict[str, tuple[str, ...]] | None = None,
) -> dict[str, Any]:
    """An object in a JSON file, read as by :func:`reading`.

    ``parts`` are names of objects that it must hold, and what each of those must.
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


def write_sealed(path: Path, content: Mapping[str, Any], files: Iterable[str] = ()) -> None:
    """Write ``content`` as JSON, with checksums of itself and of ``files``, seen from its folder.

    ``content`` may hold what was added before; files that are known there are not read again.
    """
    known = dict(content.get(FILES, {}))
    known |= {name: file_sha256(path.parent / name) for name in files if name not in known}
    bare = {name: value for name, value in content.items() if name not in (FILES, SEAL)}
    body = json.loads(json.dumps({**bare, FILES: known}, default=str))
    text = json.dumps(body | {SEAL: _digest(body)}, indent=2)
    write_atomic(path, f"{text}\n".encode())


def require_sealed(path: Path, content: Any, again: str) -> None:
    """AlteredError, with how to make it ``again``, if ``content`` is not what ``path`` was."""
    if not isinstance(content, dict) or not {FILES, SEAL} & set(content):
        return
    body = {name: value for name, value in content.items() if name != SEAL}
    if content.get(SEAL) != _digest(body) or not isinstance(content.get(FILES), dict):
        raise AlteredError(f"{path} is altered: its checksum does not fit what it says. {again}")


def intact(folder: Path, name: str, sealed: Mapping[str, Any], again: str) -> bytes:
    """The contents of a file that ``sealed``, the JSON of its folder, vouches for.

    AlteredError if it is not the one written with that JSON, StoreError if it cannot be read.
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
