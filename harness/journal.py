"""Answers kept item by item while they are given, so that a stopped run goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from harness.errors import HarnessError


class Journal:
    """A file of JSON lines: what the run is, then one line an item.

    Args:
        path: the file; it is made if it does not exist.
        about: what must agree for answers to be taken over.

    Raises:
        HarnessError: the file belongs to another run (names what differs and both values), or a
            line other than the last is damaged.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path = path
        self.about = json.loads(json.dumps(about, default=str))
        self.answers: dict[str, dict[str, Any]] = {}
        self._file: TextIO | None = None
        if path.exists():
            self._read()

    def __enter__(self) -> Journal:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HarnessError(
                f"the run folder {self.path.parent} cannot be made ({error.strerror}); choose "
                "another --out"
            ) from error
        new = not self.path.exists()
        try:
            self._file = self.path.open("a")
        except OSError as error:
            raise HarnessError(
                f"{self.path} cannot be written ({error.strerror}); choose another --out"
            ) from error
        if new:
            try:
                self._write([{"about": self.about}])
            except HarnessError:
                self._close()
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def add(self, answers: Iterable[dict[str, Any]]) -> None:
        """Keep answers; each has an ``item_id``. They are on disk when this returns.

        Raises:
            HarnessError: the journal is not open, or the disk is full.
        """
        new = list(answers)
        self._write(new)
        self.answers |= {a["item_id"]: a for a in new}

    def _close(self) -> None:
        if self._file is not None:
            # It writes what is left of a failed `add` once more, and fails again.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _write(self, lines: Iterable[dict[str, Any]]) -> None:
        if self._file is None:
            raise HarnessError("the journal is not open")
        try:
            self._file.write("".join(json.dumps(line) + "\n" for line in lines))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise HarnessError(
                f"{self.path} cannot be written ({error.strerror}); what was answered before is "
                "kept: make room and run again"
            ) from error

    def _read(self) -> None:
        data = self.path.read_bytes()
        *whole, rest = data.split(b"\n")
        if not whole:
            self.path.unlink()
            return
        records: list[dict[str, Any]] = []
        for number, line in enumerate(whole, start=1):
            try:
                record = json.loads(line)
                record["item_id" if records else "about"]
            except (ValueError, KeyError, TypeError) as error:
                raise HarnessError(
                    f"{self.path}, line {number} is damaged ({error}); delete the file and run "
                    "again"
                ) from error
            records.append(record)
        if rest:
            # The process died in the middle of a line.
            with self.path.open("r+b") as file:
                file.truncate(len(data) - len(rest))
        about = records[0]["about"]
        for name, value in self.about.items():
            if about.get(name) != value:
                raise HarnessError(
                    f"{self.path} holds another run: {name} is {about.get(name)!r} there, "
                    f"{value!r} here. Choose another --out"
                )
        self.answers = {r["item_id"]: r for r in records[1:]}
