"""Files, written and read: wholly or not at all, with our errors, and sealed by their SHA-256.

Writing: a file is there wholly or not at all, whenever the process dies.

Reading: what can go wrong comes out as one of our errors: missing, refused or damaged. Only what is
damaged is worth making again. A file that the system will not give (permissions, a disk, a folder
in its place) may hold hours of work.

Seals: a finished run's JSON vouches for itself and for the files beside it.

    write_sealed(folder / "results.json", {"config": ...}, ["answers.parquet"])

adds two entries: ``files``, the checksums of the files named, and ``sha256``, one of all other
entries. Whoever reads the JSON asks :func:`require_sealed`, and gets the files by :func:`intact`.
What has neither entry was written by an earlier version, or by hand, and is taken as it is.
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
