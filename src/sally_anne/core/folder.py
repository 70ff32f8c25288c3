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

KIND = "run.json"
# What every kind of run writes: how to repeat it, and its results.
CONFIG, RESULTS = "config.json", "results.json"
# The packages that decide the numbers.
PACKAGES = ("sally-anne", "torch", "transformers", "scikit-learn", "numpy", "minigrid")
# Seconds that a killed run's own processes are given to end.
_PATIENCE = 1.0
_KEPT = "what was answered before is kept: make room and run again"


def kind_of(folder: Path) -> str | None:
    """The kind of run that a folder says it holds, such as ``a sweep``."""
    return _record(folder).get("kind")


def begun(folder: Path) -> str:
    """The day on which a folder's run began, as ``2026-01-31``; today where there is none yet."""
    return str(_record(folder).get("begun") or datetime.date.today())


def _record(folder: Path) -> dict[str, Any]:
    path = folder / KIND
    return read_object(path, FolderError, "sally-anne") if path.is_file() else {}


def require_own(folder: Path, kind: str, sign: str | None = None) -> None:
    """FolderError, without writing, unless ``folder`` is new, empty, or holds this kind of run.

    ``sign`` is a file that shows the kind as well, for what is given away without its run.
    """
    # A run that is killed as it writes its first file leaves that unfinished.
    ours = {LOCK, KIND, *(f".{first}{TMP}" for first in (KIND, sign) if first)}
    try:
        names = sorted({path.name for path in folder.iterdir()} - ours)
    except FileNotFoundError:
        return
    except OSError as error:
        why = f"{folder} cannot be read or made ({error.strerror})"
        raise FolderError(f"{why}; choose another --out") from error
    there = kind_of(folder)
    if there == kind or (there is None and (not names or sign in names)):
        return
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    raise FolderError(
        f"{folder} holds {there or 'files of an earlier version or of another program'} "
        f"({shown or KIND}), not {kind}; nothing was changed. Give another folder"
    )


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
    """Hold ``folder`` for one run of this kind; it is made if it does not exist.

    Of several processes the first holds it for all. A folder in which nothing was written in the
    end is as it was before. Without ``mark`` nothing of the lock is left in it.

    Raises:
        FolderError: as :func:`require_own`, or another run writes there, or it cannot be made.
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
        if mark and not (folder / KIND).exists():
            begun = datetime.date.today().isoformat()
            write_json(folder / KIND, {"kind": kind, "begun": begun, **environment(options or {})})
        yield
    finally:
        empty = {path.name for path in folder.iterdir()} <= {LOCK, KIND}
        with suppress(OSError):
            if empty:
                (folder / KIND).unlink(missing_ok=True)
            if empty or not mark:
                (folder / LOCK).unlink(missing_ok=True)
        lock.release()
        if empty and new:
            with suppress(OSError):
                folder.rmdir()


def claims(
    kind: str, sign: str | None = None
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Of a function whose first argument is a config: it holds ``config.folder`` as it runs."""

    def decorated(run: Callable[P, Result]) -> Callable[P, Result]:
        @functools.wraps(run)
        def holding(*args: P.args, **kwargs: P.kwargs) -> Result:
            config: Any = args[0] if args else kwargs["config"]
            with claimed(config.folder, kind, here(), sign=sign, options=vars(config)):
                return run(*args, **kwargs)

        return holding

    return decorated


def save_config(folder: Path, options: Mapping[str, Any], loaded: Any = None, **about: Any) -> None:
    """Write what ``--config FOLDER`` repeats a run by, its environment and what else is known."""
    write_json(folder / CONFIG, {"config": options, **environment(options, loaded), **about})


def environment(options: Mapping[str, Any], loaded: Any = None) -> dict[str, Any]:
    """What numbers depend on besides what was asked: versions, and a model's device and dtype.

    These are the loaded model's, or what the options mean here before it is loaded.
    """
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

    The first line holds ``about``, what must agree for records to be taken over; each other line a
    record with an ``item_id``. A torn last line is cut off. Of several processes the first writes
    to the file itself and each other to one next to it (``answers.rank1.jsonl``); all of them
    enter the journal and :meth:`gather`, which merges them. What a killed run leaves is taken over
    by the next, with any number of processes.

    Raises:
        HarnessError: it is another run's (names what differs), or another line is damaged.
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
            # It writes what is left of a failed `add` once more, and fails again.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def add(self, answers: Iterable[dict[str, Any]]) -> None:
        """Keep records, each with an ``item_id``; they are on disk when this returns."""
        new = {answer["item_id"]: answer for answer in answers}
        rank = self.processes.rank
        own = _rank_file(self.path, str(rank)) if rank else self.path
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
        """Bring the records of all processes together: those of ``order`` first, then the others.

        The file is the same bytes then, whether one process wrote it or many, at once or in parts.
        """
        self.__exit__()
        self.processes.wait()
        if self.processes.first:
            known = self.answers | self._of_other_ranks()
            self.answers = {i: known[i] for i in dict.fromkeys(order) if i in known} | known
            data = _json_lines([{"about": self.about}, *self.answers.values()]).encode()
            with _writing(self.path, _KEPT, "written anew"):
                if not (self.path.exists() and self.path.read_bytes() == data):
                    write_atomic(self.path, data)
                for part in _rank_files(self.path):
                    part.unlink()
        self.processes.wait()
        if not self.processes.first:
            self.answers = self._read(self.path)
        self.processes.wait()

    def _of_other_ranks(self) -> dict[str, dict[str, Any]]:
        return {name: a for part in _rank_files(self.path) for name, a in self._read(part).items()}

    def _read(self, path: Path) -> dict[str, dict[str, Any]]:
        """Records in a file by item, if it is there, but for a torn last line."""
        if not path.exists():
            return {}
        with reading(path, HarnessError):
            lines = path.read_bytes().split(b"\n")[:-1]
        records: list[dict[str, Any]] = []
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                record["item_id" if records else "about"]
            except (ValueError, KeyError, TypeError) as error:
                again = "that line and run again: its item is asked again"
                raise HarnessError(
                    f"{path}, line {number} is damaged ({error}); delete "
                    f"{again if records else 'the file and run again'}"
                ) from error
            records.append(record)
        if records and (other := _difference(records[0]["about"], self.about)):
            name, there, own = other[0], *(repr(part)[:80] for part in other[1:])
            what = f"{name} is {there} there, {own} here"
            raise HarnessError(f"{path} holds another run: {what}. Choose another --out")
        return {r["item_id"]: r for r in records[1:]}


def fingerprint(parts: Iterable[object]) -> str:
    """SHA-256 of everything that is asked, part by part."""
    return hashlib.sha256("".join(map(repr, parts)).encode()).hexdigest()


@contextmanager
def _writing(
    what: Path | str, advice: str, done: str = "written", kind: type[SallyAnneError] = HarnessError
) -> Iterator[None]:
    """What the disk or the system refuses in the block, as an error that says what to do."""
    try:
        yield
    except (OSError, StoreError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise kind(f"{what} cannot be {done} ({reason}); {advice}") from error


def _difference(there: dict[str, Any], here: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """Name and both values of the first part that differs; None where only one names it."""
    for name in here | there:
        one, two = there.get(name), here.get(name)
        if one == two:
            continue
        if isinstance(one, dict) and isinstance(two, dict) and (inner := _difference(one, two)):
            return (f"{name}, {inner[0]}", *inner[1:])
        return name, one, two
    return None


def _json_lines(records: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def _rank_file(path: Path, rank: str) -> Path:
    return path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def _rank_files(path: Path) -> list[Path]:
    """The files of other processes, in the order of their ranks."""
    pattern = _rank_file(Path(glob.escape(path.name)), "*").name
    return sorted(path.parent.glob(pattern), key=lambda part: (len(part.name), part.name))
