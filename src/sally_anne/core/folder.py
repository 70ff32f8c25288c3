"""The folder that a command writes into: whose it is, one run in it at a time, and its journals.

``run.json`` names the kind of run that a folder belongs to, ``config.json`` holds its options, and
``.lock`` is locked while a run writes. A folder that holds anything else is left as it is.
"""

from __future__ import annotations

import datetime
import functools
import glob
import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TextIO, TypeVar

from sally_anne.core.errors import FolderError, HarnessError, SallyAnneError, StoreError
from sally_anne.core.files import LOCK, TMP, locked, read_object, reading, write_atomic, write_json
from sally_anne.core.processes import ALONE, Processes, first_gpu, here

P = ParamSpec("P")
Result = TypeVar("Result")

RUN_FILE = "run.json"
# What every kind of run writes: how to repeat it, and its results.
CONFIG, RESULTS = "config.json", "results.json"
# The packages that decide the numbers.
PACKAGES = ("sally-anne", "torch", "transformers", "scikit-learn", "numpy", "minigrid")
# Seconds that a killed run's own processes are given to end.
_PATIENCE = 1.0
_KEPT = "what was answered before is kept: make room and run again"


def record_of(folder: Path) -> dict[str, Any]:
    """What a folder says of its run, if any: its ``kind`` (a sweep), the day it has ``begun``."""
    path = folder / RUN_FILE
    return read_object(path, FolderError, "sally-anne") if path.is_file() else {}


def require_own(folder: Path, kind: str, sign: str | None = None) -> None:
    """FolderError, without writing, unless ``folder`` is new, empty, or holds this kind of run.

    ``sign`` is a file that shows the kind as well, for what is given away without its run.
    """
    # A run that is killed as it writes its first file leaves that unfinished.
    ours = {LOCK, RUN_FILE, *(f".{first}{TMP}" for first in (RUN_FILE, sign) if first)}
    with _writing(folder, "choose another --out", "read or made", FolderError):
        try:
            names = sorted({path.name for path in folder.iterdir()} - ours)
        except FileNotFoundError:
            return
    there = record_of(folder).get("kind")
    if there == kind or (there is None and (not names or sign in names)):
        return
    shown = f"{there or 'files of another program'} ({', '.join(names[:3]) or RUN_FILE})"
    raise FolderError(f"{folder} holds {shown}, not {kind}: give another folder")


def make_own(folder: Path, kind: str, sign: str | None = None) -> None:
    """Make ``folder``, or take it as :func:`require_own` does; FolderError if it cannot be made."""
    require_own(folder, kind, sign)
    with _writing(folder, "choose another --out", "made", FolderError):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def claimed(
    folder: Path,
    kind: str,
    processes: Processes = ALONE,
    mark: bool = True,
    sign: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[None]:
    """Hold ``folder``, new or as of :func:`require_own`, for one run of this kind, or FolderError.

    Of several processes the first holds it for all. A folder in which nothing was written in the
    end is as it was before. Without ``mark`` nothing of the lock is left in it.
    """
    if not processes.first:
        yield
        return
    new = not folder.exists()
    make_own(folder, kind, sign)
    with _writing(folder, "choose another --out", "written into", FolderError):
        lock = locked(folder, FolderError, _PATIENCE)
    try:
        # Before the lock another run may have come.
        require_own(folder, kind, sign)
        if mark and not (folder / RUN_FILE).exists():
            begun = datetime.date.today().isoformat()
            write_json(
                folder / RUN_FILE, {"kind": kind, "begun": begun, **environment(options or {})}
            )
        yield
    finally:
        empty = {path.name for path in folder.iterdir()} <= {LOCK, RUN_FILE}
        with suppress(OSError):
            if empty:
                (folder / RUN_FILE).unlink(missing_ok=True)
            if empty or not mark:
                (folder / LOCK).unlink(missing_ok=True)
        lock.release()
        if empty and new:
            with suppress(OSError):
                folder.rmdir()


def claims(
    kind: str, sign: str | None = None
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """A function whose first argument is a config holds ``config.folder`` as it runs."""

    def decorated(run: Callable[P, Result]) -> Callable[P, Result]:
        @functools.wraps(run)
        def holding(*args: P.args, **kwargs: P.kwargs) -> Result:
            config: Any = args[0] if args else kwargs["config"]
            with claimed(config.folder, kind, here(), sign=sign, options=vars(config)):
                return run(*args, **kwargs)

        return holding

    return decorated


def save_config(folder: Path, options: Mapping[str, Any], loaded: Any = None, **about: Any) -> None:
    """Write what ``--config FOLDER`` repeats a run by, its environment and ``about`` it."""
    write_json(folder / CONFIG, {"config": options, **environment(options, loaded), **about})


def environment(options: Mapping[str, Any], loaded: Any = None) -> dict[str, Any]:
    """Versions, device and dtype: the loaded model's, or what the options mean before that."""
    found: dict[str, Any] = {"versions": {"python": platform.python_version()}}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found["versions"][package] = importlib.metadata.version(package)
    if loaded is not None:
        return found | {"device": loaded.place, "dtype": loaded.dtype}
    if "device" in options and not options.get("endpoint"):
        place = options["device"] or options.get("device_map") or first_gpu() or "cpu"
        found |= {"device": place, "dtype": options.get("dtype", "auto")}
    return found


class Journal:
    """Records kept one by one in a file of JSON lines, so that a stopped run continues there.

    The first line holds ``about``, what must agree for records to be taken over, else HarnessError
    names it; each other line a record with an ``item_id``. A torn last line is cut off. Processes
    but the first write to files of their own (``answers.rank1.jsonl``), which :meth:`gather`
    merges. What a killed run leaves is taken over by the next, with any number of processes.
    """

    def __init__(self, path: Path, about: dict[str, Any], processes: Processes = ALONE) -> None:
        self.path = path
        self.about = json.loads(json.dumps(about, default=str))
        self.processes = processes
        self._file: TextIO | None = None
        self.answers: dict[str, dict[str, Any]] = {}
        if processes.first:
            self.answers = self._read(path) | self._of_other_ranks()

    def __enter__(self) -> Journal:
        with _writing(f"the run folder {self.path.parent}", "choose another --out", "made"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self.gather(())
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # it writes what is left of a failed `add`, and fails again
                self._file.close()
            self._file = None

    def add(self, answers: Iterable[dict[str, Any]]) -> None:
        """Keep records, each with an ``item_id``; they are on disk when this returns."""
        new = {answer["item_id"]: answer for answer in answers}
        rank = self.processes.rank
        own = self.path.with_suffix(f".rank{rank}{self.path.suffix}") if rank else self.path
        lines = list(new.values())
        with _writing(own, _KEPT):
            if self._file is None:
                lines = lines if own.exists() else [{"about": self.about}, *lines]
                self._file = own.open("a", encoding="utf-8")
            self._file.write(_json_lines(lines))
            self._file.flush()
            os.fsync(self._file.fileno())
        self.answers |= new

    def gather(self, order: Iterable[str]) -> None:
        """Bring the records of all processes together, of ``order`` first: to the same bytes."""
        self.__exit__()
        self.processes.wait()
        if self.processes.first:
            known = self.answers | self._of_other_ranks()
            self.answers = {i: known[i] for i in dict.fromkeys(order) if i in known} | known
            data = _json_lines([{"about": self.about}, *self.answers.values()]).encode()
            with _writing(self.path, _KEPT, "written anew"):
                if not (self.path.exists() and self.path.read_bytes() == data):
                    write_atomic(self.path, data)
                for part in self._other_files():
                    part.unlink()
        self.processes.wait()
        if not self.processes.first:
            self.answers = self._read(self.path)
        self.processes.wait()

    def _other_files(self) -> list[Path]:
        """The files of other processes, in the order of their ranks."""
        pattern = f"{glob.escape(self.path.stem)}.rank*{self.path.suffix}"
        return sorted(self.path.parent.glob(pattern), key=lambda part: (len(part.name), part.name))

    def _of_other_ranks(self) -> dict[str, dict[str, Any]]:
        return {k: a for part in self._other_files() for k, a in self._read(part).items()}

    def _read(self, path: Path) -> dict[str, dict[str, Any]]:
        """Records in a file by item, but for a torn last line."""
        if not path.exists():
            return {}
        with reading(path, HarnessError):
            lines = path.read_bytes().split(b"\n")[:-1]
        records: list[dict[str, Any]] = []
        for number, line in enumerate(lines, start=1):
            try:
                records.append(json.loads(line))
                records[-1]["about" if number == 1 else "item_id"]
            except (ValueError, KeyError, TypeError) as error:
                again = f"({error}); delete {'the file' if number == 1 else 'it'} and run again"
                raise HarnessError(f"{path}, line {number} is damaged {again}") from error
        if records and (other := _difference(records[0]["about"], self.about)):
            raise HarnessError(f"{path} holds another run: {other}. Choose another --out")
        return {r["item_id"]: r for r in records[1:]}


def fingerprint(parts: Iterable[object]) -> str:
    """SHA-256 of everything that is asked, part by part."""
    return hashlib.sha256("".join(map(repr, parts)).encode()).hexdigest()


@contextmanager
def _writing(
    what: Path | str, advice: str, done: str = "written", kind: type[SallyAnneError] = HarnessError
) -> Iterator[None]:
    """What the system refuses in the block, as an error that says what to do."""
    try:
        yield
    except (OSError, StoreError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise kind(f"{what} cannot be {done} ({reason}); {advice}") from error


def _difference(there: dict[str, Any], here: dict[str, Any]) -> str:
    """The first part that differs, with both values; None where only one names it."""
    for name in here | there:
        one, two = there.get(name), here.get(name)
        if isinstance(one, dict) and isinstance(two, dict) and (inner := _difference(one, two)):
            return f"{name}, {inner}"
        if one != two:
            return f"{name} is {repr(one)[:80]} there, {repr(two)[:80]} here"
    return ""


def _json_lines(records: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)
