"""What the commands of long jobs share: options in, errors in one line, going on after a stop."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

Config = TypeVar("Config")


def run_command(
    config_type: type[Config],
    prog: str,
    run: Callable[[Config], object],
    expected: Callable[[], tuple[type[Exception], ...]],
    resumes: bool = True,
    together: bool = False,
) -> None:
    """Read ``config_type`` from the command line and carry it out.

    Args:
        config_type: the options; with ``resumes`` it has a ``folder``.
        prog: the command, as its help shows it.
        run: does the work.
        expected: gives the errors that are shown as one message; asked only once the options are
            read, so that ``--help`` loads nothing.
        resumes: whether the same command goes on after it was stopped.
        together: whether several processes of a launcher can share the work.

    Raises:
        SystemExit: the message of an expected error, or 130 if the user stopped it.
    """
    import tyro

    config = tyro.cli(config_type, prog=prog)
    from hooks.errors import SallyAnneError
    from hooks.processes import here

    try:
        processes = here()
    except SallyAnneError as error:
        sys.exit(f"error: {error}")
    if processes.count > 1 and not together:
        sys.exit(f"error: {prog} works in one process; start it without a launcher")
    try:
        run(config)
    except expected() as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        if resumes:
            folder = config.folder  # type: ignore[attr-defined]
            print(f"\nstopped; the same command goes on from {folder}", file=sys.stderr)
        sys.exit(130)


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
            name = "K" if option.name == "k" else option.name.replace("_", "-")
            words += [f"--{name}", str(value)]
    return shlex.join(words)
