"""Accuracy against alpha, a panel for each K: figures 15 to 18 of the GridToM paper.

Shown are the validation stories of `sally-anne sweep`, on which every K and alpha was tried; the
strengths stand side by side, evenly, as grids reach over powers of ten. At alpha 0 all curves meet
in the model without steering; the line is its Both. Of the controls, random directions in the same
heads and directions of the same kind in random heads, Both alone is drawn. What steering should
leave alone (initial belief, reality) is asked of few settings: those that were tried for the
choice. The star is the setting that was chosen, rings are those before it that cost too much.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import tyro

from sally_anne.core.errors import ChoiceError, RunFolderError
from sally_anne.core.run_folder import RESULTS
from sally_anne.figures import style
from sally_anne.figures.command import FigureConfig, figure_command, run_table, run_title
from sally_anne.hooks.saved_run import require_columns, saved_results

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
MINUS = "\N{MINUS SIGN}"
TICKS_UP_TO = 25  # so many alphas have a label each
STAR, RINGED = "chosen", "better, but costs too much"
MARKS: dict[str, dict[str, Any]] = {
    STAR: {"color": "black", "marker": "*", "markersize": 13, "markeredgecolor": "white"},
    RINGED: {"color": "#B2182B", "marker": "o", "markersize": 11, "markerfacecolor": "none"},
}


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
    choice = read_choice(config.run)
    with style.look():
        figure = sweep_figure(table, read_title(config.run), choice)
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


@dataclass(frozen=True)
class Choice:
    """The setting that a sweep chose, and what it costs on validation stories.

    Attributes:
        costs: of each side question that was asked, its change (a share, less than 0 if it falls),
            and by how much it may fall; None where the model can but guess the answers.
    """

    panel: Panel
    alpha: float
    costs: Mapping[str, tuple[float, float | None]]

    @property
    def said(self) -> str:
        """In words, for a heading."""
        parts = [
            f"{SIDES[side]} {100 * change:+.1f} points "
            f"({'guessed, no condition' if most is None else f'may fall by {100 * most:g}'})"
            for side, (change, most) in self.costs.items()
        ]
        chosen = f"chosen: K = {self.panel.k}, α = {self.alpha:g}"
        return ", ".join([chosen, *parts]).replace("-", MINUS)


def read_choice(folder: Path) -> Choice | None:
    """What the sweep chose; None if its results do not say."""
    saved = saved_results(folder / RESULTS, MADE_BY) or {}
    chosen = saved.get("chosen")
    if not chosen:
        return None
    costs = {
        side: (float(found["value"]), None if side in saved.get("guessed", {}) else float(most))
        for side in SIDES
        if (found := saved.get(side, {}).get(SPLIT))
        and (most := saved["config"].get(f"max_{side}_drop")) is not None
    }
    panel = Panel(chosen["direction"], chosen.get("heads", "probe"), int(chosen["k"]))
    return Choice(panel, float(chosen["alpha"]), costs)


def refused(table: pd.DataFrame, choice: Choice | None) -> pd.DataFrame:
    """Both of the settings that were tried before the chosen one, and cost too much."""
    if choice is None:
        return table.iloc[:0]
    keys = ["panel", "heads", "k", "alpha"]
    of_choice = (table["direction"] == choice.panel.direction) & (table["alpha"] != 0)
    asked = table[of_choice & table["measure"].isin(SIDES)][keys].drop_duplicates()
    both = table[of_choice & (table["measure"] == "Both")].merge(asked, on=keys)
    is_chosen = (both["heads"] == choice.panel.heads) & (both["k"] == choice.panel.k)
    return both[~(is_chosen & (both["alpha"] == choice.alpha))]


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


def sweep_figure(table: pd.DataFrame, title: Sequence[str], choice: Choice | None = None) -> Figure:
    """A panel for each K, and for each direction if there are several; one legend below.

    ``table`` is from `curves`.
    """
    from matplotlib.ticker import PercentFormatter

    panels = _arranged(table)
    rows, columns = len(panels), len(panels[0])
    shown = [panel for row in panels for panel in row if panel is not None]
    alphas = sorted(map(float, table["alpha"].unique()))
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
        own = own[own["k"] == panel.k]
        _draw_panel(axis, own, panel.direction, alphas)
        _mark(axis, own, panel, choice, refused(table, choice), alphas)
        told = [f"K = {panel.k}", *([panel.direction] if several else [])]
        axis.set_title(", ".join([*told, *([f"heads by {panel.heads}"] if ranked else [])]))
        if row + 1 == rows or panels[row + 1][column] is None:
            axis.set_xlabel("α (standard deviations),\neach that was run")
            axis.tick_params(labelbottom=True)
        if column == 0 or panels[row][column - 1] is None:
            axis.set_ylabel("accuracy (%)")
            axis.tick_params(labelleft=True)
    first = figure.axes[0]
    first.set_ylim(-0.03, 1.03)
    first.set_yticks([i / 5 for i in range(6)])
    first.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=None))
    step = -(-len(alphas) // TICKS_UP_TO)
    written = [f"{alpha:g}".replace("-", MINUS) for alpha in alphas]
    labels = [text if i % step == 0 else "" for i, text in enumerate(written)]
    turned = 90 if len(alphas) > 7 else 0
    first.set_xticks(range(len(alphas)), labels=labels)
    for axis in figure.axes:
        axis.tick_params(axis="x", labelrotation=turned, labelsize=7.5)
    _legend(figure, table, choice)
    pairs = sorted({int(n) for n in table.loc[table["measure"] == "Both", "n"]})
    count = f"{pairs[0]}" if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]}"
    parts = [*title] if several else [*title, f"direction {shown[0].direction}"]
    parts += [] if ranked or shown[0].heads == "probe" else [f"heads by {shown[0].heads}"]
    parts += [] if choice is None else [choice.said]
    style.heading(figure, parts, f"{SPLIT} stories (N = {count} pairs of TB and FB)")
    return figure


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


def _draw_panel(axis: Axes, table: pd.DataFrame, main: str, alphas: Sequence[float]) -> None:
    # TB and FB lie over Both, on which they often stand.
    for measure in (*MEASURES, *SIDES):
        points = table[(table["direction"] == main) & (table["measure"] == measure)]
        if points.empty:
            continue
        places, colour = [alphas.index(alpha) for alpha in points["alpha"]], COLOURS[measure]
        band: dict[str, Any] = {"color": colour, "alpha": 0.16, "linewidth": 0, "zorder": 1}
        axis.fill_between(places, points["low"], points["high"], **band)
        order = 3 if measure == "Both" else 4
        axis.plot(places, points["value"], zorder=order, **_line(measure))
    for control in CONTROLS:
        points = table[(table["direction"] == control) & (table["direction"] != main)]
        if not points.empty:  # a control that lies on the curve must be seen
            places = [alphas.index(alpha) for alpha in points["alpha"]]
            axis.plot(places, points["value"], zorder=5, **_line(control))
    plain = table[(table["measure"] == "Both") & (table["alpha"] == 0)]
    axis.axhline(float(plain["value"].iloc[0]), color="black", linewidth=0.7, zorder=2)
    axis.tick_params(length=2.5)
    axis.spines[["top", "right"]].set_visible(False)


def _mark(
    axis: Axes,
    table: pd.DataFrame,
    panel: Panel,
    choice: Choice | None,
    before: pd.DataFrame,
    alphas: Sequence[float],
) -> None:
    """The chosen point of a panel, and those that were tried before it, on Both."""
    own = before[(before["panel"] == panel.direction) & (before["heads"] == panel.heads)]
    for _, row in own[own["k"] == panel.k].iterrows():
        axis.plot(
            [alphas.index(row["alpha"])],
            [row["value"]],
            zorder=6,
            linestyle="none",
            **MARKS[RINGED],
        )
    if choice is not None and choice.panel == panel:
        both = table[(table["measure"] == "Both") & (table["direction"] == panel.direction)]
        at = both[both["alpha"] == choice.alpha]
        if not at.empty:
            place = alphas.index(choice.alpha)
            axis.plot(
                [place], [float(at["value"].iloc[0])], zorder=7, linestyle="none", **MARKS[STAR]
            )


def _line(shown: str) -> dict[str, Any]:
    """How the curve of a measure or a control is drawn."""
    if shown in CONTROLS:
        colour = {"color": CONTROL_COLOURS[shown]}
        return {**colour, "linewidth": 1.1, "linestyle": DASHES[shown]}
    width = 3.0 if shown == "Both" else 1.3
    marker = {"marker": MARKERS[shown], "markersize": 6 if shown == "Both" else 4}
    dash = {"linestyle": (0, (4, 1.5))} if shown == "TB" else {}
    return {"color": COLOURS[shown], "linewidth": width, **marker, **dash}


def _legend(figure: Figure, table: pd.DataFrame, choice: Choice | None) -> None:
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
    if choice is not None:
        handles.append(style.sign(STAR, linestyle="none", **MARKS[STAR]))
    if not refused(table, choice).empty:
        handles.append(style.sign(RINGED, linestyle="none", **MARKS[RINGED]))
    wide = figure.get_figwidth() > 7
    style.legend(figure, handles, 4 if wide else 3, columnspacing=1.6)


main = figure_command("sweep-figure", SweepConfig, draw)
