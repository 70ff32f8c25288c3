"""Accuracy against alpha, a panel for each K: figures 15 to 18 of the GridToM paper.

Shown are the validation stories of a sweep, on which every K and alpha was tried; the strengths
stand evenly, as grids reach over powers of ten. At alpha 0 all curves meet in the model without
steering; the line is its Both. Of the random controls Both alone is drawn. What steering should
leave alone (initial belief, reality) is measured at the settings that were tried for the choice.
The star is the setting that was chosen, rings are those before it that cost too much.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from sally_anne.core.errors import RunFolderError
from sally_anne.figures import style

SPLIT = "validation"
MEASURES = ("TB", "FB", "Both", "invalid")
CONTROLS = {"random": "random directions", "random_heads": "random heads"}
SIDES = {"initial": "initial belief", "reality": "reality"}
COLOURS = {"TB": "#009E73", "FB": "#E69F00", "Both": "#0072B2", "invalid": "#7F7F7F"}
COLOURS |= {"initial": "#56B4E9", "reality": "#8C510A"}
COLOURS |= {"random": "#CC79A7", "random_heads": "#D55E00"}
MARKERS = {"TB": "o", "FB": "^", "Both": "s", "invalid": "x", "initial": "v", "reality": "D"}
DASHES = {"random": (0, (5, 2)), "random_heads": (0, (1.5, 1.5)), "TB": (0, (4, 1.5))}
TEXTS = {"invalid": "invalid (share of answers)", **SIDES}
TEXTS |= {name: f"Both, {text}" for name, text in CONTROLS.items()}
STAR: dict[str, Any] = {"color": "black", "marker": "*", "markersize": 13}
STAR |= {"markeredgecolor": "white", "linestyle": "none", "zorder": 7}
RINGED: dict[str, Any] = {"color": "#B2182B", "marker": "o", "markersize": 11}
RINGED |= {"markerfacecolor": "none", "linestyle": "none", "zorder": 6}
MINUS = "\N{MINUS SIGN}"
KEYS = ["panel", "rank_by", "k"]


class Panel(NamedTuple):
    """What one panel shows: how theta was found, by what heads are ranked, and their number."""

    direction: str
    rank_by: str
    k: int


@dataclass(frozen=True)
class Choice:
    """The setting that a sweep chose, and what it costs on validation stories.

    Attributes:
        costs: of each side question its change (a share, less than 0 if it falls), and by how much
            it may fall; None where the model can but guess the answers.
    """

    panel: Panel
    alpha: float
    costs: Mapping[str, tuple[float, float | None]]

    @classmethod
    def of(cls, results: Mapping[str, Any]) -> Choice | None:
        """What the results of a sweep say; None if nothing was chosen."""
        chosen = results.get("chosen")
        if not chosen:
            return None
        costs = {}
        for side in SIDES:
            cost, most = (
                results.get(side, {}).get(SPLIT),
                results["config"].get(f"max_{side}_drop"),
            )
            if cost and most is not None:
                guessed = side in results.get("guessed", {})
                costs[side] = float(cost["value"]), None if guessed else float(most)
        panel = Panel(chosen["direction"], chosen["rank_by"], int(chosen["k"]))
        return cls(panel, float(chosen["alpha"]), costs)

    def __str__(self) -> str:
        parts = [f"chosen: K = {self.panel.k}, α = {self.alpha:g}"]
        for side, (change, most) in self.costs.items():
            limit = "guessed, no condition" if most is None else f"may fall by {100 * most:g}"
            parts.append(f"{SIDES[side]} {100 * change:+.1f} points ({limit})")
        return ", ".join(parts).replace("-", MINUS)


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """The numbers shown, a row a point, alpha rising along each curve.

    ``table`` is ``sweep.parquet``. The point without steering is in every curve, at alpha 0.

    Returns:
        Columns ``panel`` (the direction steered), ``heads`` (by what they are ranked), ``k,
        direction`` (that of the panel, or a control), ``measure, alpha, value, low, high, n``;
        shares, not percent.
    """
    table = table[(table["split"] == SPLIT) & table["measure"].isin((*MEASURES, *SIDES))]
    baseline = table[table["k"] == 0]
    steered = table[(table["k"] > 0) & (table["alpha"] != 0)]
    if baseline.empty or steered.empty:
        raise RunFolderError("the sweep has no points with, or none without steering")
    there = list(dict.fromkeys(steered["direction"]))
    # A sweep of nothing but controls shows them as what they are: directions.
    shown = [name for name in there if name not in CONTROLS] or there
    controls = [name for name in CONTROLS if name in there and name not in shown]
    parts = []
    for main, rank_by in itertools.product(shown, dict.fromkeys(steered["rank_by"])):
        ranked = steered[steered["rank_by"] == rank_by]
        for k in sorted(ranked.loc[ranked["direction"] == main, "k"].unique()):
            for direction in (main, *controls):
                points = ranked[(ranked["direction"] == direction) & (ranked["k"] == k)]
                for measure in (*MEASURES, *SIDES) if direction == main else ("Both",):
                    curve = points[points["measure"] == measure]
                    if len(curve):
                        curve = pd.concat([curve, baseline[baseline["measure"] == measure]])
                        place = dict(zip(KEYS, (main, rank_by, int(k)), strict=True))
                        parts.append(
                            curve.sort_values("alpha").assign(**place, direction=direction)
                        )
    columns = [*KEYS, "direction", "measure", "alpha", "value", "low", "high", "n"]
    return pd.concat(parts, ignore_index=True)[columns]


def refused(table: pd.DataFrame, choice: Choice | None) -> pd.DataFrame:
    """Both of the settings that were tried before the chosen one, and cost too much."""
    if choice is None:
        return table.iloc[:0]
    keys = [*KEYS, "alpha"]
    of_choice = (table["direction"] == choice.panel.direction) & (table["alpha"] != 0)
    tried = table[of_choice & table["measure"].isin(SIDES)][keys].drop_duplicates()
    both = table[of_choice & (table["measure"] == "Both")].merge(tried, on=keys)
    is_chosen = (both["rank_by"] == choice.panel.rank_by) & (both["k"] == choice.panel.k)
    return both[~(is_chosen & (both["alpha"] == choice.alpha))]


def sweep_figure(table: pd.DataFrame, title: Sequence[str], choice: Choice | None = None) -> Figure:
    """A panel for each K; a row for each direction and ranking if there are several.

    ``table`` is from `curves`.
    """
    panels = [Panel(*key) for key in table[KEYS].drop_duplicates().itertuples(index=False)]
    ways = list(dict.fromkeys(panel[:2] for panel in panels))
    ks = sorted({panel.k for panel in panels})
    columns = len(ks) if len(ways) > 1 else min(4, len(ks))
    rows = len(ways) if len(ways) > 1 else -(-len(ks) // columns)
    places = [Panel(*way, k) for way in ways for k in ks]
    alphas = sorted(map(float, table["alpha"].unique()))
    figure = style.new_figure(max(2.4 * columns + 0.6, 5.2), 2.35 * rows + 1.35)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for place, axis in enumerate(axes):
        panel = places[place] if place < len(places) else None
        if panel not in panels:
            axis.set_axis_off()
            continue
        points = _of_panel(table, panel)
        _draw_panel(axis, points, panel.direction, alphas)
        for _, row in _of_panel(refused(table, choice), panel).iterrows():
            axis.plot([alphas.index(row["alpha"])], [row["value"]], **RINGED)
        if choice is not None and choice.panel == panel:
            both = points[(points["measure"] == "Both") & (points["direction"] == panel.direction)]
            star = both[both["alpha"] == choice.alpha]
            axis.plot([alphas.index(a) for a in star["alpha"]], star["value"], **STAR)
        words = [f"K = {panel.k}"]
        words += [panel.direction] if len({way[0] for way in ways}) > 1 else []
        words += [f"heads by {panel.rank_by}"] if len({way[1] for way in ways}) > 1 else []
        axis.set_title(", ".join(words))
        if place + columns >= len(places):
            axis.set_xlabel("α (standard deviations),\neach that was run")
            axis.tick_params(labelbottom=True)
        if place % columns == 0:
            axis.set_ylabel("accuracy (%)")
    axes[0].set_ylim(-0.03, 1.03)
    axes[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=None))
    step = -(-len(alphas) // 25)
    texts = [f"{a:g}".replace("-", MINUS) if i % step == 0 else "" for i, a in enumerate(alphas)]
    axes[0].set_xticks(range(len(alphas)), labels=texts)
    for axis in axes:
        axis.tick_params(axis="x", labelrotation=90 if len(alphas) > 7 else 0, labelsize=7.5)
    _legend(figure, table, choice)
    pairs = sorted({int(n) for n in table.loc[table["measure"] == "Both", "n"]})
    count = " to ".join(map(str, dict.fromkeys((pairs[0], pairs[-1]))))
    parts = [*title, *([] if len(ways) > 1 else [f"direction {ways[0][0]}, heads by {ways[0][1]}"])]
    parts += [] if choice is None else [str(choice)]
    style.heading(figure, parts, f"{SPLIT} stories (N = {count} pairs of TB and FB)")
    return figure


def _of_panel(table: pd.DataFrame, panel: Panel) -> pd.DataFrame:
    return table[(table[KEYS] == list(panel)).all(axis=1)]


def _draw_panel(axis: Axes, table: pd.DataFrame, main: str, alphas: Sequence[float]) -> None:
    # TB and FB lie over Both, on which they often stand; controls over all.
    for (direction, measure), points in table.groupby(["direction", "measure"], sort=False):
        name = measure if direction == main else direction
        places = [alphas.index(alpha) for alpha in points["alpha"]]
        if direction == main:
            band: dict[str, Any] = {"color": COLOURS[name], "alpha": 0.16, "linewidth": 0}
            axis.fill_between(places, points["low"], points["high"], zorder=1, **band)
        order = 5 if name in CONTROLS else 3 if name == "Both" else 4
        axis.plot(places, points["value"], zorder=order, **_line(name))
    baseline = table[(table["measure"] == "Both") & (table["alpha"] == 0)]
    axis.axhline(float(baseline["value"].iloc[0]), color="black", linewidth=0.7, zorder=2)
    axis.tick_params(length=2.5)
    axis.spines[["top", "right"]].set_visible(False)


def _line(name: str) -> dict[str, Any]:
    """How the curve of a measure or a control is drawn."""
    line: dict[str, Any] = {"color": COLOURS[name], "linestyle": DASHES.get(name, "-")}
    if name in CONTROLS:
        return line | {"linewidth": 1.1}
    both = name == "Both"
    width, size = (3.0, 6) if both else (1.3, 4)
    return line | {"linewidth": width, "marker": MARKERS[name], "markersize": size}


def _legend(figure: Figure, table: pd.DataFrame, choice: Choice | None) -> None:
    names = [m for m in (*MEASURES, *SIDES) if (table["measure"] == m).any()]
    is_control = table["direction"] != table["panel"]
    names += [c for c in CONTROLS if (is_control & (table["direction"] == c)).any()]
    handles: list[Any] = [style.sign(TEXTS.get(n, n), **_line(n)) for n in names]
    handles.append(style.sign("Both without steering", "black", linewidth=0.7))
    handles.append(Patch(color="0.5", alpha=0.25, linewidth=0, label="bands: 95 % intervals"))
    if choice is not None:
        handles.append(style.sign("chosen", **STAR))
    if not refused(table, choice).empty:
        handles.append(style.sign("better, but costs too much", **RINGED))
    style.legend(figure, handles, 4 if figure.get_figwidth() > 7 else 3)
