"""What the commands of long jobs share: options in, errors in one line, going on after a stop."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from sally_anne.core.commands import plain_errors, read_options, spelled
from sally_anne.core.processes import ProcessError, here

Config = TypeVar("Config")


def run_command(
    config_type: type[Config],
    prog: str,
    run: Callable[[Config], object],
    resumes: bool = True,
    together: bool = False,
) -> None:
    """Read ``config_type`` from the command line and carry it out.

    Args:
        config_type: the options; with ``resumes`` it has a ``folder``.
        prog: the command, as its help shows it.
        run: does the work.
        resumes: whether the same command goes on after it was stopped.
        together: whether several processes of a launcher can share the work.

    Raises:
        SystemExit: the message of an expected error, or 130 if the user stopped it.
    """
    with plain_errors():
        config = read_options(config_type, prog)
        if here().count > 1 and not together:
            raise ProcessError(f"{prog} works in one process; start it without a launcher")
    _load_libraries()
    try:
        with plain_errors():
            run(config)
    except KeyboardInterrupt:
        if resumes:
            folder = config.folder  # type: ignore[attr-defined]
            print(f"\nstopped; the same command goes on from {folder}", file=sys.stderr)
        sys.exit(130)


def _load_libraries() -> None:
    """Load what takes seconds, and say so on a terminal.

    In a file it would be one more line beside that of an error.
    """
    from sally_anne.core.console import Console, quiet_libraries, stage

    quiet_libraries()
    seen = here().first and sys.stderr.isatty()
    with stage(Console(stderr=True, quiet=not seen), "loading libraries"):
        import torch  # noqa: F401
        import transformers  # noqa: F401


def command_line(module: str, config: Any) -> str:
    """The command that carries out ``config``, to be copied: its model, and what is no default.

    Args:
        module: as in ``python -m``.
        config: the options; those that are set are single words or numbers.
    """
    words = ["python", "-m", module]
    for option in fields(config):
        value = getattr(config, option.name)
        if option.name == "model" or value != option.default:
            words += [spelled(option.name), str(value)]
    return shlex.join(words)
