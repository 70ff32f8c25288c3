"""What the commands of this room share: the options RUN and --out; parse, draw, print the paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

from sally_anne.core.commands import command


@dataclass(frozen=True)
class FigureConfig:
    """What every figure is asked: which run, and where to."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder, as `sally-anne probe` leaves it."""
    out: Path | None = field(default=None, kw_only=True)
    """Folder to write to; RUN/figures if not given."""

    @property
    def folder(self) -> Path:
        """Where the figure is written."""
        return self.out or self.run / "figures"


Config = TypeVar("Config", bound=FigureConfig)


def figure_command(
    name: str, config_type: type[Config], draw: Callable[[Config], list[Path]]
) -> Callable[..., None]:
    """The ``main`` of ``sally-anne NAME``, which draws and prints the paths, one a line."""

    def run(config: Config) -> None:
        print(*draw(config), sep="\n")

    return command(f"sally-anne {name}", config_type, run, libraries=False)
