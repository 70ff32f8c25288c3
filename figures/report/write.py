"""The page of one run, of whatever kind its folder is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sally_anne.core.errors import ChoiceError, MissingRunFileError
from sally_anne.core.run_folder import kind_of
from sally_anne.figures import all as pictures
from sally_anne.figures import correlations as answered
from sally_anne.figures import sweep as swept
from sally_anne.figures.report import evaluation, index, probing, sweep, tables
from sally_anne.figures.report.page import Page
from sally_anne.hooks.saved_run import HEADS, MADE_BY, Run

NAME = "report.html"


def write_report(folder: Path | str, out: Path | None = None) -> Path:
    """Write ``report.html`` of a finished run into its folder, or to ``out``; return its path.

    Raises:
        FigureError: the folder is not that of a finished run, or is damaged; names the file.
    """
    folder = Path(folder)
    return page_of(folder).write(out or folder / NAME)


def write_index(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page of each run, and one over all into the folder that they share, or to ``out``.

    Raises:
        FigureError: as :func:`write_report`, before anything is written.
    """
    pages = [(folder / NAME, page_of(folder)) for folder in dict.fromkeys(folders)]
    shared = Path(os.path.commonpath([folder.resolve().parent for folder in folders]))
    path = out or shared / NAME
    if path.resolve() in {own.resolve() for own, _ in pages}:
        raise ChoiceError(f"{path} is the page of one of these runs; give --out FILE")
    for own, page in pages:
        page.write(own)
    return index.page(pages, path.parent).write(path)


def page_of(folder: Path) -> Page:
    """The page of a run folder, by its kind or the tables that it holds."""
    if not folder.is_dir():
        raise MissingRunFileError(f"no run folder at {folder}; make one with `{MADE_BY}`")
    if form := tables.FORMS.get(kind_of(folder) or ""):
        return tables.page(folder, form)
    if (folder / HEADS).exists():
        return probing.page(Run.open(folder))
    if (folder / swept.TABLE).exists():
        return sweep.page(folder)
    if (folder / answered.TABLE).exists():
        return evaluation.page(folder)
    raise MissingRunFileError(
        f"{folder} holds no finished run: none of {HEADS} (`{MADE_BY}`), {swept.TABLE} "
        f"(`{swept.MADE_BY}`) and {answered.TABLE} (`{answered.MADE_BY}`)"
    )


def draw_run(folder: Path | str) -> list[Path]:
    """All figures of a finished probing run and its page, as `sally-anne probe` leaves them."""
    return [*pictures.draw_all(folder), write_report(folder)]
