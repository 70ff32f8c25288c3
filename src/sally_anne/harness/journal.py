"""Answers kept item by item while they are given, so that a stopped run goes on where it was."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import reprlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from sally_anne.core.errors import HarnessError, StoreError
from sally_anne.core.files import reading, write_atomic
from sally_anne.core.processes import ALONE, Processes

# Values in messages: hashes of hundreds of stories are not for reading.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
# How a line ends that has a checksum; within a text of JSON these quotes would be escaped.
_SUM = re.compile(rb', "sha256": "([0-9a-f]{16})"}$')
_KEPT = "what was answered before is kept: make room and run again"


class Journal:
    """A file of JSON lines: what the run is, then one line an item.

    Each line ends with a checksum of itself. ``about`` is what must agree for answers to be taken
    over.

    Of several processes the first writes to the file itself and each of the others to one beside
    it (``answers.rank1.jsonl``), so that none is in another's way. All of them enter the journal
    and :meth:`gather`, in this order, which brings them together in the file; what a run leaves
    that is killed before is taken over by the next, with any number of processes. HarnessError if
    it is another run's (names what differs), or a line other than the last is damaged or altered.
    """

    def __init__(self, path: Path, about: dict[str, Any], processes: Processes = ALONE) -> None:
        self.path = path
        self.about = json.loads(json.dumps(about, default=str))
        self.processes = processes
        self.answers: dict[str, dict[str, Any]] = {}
        self._file: TextIO | None = None
        self._open = False
        self._own = path if processes.first else _beside(path, str(processes.rank))
        if processes.first:
            self.answers = self._read(path, repair=True) | self._of_others()

    def __enter__(self) -> Journal:
        with _writing(f"the run folder {self.path.parent}", "choose another --out", "made"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._open = True
        try:
            if self.processes.first:
                if _parts(self.path):
                    self._rewrite()
                self._begin()
            self._learn()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._close_file()
        self._open = False

    def add(self, answers: Iterable[dict[str, Any]]) -> None:
        """Keep answers, each with an ``item_id``; they are on disk when this returns."""
        new = list(answers)
        self._write(new)
        self.answers |= {a["item_id"]: a for a in new}

    def gather(self, order: Iterable[str]) -> None:
        """Bring the answers of all processes together: those of ``order`` first, then the others.

        The file is the same bytes then, whether one process wrote it or many, at once or in parts.
        """
        self._require_open()
        self._close_file()
        self.processes.wait()
        if self.processes.first:
            known = self.answers | self._of_others()
            first = {i: known[i] for i in dict.fromkeys(order) if i in known}
            self.answers = first | known
            self._rewrite()
            self._begin()
        self._learn()

    def _learn(self) -> None:
        """All know the answers that the first has written, before any is added."""
        self.processes.wait()
        if not self.processes.first:
            self.answers = self._read(self.path)
        self.processes.wait()

    def _begin(self) -> None:
        """Open the process's own file, which says first what the run is."""
        new = not self._own.exists()
        with _writing(self._own, "choose another --out"):
            self._file = self._own.open("a")
        if new:
            self._write([{"about": self.about}])

    def _close_file(self) -> None:
        if self._file is not None:
            # It writes what is left of a failed `add` once more, and fails again.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _require_open(self) -> None:
        if not self._open:
            raise HarnessError("the journal is not open")

    def _write(self, lines: Iterable[dict[str, Any]]) -> None:
        self._require_open()
        if self._file is None:
            self._begin()
        assert self._file is not None
        with _writing(self._own, _KEPT):
            self._file.write("".join(map(_line, lines)))
            self._file.flush()
            os.fsync(self._file.fileno())

    def _rewrite(self) -> None:
        """Write the file anew if it does not say just what is known; it is whole at any moment."""
        lines = [{"about": self.about}, *self.answers.values()]
        data = "".join(map(_line, lines)).encode()
        with _writing(self.path, _KEPT, "written anew"):
            if not (self.path.exists() and self.path.read_bytes() == data):
                write_atomic(self.path, data)
            for part in _parts(self.path):
                part.unlink()

    def _of_others(self) -> dict[str, dict[str, Any]]:
        return {name: a for part in _parts(self.path) for name, a in self._read(part).items()}

    def _read(self, path: Path, repair: bool = False) -> dict[str, dict[str, Any]]:
        """Answers in a file by item, if it is there; ``repair`` cuts off a torn last line."""
        if not path.exists():
            return {}
        with reading(path, HarnessError):
            data = path.read_bytes()
        *whole, rest = data.split(b"\n")
        if not whole:
            if repair:
                path.unlink()
            return {}
        records: list[dict[str, Any]] = []
        for number, line in enumerate(whole, start=1):
            try:
                if (found := _SUM.search(line)) is None:
                    raise ValueError("it has no checksum")
                text = line[: found.start()] + b"}"
                if _checksum(text).encode() != found[1]:
                    raise ValueError("its checksum does not fit")
                record = json.loads(text)
                record["item_id" if records else "about"]
            except (ValueError, KeyError, TypeError) as error:
                lost = "that line and run again: its item is asked again"
                raise HarnessError(
                    f"{path}, line {number} is damaged ({error}); delete "
                    f"{lost if records else 'the file and run again'}"
                ) from error
            records.append(record)
        if rest and repair:
            # The process died in the middle of a line.
            with path.open("r+b") as file:
                file.truncate(len(data) - len(rest))
        if other := _difference(records[0]["about"], self.about):
            name, there, here = other
            raise HarnessError(
                f"{path} holds another run: {name} is {_SHORT.repr(there)} there, "
                f"{_SHORT.repr(here)} here. Choose another --out"
            )
        return {r["item_id"]: r for r in records[1:]}


def fingerprint(parts: Iterable[object]) -> str:
    """SHA-256 of everything that is asked, part by part."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr(part).encode())
    return digest.hexdigest()


@contextmanager
def _writing(what: Path | str, advice: str, done: str = "written") -> Iterator[None]:
    """What the disk or the system refuses in the block, as an error that says what to do."""
    try:
        yield
    except (OSError, StoreError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise HarnessError(f"{what} cannot be {done} ({reason}); {advice}") from error


def _line(record: dict[str, Any]) -> str:
    """A record with its checksum, as it stands in the file."""
    text = json.dumps(record)
    return f'{text[:-1]}, "sha256": "{_checksum(text.encode())}"}}\n'


def _checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def _difference(there: dict[str, Any], here: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """Name and both values of the first part that differs; None where only one names it."""
    for name in here | there:
        one, two = there.get(name), here.get(name)
        if one == two:
            continue
        if isinstance(one, dict) and isinstance(two, dict) and (found := _difference(one, two)):
            return (f"{name}, {found[0]}", *found[1:])
        return name, one, two
    return None


def _beside(path: Path, rank: str) -> Path:
    return path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def _parts(path: Path) -> list[Path]:
    """The files of other processes, in the order of their ranks."""
    pattern = _beside(Path(glob.escape(path.name)), "*").name
    return sorted(path.parent.glob(pattern), key=lambda part: (len(part.name), part.name))
