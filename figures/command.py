"""What the commands of this room share: the options RUN and --out; parse, draw, print the paths."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

from sally_anne.core.commands import plain_errors, read_options


@dataclass(frozen=True)
class FigureConfig:
    """What every figure is asked: which run, and where to."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder, as `python -m probing.run` leaves it."""
    out: Path | None = field(default=None, kw_only=True)
    """Folder to write to; RUN/figures if not given."""

    @property
    def folder(self) -> Path:
        """Where the figure is written."""
        return self.out or self.run / "figures"


Config = TypeVar("Config", bound=FigureConfig)


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
    with plain_errors():
        paths = draw(read_options(config_type, f"python -m {name}", arguments))
    for path in paths:
        print(path)
