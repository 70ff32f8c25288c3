"""What commands show while they work: text without tricks, bars, and lines where there are none."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich import console, progress
from rich.markup import escape
from rich.text import Text

from sally_anne.core.errors import SallyAnneError

# What moves the cursor, colours, or turns the direction of writing; all but tab and line feed.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Without a terminal: a line for each tenth, but not in a row, and after so long in any case.
_SOONEST, _LATEST, _SHARE = 5.0, 30.0, 0.1
# What counts nothing says after so long that it lives, and from then on as often as the others.
_FIRST = 10.0


def visible(text: object) -> str:
    """A text in which control characters are written as escapes, such as ``\\x1b``.

    Names, questions and replies come from files and models, and may hold what a terminal obeys.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


class Console(console.Console):
    """rich's console; what it is given as strings, in tables too, is shown as :func:`visible`."""

    def render_str(self, text: str, *arguments: Any, **named: Any) -> Text:
        """As rich's."""
        return super().render_str(visible(text), *arguments, **named)


class Bars(progress.Progress):
    """Bars of tasks; lines where the console is no terminal."""

    def __init__(self, where: console.Console) -> None:
        super().__init__(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=where,
            disable=not where.is_terminal,
        )
        # When the last line of each task came, and what share was done then.
        self._told: dict[progress.TaskID, tuple[float, float]] = {}

    def update(self, task_id: progress.TaskID, **fields: Any) -> None:  # type: ignore[override]
        """As rich's."""
        super().update(task_id, **fields)
        self._tell(task_id)

    def advance(self, task_id: progress.TaskID, advance: float = 1) -> None:
        """As rich's."""
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: progress.TaskID) -> None:
        task = self._tasks[task_id]
        if not self.disable or not task.total:
            return
        now, share = time.monotonic(), task.completed / task.total
        before, told = self._told.setdefault(task_id, (now, 0.0))
        waited = now - before
        due = (share - told > _SHARE - 1e-9 and waited >= _SOONEST) or waited >= _LATEST
        if due or (share >= 1 > told):
            self._told[task_id] = (now, share)
            done = f"{task.completed:.0f} of {task.total:.0f}"
            took = f"{task.elapsed or 0:.0f} s"
            line = f"{task.description}: {done} ({100 * share:.0f} %), {took}"
            self.console.print(line, soft_wrap=True)


@contextmanager
def stage(where: console.Console, what: str) -> Iterator[None]:
    """Say what goes on in the block, which counts nothing: by a spinner, or a line now and then."""
    if where.is_terminal:
        with where.status(escape(visible(what))):
            yield
        return
    where.print(f"{escape(what)} ...", soft_wrap=True)
    begun, done = time.monotonic(), threading.Event()

    def tell() -> None:
        pause = _FIRST
        while not done.wait(pause):
            where.print(f"{escape(what)}: {time.monotonic() - begun:.0f} s", soft_wrap=True)
            pause = _LATEST

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def quiet_libraries() -> None:
    """No bars of other libraries; called before they are imported. ``NAME=0`` shows them."""
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(name, "1")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors raised on purpose, and files that the system refuses, end the command in one line.

    Where nobody reads what is printed any more (``| head -1``), the work goes on in silence.
    """
    try:
        with _outliving("stdout"), _outliving("stderr"):
            yield
    except SallyAnneError as error:
        sys.exit(f"error: {visible(error)}")
    except OSError as error:
        # Without a file it is not the user's to mend.
        if error.filename is None:
            raise
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
        sys.exit("error: " + visible(f"{name}: {error.strerror}"))


@contextmanager
def _outliving(name: str) -> Iterator[None]:
    """Put a stream of ``sys`` that outlives its reader in place of the one there."""
    before = getattr(sys, name)
    if before is None:  # closed by the shell, >&-
        yield
        return
    ours = _Outliving(before)
    setattr(sys, name, ours)
    try:
        yield
    finally:
        ours.flush()
        if getattr(sys, name) is ours:
            setattr(sys, name, before)


class _Outliving:
    """A stream that swallows what it is given once its reader has gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            return self._swallow(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._swallow("")

    def _swallow(self, text: str) -> int:
        # What the stream still holds goes there as well, now or when Python ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        return len(text)
