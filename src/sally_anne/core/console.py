"""What commands show while they work: text without tricks, bars, and lines where there are none."""

from __future__ import annotations

import math
import os
import re
import select
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from html import escape as html
from importlib.util import find_spec
from typing import Any

from rich import console, progress
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sally_anne.core.errors import SallyAnneError

# What moves the cursor, colours, or turns the direction of writing; all but tab and line feed.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Seconds between two lines without a terminal, and columns there, unless COLUMNS says how many.
_PAUSE, _WIDTH = 30.0, 100


def visible(text: object) -> str:
    """A text of a file or model, with escapes (``\\x1b``) for what a terminal would obey."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def number(value: float | None, digits: int = 2) -> str:
    """A number, never minus zero; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    return f"{round(value, digits) + 0.0:.{digits}f}"


def many(count: int, what: str) -> str:
    """A count and what is counted, given in the plural: ``2 stories``, ``1 story``."""
    one = re.sub(r"s\b", "", re.sub(r"ies\b", "y", what))
    return f"{count} {one if count == 1 else what}"


class Console(console.Console):
    """rich's console; what it is given as strings, in tables too, is shown as :func:`visible`."""

    # Where bars and spinners are shown instead.
    work: Console | None = None

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        if not self.is_terminal and "width" not in named:
            self.width = shutil.get_terminal_size((_WIDTH, 0)).columns

    def render_str(self, text: str, *arguments: Any, **named: Any) -> Text:
        return super().render_str(visible(text), *arguments, **named)


def in_python() -> Console:
    """For calls in Python: prints nothing, and shows work in a terminal or notebook alone."""
    silent, seen = Console(quiet=True), Console(stderr=True)
    silent.work = seen if seen.is_jupyter or _moves(seen) else None
    return silent


def _moves(where: console.Console) -> bool:
    """Whether what is shown there can change: a terminal, or a notebook with widgets."""
    if where.is_jupyter:
        return find_spec("ipywidgets") is not None
    # A notebook's shell cell, which collects what is printed, asks for a terminal's colours.
    return where.is_terminal and where.file.isatty()


class Bars(progress.Progress):
    """Bars of tasks; where the console is no terminal, a line now and then and at the end."""

    def __init__(self, where: console.Console) -> None:
        where = getattr(where, "work", None) or where
        times = progress.TimeElapsedColumn(), progress.TimeRemainingColumn()
        shown = progress.BarColumn(), progress.MofNCompleteColumn(), *times
        super().__init__("{task.description}", *shown, console=where, disable=not _moves(where))
        # When each task's next line is due; never after its last.
        self._due: dict[progress.TaskID, float] = {}

    def update(self, task_id: progress.TaskID, **fields: Any) -> None:  # type: ignore[override]
        super().update(task_id, **fields)
        self._print(task_id)

    def advance(self, task_id: progress.TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._print(task_id)

    def _print(self, task_id: progress.TaskID) -> None:
        task, now = self._tasks[task_id], time.monotonic()
        if not self.disable or not task.total:
            return
        due, ended = self._due.setdefault(task_id, now + _PAUSE), task.completed >= task.total
        if now >= due or (ended and due != math.inf):
            self._due[task_id] = math.inf if ended else now + _PAUSE
            done = f"{task.completed:.0f} of {task.total:.0f}, {task.elapsed or 0:.0f} s"
            self.console.print(f"{task.description}: {done}", soft_wrap=True)


def percent(one: Mapping[str, Any], gap: str = " ", scale: float = 100, digits: int = 1) -> str:
    """A share and, where it has one, its interval, in %; with a sign if it is ``signed``."""
    ends = (one.get(end) for end in ("value", "low", "high"))
    value, low, high = (number(None if end is None else scale * end, digits) for end in ends)
    sign = "+" if one.get("signed") and value[0] not in "-–" else ""
    return f"{sign}{value}" + (f"{gap}[{low}, {high}]" if low != "–" else "")


def print_table(
    where: console.Console,
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    caption: str = "",
) -> None:
    """Rows of texts, numbers and estimates (in %); intervals below values where room is short."""
    rows = list(rows)

    def made(gap: str) -> Table:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for at, name in enumerate(columns):
            own = (row[at] for row in rows if at < len(row) and not isinstance(row[at], Mapping))
            # Numbers and short words are never broken.
            words = any(" " in text or len(text) > 24 for text in map(str, own))
            side: Any = "right" if at and not words else "left"
            table.add_column(escape(name), justify=side, overflow="fold", no_wrap=not words)
        for row in rows:
            cells = (percent(c, gap) if isinstance(c, Mapping) else str(c) for c in row)
            table.add_row(*map(escape, cells))
        return table

    table, unbounded = made(" "), where.options.update(max_width=10_000)
    fits = where.measure(table, options=unbounded).maximum <= where.width
    where.print(escape(title))
    where.print(table if fits else made("\n"))
    print_lines(where, filter(None, [caption]))


def print_lines(where: console.Console, lines: Iterable[str]) -> None:
    """Lines as they are, without rich's markup, whatever the width."""
    for line in lines:
        where.print(escape(line), soft_wrap=True)


@contextmanager
def counting(where: console.Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for the block, which says how much of how much is done."""
    with Bars(where) as bars:
        row = bars.add_task(escape(visible(what)), total=None)
        yield lambda done, total: bars.update(row, completed=done, total=total)


@contextmanager
def stage(where: console.Console, what: str) -> Iterator[None]:
    """Say what goes on in the block, which counts nothing: by a spinner, or a line."""
    where = getattr(where, "work", None) or where
    if _moves(where):
        with where.status(escape(visible(what))):
            yield
    else:
        where.print(f"{escape(what)} ...", soft_wrap=True)
        yield


class Shown:
    """What says in one line, or in a notebook's table, what it holds."""

    _shown: Callable[[], dict[str, object]]  # facts by their names

    def __repr__(self) -> str:
        facts = "; ".join(f"{name} {fact}" for name, fact in self._shown().items())
        return f"{type(self).__name__}: {visible(facts)}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html(name)}</th><td>{html(visible(fact))}</td></tr>"
            for name, fact in self._shown().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def tally(values: Iterable[object]) -> str:
    """How often each value is there, the commonest first."""
    counts, most = Counter(map(str, values)).most_common(), 6
    more = f" and {len(counts) - most} more" * (len(counts) > most)
    return ", ".join(f"{name} {count}" for name, count in counts[:most]) + more


@contextmanager
def plain_errors() -> Iterator[None]:
    """End the command in one line by our errors and files that the system refuses.

    It ends in silence where nobody reads what is printed any more (``| head -1``).
    """
    try:
        yield
        print(end="", flush=True)
    except SallyAnneError as error:
        sys.exit(f"error: {visible(error)}")
    except BrokenPipeError:
        unread = []
        with suppress(AttributeError, TypeError, OSError):  # no stream, no file, or Windows
            poll = select.poll()
            poll.register(sys.stdout, 0)
            unread = poll.poll(0)
        if not unread:  # a pipe to something else, as a worker
            raise
        # What Python still holds back goes nowhere, so that its end raises no second one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        # Without a file it is not the user's to mend.
        if error.filename is None:
            raise
        name = error.filename
        name = os.fsdecode(name) if isinstance(name, bytes) else name
        sys.exit("error: " + visible(f"{name}: {error.strerror}"))
