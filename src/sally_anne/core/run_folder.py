"""The folder that a command writes into: what it belongs to, and one run in it at a time.

``.lock`` says what kind of run it belongs to, and is locked as long as one writes, or lives. A
folder that holds anything else is somebody's work, and is left as it is.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

from sally_anne.core.errors import FolderError, SallyAnneError
from sally_anne.core.files import write_sealed
from sally_anne.core.processes import ALONE, Processes, here

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

P = ParamSpec("P")
Result = TypeVar("Result")

LOCK_NAME = ".lock"
# What every kind of run writes: how to repeat it, and what it found.
CONFIG, RESULTS = "config.json", "results.json"
# The packages that decide the numbers.
PACKAGES = ("sally-anne", "torch", "transformers", "scikit-learn", "numpy", "minigrid")

_MARK = "sally-anne: "
# Seconds that a killed run's own processes are given to end.
_PATIENCE = 1.0
# Of Windows' locks, which forbid reading as well: bytes beyond the end, below what it can count to.
_BEYOND, _BYTES = 1 << 30, 1 << 29
# To make a folder that other runs make and remove at the same moment.
_ATTEMPTS = 100


@dataclass(frozen=True)
class Kind:
    """What a folder can belong to: its name with its article, and patterns of paths.

    A folder without a line in ``.lock`` that holds one of them is of this kind, too: earlier
    versions wrote no such line, and vectors are given away.
    """

    name: str
    signs: tuple[str, ...]


PROBING = Kind("a probing run", ("activations/index.json", "probes.safetensors"))
SWEEP = Kind("a sweep", ("validation.jsonl", "sweep.parquet"))
LIMP = Kind("a LIMP run", ("episodes.jsonl",))
BIP_ALM = Kind("a BIP-ALM run", ())
EVALUATION = Kind("an evaluation", ("answers.jsonl",))
DISTRACTORS = Kind("a check of distractors", ("distractors.parquet", "answers.jsonl"))
COPILOT = Kind("a session of distractors", ("session.jsonl",))
FILMS = Kind("a ranking of films", ("scores.jsonl", "films.jsonl"))
TRANSCRIPTS = Kind("a transcription", ())
SIDE_EFFECTS = Kind("a measurement of side effects", ("side_effects.json", "*-plain/answers.jsonl"))
TABLE1 = Kind("a table 1", ("table1.json", "order?-*/validation.jsonl"))
TRANSFER = Kind("a transfer", ("transfer.parquet",))
VECTOR = Kind("a steering vector", ("vector.safetensors", ".vector.safetensors.tmp"))
PROBES = Kind("a set of probes", ("head_probes.safetensors", ".head_probes.safetensors.tmp"))
BUILD = Kind("a benchmark build", ("build.json",))
COMPARED = Kind("a comparison of evaluations", ("comparison.parquet",))
COMPARISON = Kind("a comparison of speed", ("table.md",))
TRAINING = Kind("a training of tiny models", ("decoder/loss.csv", "decoder/checkpoint.safetensors"))
PLANTING = Kind("a model with planted heads", ("difference.safetensors", "checkpoint.safetensors"))
LOCALISATION = Kind("a comparison of localisers", ("localisation.parquet",))

# What a folder is taken for; the first that fits. The last ones are never claimed.
_KNOWN = (
    *(SWEEP, LIMP, DISTRACTORS, EVALUATION, PROBING, SIDE_EFFECTS, TABLE1, TRANSFER, VECTOR),
    PROBES,
    *(BUILD, COMPARED, COMPARISON, TRAINING, PLANTING, LOCALISATION, COPILOT, FILMS, TRANSCRIPTS),
    Kind("a store of activations", ("index.json",)),
    Kind("a model", ("*model*.safetensors", "pytorch_model*.bin", "tokenizer*.json")),
)


def require_own(folder: Path, kind: Kind) -> None:
    """FolderError, without writing, unless ``folder`` is not there, empty, or of this kind."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.name != LOCK_NAME)
        said = (folder / LOCK_NAME).read_bytes() if (folder / LOCK_NAME).exists() else b""
    except FileNotFoundError:
        return
    except OSError as error:
        why = f"read ({error.strerror})"
        if isinstance(error, NotADirectoryError):
            why = "made: it is a file, or lies in one"
        raise FolderError(f"{folder} cannot be {why}; choose another --out") from error
    ours = _owner(said)
    if (not names and (ours or not said)) or said == _line(kind):
        return
    if not ours and not said.strip() and _fits(folder, kind):
        return
    found = kind_of(folder) or "other files"
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    raise FolderError(
        f"{folder} holds {found} ({shown or LOCK_NAME}), not {kind.name}; nothing was changed. "
        "Choose another --out"
    )


def kind_of(folder: Path) -> str | None:
    """The name of the kind of run that a folder is of, by its own line, or by what it holds."""
    path = folder / LOCK_NAME
    said = path.read_bytes() if path.is_file() else b""
    return _owner(said) or next((kind.name for kind in _KNOWN if _fits(folder, kind)), None)


@contextmanager
def claimed(
    folder: Path, kind: Kind, processes: Processes = ALONE, mark: bool = True
) -> Iterator[None]:
    """Hold ``folder`` for one run of this kind; it is made if it does not exist.

    Of several processes of a run the first holds it for all. A folder in which nothing was written
    in the end is as it was before. Without ``mark`` no line is left in it that says whose it is:
    ``.lock`` goes in the end, and the kind's signs must say it. FolderError as of
    :func:`require_own`, or where another run writes there, or it cannot be made.
    """
    if not processes.first:
        yield
        return
    require_own(folder, kind)
    new = not folder.exists()
    with _held(folder) as held:
        # Between the first look and the lock another run may have come.
        require_own(folder, kind)
        held.seek(0)
        if mark and held.read() != _line(kind):
            held.truncate(0)
            held.write(_line(kind))
            held.flush()
            os.fsync(held.fileno())
        try:
            yield
        finally:
            with suppress(OSError):
                if not mark or os.listdir(folder) == [LOCK_NAME]:
                    (folder / LOCK_NAME).unlink()
                if new:
                    folder.rmdir()  # only if it is empty


def claims(kind: Kind) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Of a function whose first argument is a config: it holds ``config.folder`` as it runs."""

    def decorated(run: Callable[P, Result]) -> Callable[P, Result]:
        @functools.wraps(run)
        def holding(*args: P.args, **kwargs: P.kwargs) -> Result:
            config: Any = args[0] if args else kwargs["config"]
            with claimed(config.folder, kind, here()):
                return run(*args, **kwargs)

        return holding

    return decorated


def save_config(folder: Path, options: Mapping[str, Any], **about: Any) -> None:
    """Write what ``--config FOLDER`` repeats a run by, with versions and what else is known."""
    write_sealed(folder / CONFIG, {"config": options, "versions": versions(), **about})


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the numbers."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def lock(file: IO[bytes], otherwise: SallyAnneError, shared: bool = False) -> IO[bytes]:
    """Lock an open file until it is closed, or raise ``otherwise``: somebody else holds it.

    The lock ends with the process, however it ends. What is ``shared`` keeps out only those who
    would have the file alone.
    """
    limit = time.monotonic() + _PATIENCE
    while True:
        try:
            _lock_now(file, shared)
            return file
        except (BlockingIOError, PermissionError) as error:
            if time.monotonic() < limit:
                time.sleep(0.02)
                continue
            file.close()
            raise otherwise from error


def _lock_now(file: IO[bytes], shared: bool) -> None:
    """BlockingIOError, or on Windows PermissionError, where somebody else holds it."""
    if fcntl is not None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return
    import msvcrt

    # Locks are never shared there: who shares takes a byte of its own, who would be alone all.
    first, count = (os.getpid() % _BYTES, 1) if shared else (0, _BYTES)
    before = file.tell()
    file.seek(_BEYOND + first)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, count)  # type: ignore[attr-defined]
    finally:
        file.seek(before)


def _line(kind: Kind) -> bytes:
    return f"{_MARK}{kind.name}\n".encode()


def _owner(said: bytes) -> str | None:
    """The kind that a ``.lock`` names; None where it names none."""
    line = said.decode(errors="replace")
    return line.removeprefix(_MARK).strip() if line.startswith(_MARK) else None


def _fits(folder: Path, kind: Kind) -> bool:
    return any(any(folder.glob(sign)) for sign in kind.signs)


def _held(folder: Path) -> IO[bytes]:
    """The folder's ``.lock``, locked until it is closed; folder and file are made."""
    path = folder / LOCK_NAME
    left = _ATTEMPTS
    while True:
        left -= 1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = open(path, "a+b")  # noqa: SIM115  # open as long as the folder is held
        except OSError as error:
            if left > 0 and isinstance(error, FileNotFoundError | FileExistsError):
                continue  # the run before has just removed an empty folder
            raise FolderError(
                f"{folder} cannot be made or written into ({error.strerror}); choose another --out"
            ) from error
        lock(
            file,
            FolderError(
                f"another run is writing to {folder}. Wait for it to end, or choose another --out"
            ),
        )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # it was removed while we waited
