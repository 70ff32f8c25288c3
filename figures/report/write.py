"""The page of one run, of whatever kind its folder is."""

from __future__ import annotations

from pathlib import Path

from figures import all as pictures
from figures.report import probing
from hooks.saved_run import Run

NAME = "report.html"


def write_report(folder: Path | str, out: Path | None = None) -> Path:
    """Write ``report.html`` of a finished run into its folder, or to ``out``; return its path.

    Raises:
        FigureError: the folder is not that of a finished run, or is damaged; names the file.
    """
    folder = Path(folder)
    return probing.page(Run.open(folder)).write(out or folder / NAME)


def draw_run(folder: Path | str) -> list[Path]:
    """All figures of a finished probing run and its page, as `sally-anne probe` leaves them."""
    return [*pictures.draw_all(folder), write_report(folder)]
