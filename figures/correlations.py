"""How accuracies in two kinds of questions go together: figure 9 of the MimeQA paper.

A cell is Pearson's correlation over the films that have both kinds, with their number, bold where
the 95 % interval, a bootstrap over films, leaves out zero. The scale is symmetric around zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
import tyro

from sally_anne.core.errors import ChoiceError, HarnessError, RunFolderError
from sally_anne.figures import style
from sally_anne.figures.command import FigureConfig, figure_command, file_name, run_table, run_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MADE_BY = "sally-anne evaluate"
TABLE = "answers.parquet"
TITLE_WORDS = ("task", "view", "window", "steer", "alpha")
READERS = ("judge", "robust", "official", "options")
SMALLEST_LIMIT = 0.3
NUMBERS_UP_TO = 8  # numbers are written in the cells up to so many columns
LEGEND = ("n: films with both", "bold: the 95 % interval leaves out 0")
VALUELESS = "grey: no value"


@dataclass(frozen=True)
class CorrelationsConfig(FigureConfig):
    """Draw the correlations of accuracies between kinds of questions, over films."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder, as `sally-anne evaluate` leaves it."""
    reader: str | None = None
    """Who read the answers, e.g. judge or robust; by default the first of those that did."""
    tag: str = "category"
    """Kind of tag whose values are compared."""


def draw(config: CorrelationsConfig) -> list[Path]:
    """Draw and save the figure; return the paths written."""
    from sally_anne.harness.correlations import category_correlations

    answers = read_answers(config.run)
    reader = choose_reader(answers, config.reader, config.run / TABLE)
    if f"tag_{config.tag}" not in answers:
        there = [str(c).removeprefix("tag_") for c in answers if str(c).startswith("tag_")]
        raise ChoiceError(
            f"{config.run / TABLE} has no tag {config.tag!r} (tags: {', '.join(there) or 'none'})"
        )
    try:
        table = category_correlations(answers, reader, config.tag)
    except HarnessError as error:
        raise RunFolderError(f"{config.run / TABLE}: {error}") from error
    title = [*read_title(config.run), f"answers read by {reader}"]
    name = file_name("correlations", (config.reader, None), (config.tag, "category"))
    with style.look():
        figure = correlations_figure(table, title, config.tag)
        return style.save(figure, config.folder, name, table)


def read_answers(folder: Path) -> pd.DataFrame:
    """The answers of an evaluation; raises RunFolderError if there are none."""
    table = run_table(folder, TABLE, MADE_BY)
    if table.empty:
        raise RunFolderError(f"{folder / TABLE} has no rows")
    return table


def choose_reader(answers: pd.DataFrame, wanted: str | None, path: Path) -> str:
    """Whose reading is shown; ChoiceError if nobody, or not the one wanted, has read them."""
    columns = [str(column) for column in answers]
    there = [c.removesuffix("_correct") for c in columns if c.endswith("_correct")]
    if not there:
        raise ChoiceError(
            f"{path} holds answers that nobody has read; run `{MADE_BY}` with --judge"
        )
    if wanted is None:
        return next((reader for reader in READERS if reader in there), there[0])
    if wanted not in there:
        raise ChoiceError(f"{path}: not read by {wanted!r} (readers: {', '.join(there)})")
    return wanted


def read_title(folder: Path) -> list[str]:
    """Whose answers they are: model, task, view; empty without ``results.json``."""
    return run_title(folder, MADE_BY, TITLE_WORDS)


def limit_of(table: pd.DataFrame) -> float:
    """End of the colour scale: the tenth above the strongest correlation, at least 0.3."""
    strongest = float(table["correlation"].abs().max())
    if not math.isfinite(strongest):
        return SMALLEST_LIMIT
    return max(SMALLEST_LIMIT, min(1.0, math.ceil(round(10 * strongest, 6)) / 10))


def correlations_figure(table: pd.DataFrame, title: Sequence[str], tag: str = "category") -> Figure:
    """The lower triangle of the matrix. ``table`` has one row a pair."""
    names = list(dict.fromkeys([*table["first"], *table["second"]]))
    columns, rows = names[:-1], names[1:]
    # Inches; one or two cells are large, so that the bar's words fit beside them.
    cell = max(0.62, 1.6 / len(columns)) if len(columns) <= NUMBERS_UP_TO else 5.0 / len(columns)
    longest = max(style.text_width(name, 8.0) for name in names) / 72
    width = max(longest + cell * len(columns) + 1.8, 4.6)
    lines = len(style.heading_lines(title, width)) + 1
    height = 0.72 * longest + cell * len(rows) + 0.16 * lines + 0.7
    figure = style.new_figure(width, height)
    axis = figure.subplots()
    limit = limit_of(table)
    mesh = _draw_cells(axis, table, columns, rows, limit)
    axis.set_xticks(
        range(len(columns)), labels=columns, rotation=40, ha="right", rotation_mode="anchor"
    )
    axis.set_yticks(range(len(rows)), labels=rows)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    bar = figure.colorbar(mesh, ax=axis, fraction=0.05, pad=0.03)
    bar.set_label("Pearson's correlation\nover films")
    marks = [-limit, -limit / 2, 0.0, limit / 2, limit]
    bar.set_ticks(marks, labels=[_number(mark) for mark in marks])
    notes = [*LEGEND] if len(columns) <= NUMBERS_UP_TO else []
    notes += [VALUELESS] if table["correlation"].isna().any() else []
    if notes:
        legend = "\n".join(style.wrap(notes, 72 * (width - 0.3), 7.5))
        figure.supxlabel(legend, fontsize=7.5, color="0.3")
    style.heading(figure, title, f"Accuracy in one {tag} against accuracy in another")
    return figure


def _draw_cells(
    axis: Axes, table: pd.DataFrame, columns: Sequence[str], rows: Sequence[str], limit: float
) -> Any:
    from matplotlib.patches import Rectangle

    cells = np.full((len(rows), len(columns)), np.nan)
    for pair in table.itertuples(index=False):
        cells[rows.index(pair.second), columns.index(pair.first)] = pair.correlation
    mesh = style.cells(axis, cells, style.DIVERGING + "_r", (-limit, limit), 0.8)
    axis.set_aspect("equal")
    few = len(columns) <= NUMBERS_UP_TO
    for pair in table.itertuples(index=False):
        column, row = columns.index(pair.first), rows.index(pair.second)
        valued = math.isfinite(pair.correlation)
        if not valued:
            place, grey = (column - 0.5, row - 0.5), style.MISSING
            axis.add_patch(Rectangle(place, 1, 1, facecolor=grey, edgecolor="white"))
        if not few:
            continue
        colour = "white" if valued and abs(pair.correlation) > 0.7 * limit else "black"
        if valued:
            weight = "bold" if pair.low > 0 or pair.high < 0 else "normal"
            style.write(axis, column, row - 0.12, _number(pair.correlation), 8.5, colour, weight)
        style.write(axis, column, row + 0.24, f"n = {pair.n}", 6.5, colour)
    return mesh


def _number(value: float) -> str:
    """Two decimals without the leading zero, with a true minus sign."""
    written = f"{value:.2f}".replace("0.", ".").replace("-", "\N{MINUS SIGN}")
    return written if float(f"{value:.2f}") else "0"


main = figure_command("correlations", CorrelationsConfig, draw)
