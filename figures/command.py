"""What the commands of this room share: the options RUN and --out; parse, draw, print the paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import tyro

from sally_anne.core.console import plain_errors
from sally_anne.core.errors import MissingRunFileError
from sally_anne.core.options import read_options
from sally_anne.core.run_folder import RESULTS
from sally_anne.hooks.saved_run import read_table, saved_results

if TYPE_CHECKING:
    import pandas as pd


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

    def main(words: Sequence[str] | None = None) -> None:
        with plain_errors():
            print(*draw(read_options(config_type, f"sally-anne {name}", words)), sep="\n")

    return main


def file_name(kind: str, *choices: tuple[str | None, str | None]) -> str:
    """A figure's file without suffix: its kind, and each of ``choices`` that is not its default."""
    return "_".join([kind, *(made for made, default in choices if made not in (None, default))])


def run_table(folder: Path, name: str, made_by: str, what: str = "run") -> pd.DataFrame:
    """The table ``name`` of a run of the command ``made_by``; raises as :func:`read_table`."""
    if not folder.is_dir():
        raise MissingRunFileError(f"no {what} folder at {folder}; make one with `{made_by}`")
    return read_table(folder / name, RESULTS, made_by)


def run_title(folder: Path, made_by: str, words: Sequence[str]) -> list[str]:
    """Whose run it is: its model, and those of ``words`` that are known; empty without results."""
    saved = saved_results(folder / RESULTS, made_by)
    if saved is None:
        return []
    # Views and windows that were not chosen are the benchmark's own, which `about` tells.
    about = saved["about"] if isinstance(saved.get("about"), dict) else {}
    known = saved["config"] | {word: about[word] for word in ("view", "window") if word in about}
    parts = [str(known["model"])] if known.get("model") else []
    return parts + [f"{word} {known[word]}" for word in words if known.get(word) is not None]
