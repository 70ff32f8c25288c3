"""What every command does alike: options in and checked, expected errors out as one line."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, NoReturn, TextIO, TypeVar

from sally_anne.core.errors import OptionError, SallyAnneError

Config = TypeVar("Config")

# A whole number is a count and at least 1, but for these.
_LEAST = dict.fromkeys(
    ("layer", "head", "sensitive", "insensitive", "permutations", "memory_repeats"), 0
)
# A decimal number is finite; these are more than that.
_POSITIVE = ("c",)
_SEEDS = 2**32  # what NumPy and scikit-learn take


def read_options(
    config_type: type[Config], prog: str, arguments: Sequence[str] | None = None
) -> Config:
    """The options of a command, each in its range.

    Args:
        config_type: a dataclass of options; its docstring makes the help.
        prog: the command, as its help shows it.
        arguments: those of the command line by default.

    Raises:
        OptionError: a number is out of its range; names the option.
        SystemExit: status 2 if the words are wrong, 0 after ``--help``.
    """
    import tyro

    config = tyro.cli(config_type, prog=prog, args=arguments)
    check_options(config)
    return config


def check_options(config: Any) -> None:
    """Check the numbers among options, those in tuples as well.

    Raises:
        OptionError: one is out of its range; names the option.
    """
    for field in fields(config):
        value = getattr(config, field.name)
        for number in value if isinstance(value, tuple) else (value,):
            wrong = _wrong(field.name, number)
            if wrong is not None:
                raise OptionError(f"{spelled(field.name)} must be {wrong}, got {number}")


def spelled(name: str) -> str:
    """An option as it stands on the command line."""
    return "--K" if name == "k" else f"--{name.replace('_', '-')}"


def _wrong(name: str, number: Any) -> str | None:
    """What a number should be and is not."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    if isinstance(number, float):
        if not math.isfinite(number):
            return "finite"
        return "positive" if name in _POSITIVE and number <= 0 else None
    if name.endswith("seed"):
        return None if 0 <= number < _SEEDS else f"from 0 to {_SEEDS - 1}"
    if name == "alpha":
        return None
    least = _LEAST.get(name, 0 if name.endswith("_steps") else 1)
    return f"at least {least}" if number < least else None


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors raised on purpose, and files that the system refuses, end the command in one line.

    Where nobody reads what is printed any more (``| head -1``), the work goes on in silence.

    Raises:
        SystemExit: the message, status 1.
    """
    try:
        with _outliving("stdout"), _outliving("stderr"):
            yield
    except SallyAnneError as error:
        sys.exit(_line(error))
    except OSError as error:
        # Without a file it is not the user's to mend.
        if error.filename is None:
            raise
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
        sys.exit(_line(f"{name}: {error.strerror}"))


def _line(problem: object) -> str:
    """Names in it come from files and models, and may hold what a terminal obeys."""
    from sally_anne.core.console import visible

    return f"error: {visible(problem)}"


def no_command(instead: str) -> NoReturn:
    """Say what to run, where somebody runs a module that does nothing by itself.

    Raises:
        SystemExit: always, status 1.
    """
    sys.exit(f"error: this module is no command; run python -m {instead}")


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
