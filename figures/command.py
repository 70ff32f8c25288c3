"""What the commands of this room share: parse, draw, print the paths written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import tyro

from hooks.errors import SallyAnneError

Config = TypeVar("Config")


def run_command(
    config_type: type[Config],
    draw: Callable[[Config], list[Path]],
    arguments: Sequence[str] | None = None,
) -> None:
    """Read ``config_type`` from the command line, draw, print one path a line.

    Raises:
        SystemExit: status 1 with one line on stderr if the figure cannot be drawn, status 2
            if the arguments are wrong.
    """
    module = sys.modules[draw.__module__]
    spec = getattr(module, "__spec__", None)
    name = spec.name if spec else draw.__module__
    config = tyro.cli(config_type, prog=f"python -m {name}", args=arguments)
    try:
        paths = draw(config)
    except SallyAnneError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from error
    for path in paths:
        print(path)
