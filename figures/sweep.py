"""Accuracy against alpha, a panel for each K: figures 15 to 18 of the GridToM paper.

Shown are the validation stories of `sally-anne sweep`, on which every K and alpha was tried. At
alpha 0 all curves meet in the model without steering; the line is its Both. Of the controls, random
directions in the same heads and directions of the same kind in random heads, Both alone is drawn.
What steering should leave alone (initial belief, reality) is asked of few settings: those that were
tried for the choice.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import tyro

from figures import style
from figures.command import FigureConfig, figure_command, run_table, run_title
from hooks.saved_run import require_columns
from sally_anne.core.errors import ChoiceError, RunFolderError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MADE_BY = "sally-anne sweep"
TABLE = "sweep.parquet"
SPLIT = "validation"
MEASURES = ("TB", "FB", "Both", "invalid")
CONTROLS = {"random": "random directions", "random_heads": "random heads"}
SIDES = {"initial": "initial belief", "reality": "reality"}
NUMBERS = ("k", "alpha", "value", "low", "high", "n")
COLUMNS = ("split", "direction", "measure", *NUMBERS)
TITLE_WORDS = ("order", "setting")

COLOURS = {"TB": "#009E73", "FB": "#E69F00", "Both": "#0072B2", "invalid": "#7F7F7F"}
COLOURS |= {"initial": "#56B4E9", "reality": "#8C510A"}
MARKERS = {"TB": "o", "FB": "^", "Both": "s", "invalid": "x", "initial": "v", "reality": "D"}
MEASURE_TEXT = {"invalid": "invalid (share of answers)", **SIDES}
DASHES = {"random": (0, (5, 2)), "random_heads": (0, (1.5, 1.5))}
CONTROL_COLOURS = {"random": "#CC79A7", "random_heads": "#D55E00"}
PANELS_IN_A_ROW = 4
# Strengths this many times the smallest make a grid over powers of ten.
WIDE = 15
TICKS_UP_TO = 7  # so many alphas have a tick each, however far apart
LABEL_GAP = 0.12  # of an axis' width, between two of its labels


@dataclass(frozen=True)
class SweepConfig(FigureConfig):
    """Draw accuracy against alpha of a finished sweep, a panel for each K."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Sweep folder, as `sally-anne sweep` leaves it."""


class Panel(NamedTuple):
    """What one panel shows: how theta was found, by what heads are ranked, and their number."""

    direction: str
    heads: str
    k: int


def draw(config: SweepConfig) -> list[Path]:
    """Draw and save the figure; return the paths written."""
    table = curves(read_sweep(config.run))
    with style.look():
        figure = sweep_figure(table, read_title(config.run))
        return style.save(figure, config.folder, "sweep", table)


def read_sweep(folder: Path) -> pd.DataFrame:
    """The table of a sweep, checked: one row a setting and measure of the validation stories.

    Raises:
        MissingRunFileError: no such folder, or it has no ``sweep.parquet``.
        RunFolderError: the file is damaged, lacks a column, or holds what a sweep does not write.
        ChoiceError: it has no validation stories.
    """
    from pandas.api.types import is_numeric_dtype

    path = folder / TABLE
    table = run_table(folder, TABLE, MADE_BY, "sweep")
    require_columns(table, COLUMNS, path)
    for column in NUMBERS:
        if not is_numeric_dtype(table[column]):
            raise RunFolderError(f"{path}: column {column} does not hold numbers")
    there = ", ".join(sorted(map(str, table["split"].unique()))) or "none"
    table = table[(table["split"] == SPLIT) & table["measure"].isin((*MEASURES, *SIDES))]
    if table.empty:
        raise ChoiceError(f"{path} has no row of split {SPLIT} (splits there: {there})")
    if table[["k", "alpha", "n"]].isna().any(axis=None):
        raise RunFolderError(f"{path}: a row has no k, no alpha or no n")
    for column in ("value", "low", "high"):
        wrong = table[(table[column] < 0) | (table[column] > 1)]
        if not wrong.empty:
            raise RunFolderError(
                f"{path}: {column} should be a share between 0 and 1, "
                f"there is {wrong[column].iloc[0]:g}"
            )
    # Sweeps of earlier versions ranked heads in one way.
    table = table.assign(heads=table.get("heads", "probe"))
    keys = ["direction", "heads", "k", "alpha", "measure"]
    twice = table[table.duplicated(keys)]
    if not twice.empty:
        first = ", ".join(f"{key} {twice[key].iloc[0]}" for key in keys)
        raise RunFolderError(f"{path} has more than one row for {first}")
    if not (table["k"] == 0).any():
        raise RunFolderError(f"{path} has no row without steering (k = 0)")
    if (table["k"] == 0).all():
        raise RunFolderError(f"{path} has no row with steering")
    for (direction, _, k, alpha), rows in table.groupby(keys[:-1], sort=False):
        if lacking := [m for m in MEASURES if m not in set(rows["measure"])]:
            raise RunFolderError(
                f"{path} has no {', '.join(lacking)} for direction {direction}, k {k}, "
                f"alpha {alpha:g}"
            )
    return table.reset_index(drop=True)


def read_title(folder: Path) -> list[str]:
    """Whose sweep it is: model, order, setting; empty without ``results.json``."""
    return run_title(folder, MADE_BY, TITLE_WORDS)


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """The numbers shown, a row a point, alpha rising along each curve.

    ``table`` is from `read_sweep`. The point without steering is in every curve, at alpha 0.

    Returns:
        Columns ``panel`` (the direction steered), ``heads`` (by what they are ranked), ``k,
        direction`` (that of the panel, or a control), ``measure, alpha, value, low, high, n``;
        shares, not percent.
    """
    plain, steered = table[table["k"] == 0], table[(table["k"] > 0) & (table["alpha"] != 0)]
    found = list(dict.fromkeys(steered["direction"]))
    controls = [d for d in CONTROLS if d in found]
    # A sweep of nothing but controls shows them as what they are: directions.
    shown = [d for d in found if d not in CONTROLS] or found
    parts = []
    for main, heads in itertools.product(shown, dict.fromkeys(steered["heads"])):
        alike = steered[steered["heads"] == heads]
        for k in sorted(alike.loc[alike["direction"] == main, "k"].unique()):
            for direction in (main, *(c for c in controls if c not in shown)):
                own = alike[(alike["direction"] == direction) & (alike["k"] == k)]
                if own.empty:
                    continue
                for measure in (*MEASURES, *SIDES) if direction == main else ("Both",):
                    points = pd.concat([own, plain])
                    points = points[points["measure"] == measure].sort_values("alpha")
                    if not points["k"].any():
                        continue
                    facts = {"panel": main, "heads": heads, "k": int(k), "direction": direction}
                    parts.append(points.assign(**facts))
    columns = ["panel", "heads", "k", "direction", "measure", "alpha", "value", "low", "high", "n"]
    return pd.concat(parts, ignore_index=True)[columns]


def sweep_figure(table: pd.DataFrame, title: Sequence[str]) -> Figure:
    """A panel for each K, and for each direction if there are several; one legend below.

    ``table`` is from `curves`.
    """
    from matplotlib.ticker import PercentFormatter

    panels = _arranged(table)
    rows, columns = len(panels), len(panels[0])
    shown = [panel for row in panels for panel in row if panel is not None]
    several = len({panel.direction for panel in shown}) > 1
    ranked = len({panel.heads for panel in shown}) > 1
    figure = style.new_figure(max(2.4 * columns + 0.6, 5.2), 2.35 * rows + 1.35)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for (row, column), axis in np.ndenumerate(axes):
        panel = panels[row][column]
        if panel is None:
            axis.remove()
            continue
        own = table[(table["panel"] == panel.direction) & (table["heads"] == panel.heads)]
        _draw_panel(axis, own[own["k"] == panel.k], panel.direction)
        told = [f"K = {panel.k}", *([panel.direction] if several else [])]
        axis.set_title(", ".join([*told, *([f"heads by {panel.heads}"] if ranked else [])]))
        if row + 1 == rows or panels[row + 1][column] is None:
            axis.set_xlabel("α (standard deviations)")
            axis.tick_params(labelbottom=True)
        if column == 0 or panels[row][column - 1] is None:
            axis.set_ylabel("accuracy (%)")
            axis.tick_params(labelleft=True)
    first = figure.axes[0]
    first.set_ylim(-0.03, 1.03)
    first.set_yticks([i / 5 for i in range(6)])
    first.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=None))
    _alpha_axis(first, sorted(table["alpha"].unique()))
    _legend(figure, table)
    pairs = sorted({int(n) for n in table.loc[table["measure"] == "Both", "n"]})
    count = f"{pairs[0]}" if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]}"
    parts = [*title] if several else [*title, f"direction {shown[0].direction}"]
    parts += [] if ranked or shown[0].heads == "probe" else [f"heads by {shown[0].heads}"]
    style.heading(figure, parts, f"{SPLIT} stories (N = {count} pairs of TB and FB)")
    return figure


def _alpha_axis(axis: Axes, alphas: Sequence[float]) -> None:
    """Ticks at the strengths that were run; a grid over powers of ten is drawn as one."""
    strengths = sorted({abs(alpha) for alpha in alphas if alpha})
    wide = strengths[-1] >= WIDE * strengths[0]
    if wide:
        axis.set_xscale("symlog", linthresh=strengths[0], linscale=0.6)
        axis.set_xlim(-1.2 * strengths[-1], 1.2 * strengths[-1])
        axis.minorticks_off()
    if not wide and len(alphas) > TICKS_UP_TO:
        return
    axis.set_xticks(alphas, labels=_labels(axis, alphas))


def _labels(axis: Axes, alphas: Sequence[float]) -> list[str]:
    """Labels of the alphas, empty where they would touch; zero, the ends and one come first."""
    at = axis.transData.transform([(alpha, 0.0) for alpha in alphas])[:, 0] / axis.bbox.width
    ends = (min(alphas), max(alphas))

    def rank(i: int) -> tuple[bool, bool, bool, float]:
        alpha = alphas[i]
        return (alpha != 0, alpha not in ends, abs(alpha) != 1, -abs(alpha))

    written: list[int] = []
    for i in sorted(range(len(alphas)), key=rank):
        if all(abs(at[i] - at[j]) >= LABEL_GAP for j in written):
            written.append(i)
    return [
        f"{alpha:g}".replace("-", "\N{MINUS SIGN}") if i in written else ""
        for i, alpha in enumerate(alphas)
    ]


def _arranged(table: pd.DataFrame) -> list[list[Panel | None]]:
    """The panels in rows of one length: a row a direction and ranking, a lone one in few."""
    found = table[["panel", "heads", "k"]].drop_duplicates()
    panels = [Panel(str(main), str(by), int(k)) for main, by, k in found.itertuples(index=False)]
    kinds = list(dict.fromkeys((panel.direction, panel.heads) for panel in panels))
    if len(kinds) > 1:
        ks = sorted({panel.k for panel in panels})
        wanted = [[Panel(*kind, k) for k in ks] for kind in kinds]
        return [[panel if panel in panels else None for panel in row] for row in wanted]
    columns = -(-len(panels) // -(-len(panels) // PANELS_IN_A_ROW))
    rows: list[list[Panel | None]] = [
        [*panels[start : start + columns]] for start in range(0, len(panels), columns)
    ]
    rows[-1] += [None] * (columns - len(rows[-1]))
    return rows


def _draw_panel(axis: Axes, table: pd.DataFrame, main: str) -> None:
    for measure in (*MEASURES, *SIDES):
        points = table[(table["direction"] == main) & (table["measure"] == measure)]
        if points.empty:
            continue
        alpha, colour = points["alpha"], COLOURS[measure]
        band: dict[str, Any] = {"color": colour, "alpha": 0.16, "linewidth": 0, "zorder": 1}
        axis.fill_between(alpha, points["low"], points["high"], **band)
        axis.plot(alpha, points["value"], zorder=4 if measure == "Both" else 3, **_line(measure))
    for control in CONTROLS:
        points = table[(table["direction"] == control) & (table["direction"] != main)]
        if not points.empty:  # a control that lies on the curve must be seen
            axis.plot(points["alpha"], points["value"], zorder=5, **_line(control))
    plain = table[(table["measure"] == "Both") & (table["alpha"] == 0)]
    axis.axhline(float(plain["value"].iloc[0]), color="black", linewidth=0.7, zorder=2)
    axis.tick_params(length=2.5)
    axis.spines[["top", "right"]].set_visible(False)


def _line(shown: str) -> dict[str, Any]:
    """How the curve of a measure or a control is drawn."""
    if shown in CONTROLS:
        colour = {"color": CONTROL_COLOURS[shown]}
        return {**colour, "linewidth": 1.1, "linestyle": DASHES[shown]}
    width = 2.0 if shown == "Both" else 1.3
    marker = {"marker": MARKERS[shown], "markersize": 4}
    return {"color": COLOURS[shown], "linewidth": width, **marker}


def _legend(figure: Figure, table: pd.DataFrame) -> None:
    from matplotlib.patches import Patch

    asked = [m for m in (*MEASURES, *SIDES) if (table["measure"] == m).any()]
    texts = {measure: MEASURE_TEXT.get(measure, measure) for measure in asked}
    texts |= {
        control: f"Both, {text}"
        for control, text in CONTROLS.items()
        if ((table["direction"] == control) & (table["panel"] != control)).any()
    }
    handles: list[Any] = [style.sign(text, **_line(shown)) for shown, text in texts.items()]
    handles.append(style.sign("Both without steering", "black", linewidth=0.7))
    handles.append(Patch(color="0.5", alpha=0.25, linewidth=0, label="bands: 95 % intervals"))
    wide = figure.get_figwidth() > 7
    style.legend(figure, handles, 4 if wide else 3, columnspacing=1.6)


main = figure_command("sweep-figure", SweepConfig, draw)

if __name__ == "__main__":
    main()
