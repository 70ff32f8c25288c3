"""Figures of answers: runs compared, a transfer's matrices, and kinds of questions correlated.

Comparisons are as figures 3 and 4 of the MoMentS paper, correlations as figures 9 and 10 of the
MimeQA paper, which names no coefficient: these are Pearson's, over films (groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sally_anne.core.bootstrap import draw_groups, percentile_interval
from sally_anne.core.errors import FigureError
from sally_anne.data.mimeqa import CATEGORIES
from sally_anne.figures import style

PARSERS = ("judge", "robust", "official", "options")  # in the order in which one is chosen
# Of each measure of a transfer its title, colours and their ends.
PANELS: dict[str, tuple[str, str, tuple[float, float]]] = {
    "accuracy": ("test accuracy of the best head's probe", style.DIVERGING, (0.0, 1.0)),
    "centred": ("the same, less each story's mean", style.DIVERGING, (0.0, 1.0)),
    "cosine": ("|cos| of directions", style.SEQUENTIAL, (0.0, 1.0)),
    "share": ("normalised effect on the answer", style.SEQUENTIAL, (0.0, 1.0)),
}
FEWEST = 3  # groups that a correlation needs: any two points lie on a line
WRITTEN_UP_TO = 7  # parts or categories up to which intervals and counts stand in the cells


def draw_comparison(table: pd.DataFrame, title: Sequence[str], folder: Path) -> list[Path]:
    """Draw and save a comparison into ``folder/figures``."""
    parser, points = comparison_points(table)
    with style.look():
        figure = comparison_figure(points, [*title, f"answers parsed by {parser}"])
        return style.save(figure, folder / "figures", "comparison", points)


def comparison_points(table: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """Whose parsing of a comparison is shown, and its numbers: a row a category and run.

    Columns are ``items, run, n, value, low, high`` and ``difference, difference_low,
    difference_high``, which the first run has not.
    """
    parser = first_parser(table["parser"].unique())
    kept = table[(table["parser"] == parser) & (table["measure"] != "invalid") & (table["n"] > 0)]
    names = ["items", "run", "n", "value", "low", "high"]
    first, second = (
        kept[["items", run, "n", one, f"{one}_low", f"{one}_high"]].set_axis(names, axis=1)
        for run, one in (("against", "first"), ("run", "second"))
    )
    second = second.join(kept[["difference", "difference_low", "difference_high"]])
    points = pd.concat([first.drop_duplicates("items"), second])
    order = {"key": lambda items: items.map([*dict.fromkeys(kept["items"])].index)}
    return parser, points.sort_values("items", kind="stable", ignore_index=True, **order)


def first_parser(there: Sequence[str]) -> str:
    """By whose parsing a run is described: a judge's first."""
    return next((parser for parser in PARSERS if parser in there), there[0] if len(there) else "")


def comparison_figure(table: pd.DataFrame, title: Sequence[str]) -> Figure:
    """How often each run is right, and its paired differences to the first: a line a category.

    A difference whose interval leaves out zero is filled. See :func:`comparison_points`.
    """
    names, runs = list(dict.fromkeys(table["items"])), list(dict.fromkeys(table["run"]))
    height = 0.2 * len(names) * max(1.0, 0.45 * len(runs)) + 0.2 * (len(runs) // 3) + 1.7
    figure = style.new_figure(5.6 + 0.07 * max(map(len, names)), height)
    right, gain = figure.subplots(1, 2, sharey=True)
    lifts = np.linspace(-0.3, 0.3, len(runs))
    for place, (run, lift) in enumerate(zip(runs, lifts, strict=True)):
        rows = table[table["run"] == run]
        y = rows["items"].map(names.index) + lift
        colour, marker = (look[place % 8] for look in (style.COLOURS, style.MARKERS))
        ends = ["difference", "difference_low", "difference_high"]
        shown = {right: ["value", "low", "high"]} | ({gain: ends} if place else {})
        for axis, columns in shown.items():
            value, low, high = 100 * rows[columns].to_numpy(dtype=float).T
            axis.hlines(y, low, high, color=colour, linewidth=1.2, zorder=2)
            filled = (low > 0) | (high < 0) | (axis is right)
            face = np.where(filled, colour, "white")
            look: dict[str, Any] = {"marker": marker, "edgecolors": colour, "label": run}
            axis.scatter(value, y, s=18, c=face, zorder=3, **look)
    counts = table.drop_duplicates("items").set_index("items")["n"]
    right.set_yticks(range(len(names)), labels=[f"{name} ({counts[name]})" for name in names])
    right.set(ylim=(len(names) - 0.5, -0.5), xlim=(-3, 103), xlabel="right (%)")
    gain.axvline(0.0, color="black", linewidth=0.7, zorder=1)
    gain.set_xlabel(f"difference to {runs[0]} (points)")
    for axis in (right, gain):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="x", color="0.9", linewidth=0.6)
    style.legend(figure, right.get_legend_handles_labels()[0], 3)
    style.heading(figure, title, "Runs on the same items, with 95 % intervals")
    return figure


def transfer_figure(table: pd.DataFrame, title: list[str]) -> Figure:
    """What was fitted on the rows, tested on the columns: a panel for each measure with values.

    ``table`` has a row a cell: ``measure, fitted_on, tested_on, value, low, high, control_high,
    above``; parts are in the order in which they are to stand.
    """
    names = list(dict.fromkeys(table["fitted_on"]))
    there = set(table.loc[table["value"].notna(), "measure"])
    measures = [measure for measure in PANELS if measure in there]
    columns = min(3, max(1, len(measures)))
    rows = max(1, -(-len(measures) // columns))
    many = len(names) > WRITTEN_UP_TO
    side = max(2.2, (0.45 if many else 0.9) * len(names))
    figure = style.new_figure(columns * (side + 0.9) + 1.2, rows * (0.8 * side + 1.3) + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(measures) :]:
        panel.set_axis_off()
    short = [name.replace(", ", "\n") for name in names]
    for panel, measure in zip(panels, measures, strict=False):
        words, colours, limits = PANELS[measure]
        part = table[table["measure"] == measure].set_index(["fitted_on", "tested_on"])
        part["text"] = [
            f"{row.value:.2f}{'*' if row.above else ''}"
            + ("" if many else f"\n{row.low:.2f} to {row.high:.2f}\n({row.control_high:.2f})")
            for row in part.itertuples()
        ]
        values, texts = (
            part[name].unstack().reindex(index=names, columns=names) for name in ("value", "text")
        )
        more: dict[str, Any] = {"xticklabels": short, "yticklabels": short}
        more |= {"annot": texts, "fmt": "", "annot_kws": {"fontsize": 6.0}}
        mesh = style.heat(panel, values.astype(float), colours, limits, **more)
        panel.set(title=words, xlabel="tested on", ylabel="fitted on")
        panel.tick_params(axis="x", length=0, rotation=90 if many else 0)
        figure.colorbar(mesh, ax=panel, fraction=0.05)
    words = "value, 95 % over maps or groups, (97.5 % of the control); *: above its control"
    style.heading(figure, title, words)
    return figure


def group_accuracy(table: pd.DataFrame, parser: str) -> pd.DataFrame:
    """Accuracy of each group (film) in each category, NaN where it has no question of it.

    Of ``answers.parquet``: an invalid answer is wrong, a hidden key is left out, and an item counts
    in each of its categories, which ``|`` joins. They stand in the paper's order.
    """
    flags = table.reindex(columns=["hidden", f"{parser}_invalid"]).eq(True)
    right = table[f"{parser}_correct"].astype(bool) & ~flags[f"{parser}_invalid"]
    category = table["tag_category"].fillna("").astype(str).str.split("|")
    rows = pd.DataFrame({"group": table["story"].astype(str), "category": category, "right": right})
    rows = rows[~flags["hidden"]].explode("category").astype({"right": float})
    rows = rows[rows["category"].str.strip() != ""]
    if rows.empty:
        raise FigureError("no answer with a key has a category")
    wide = rows.pivot_table(index="group", columns="category", values="right", aggfunc="mean")
    known = [name for name in CATEGORIES if name in wide.columns]
    return wide[known + sorted(set(wide.columns) - set(known))]


def category_correlations(table: pd.DataFrame, parser: str) -> pd.DataFrame:
    """Correlation of the accuracies of each two categories, over the ``n`` groups that have both.

    Columns ``first, second, correlation, low, high, n``; of the intervals groups are resampled. It
    is NaN where there are fewer than three groups, or one accuracy is the same in all.
    """
    wide = group_accuracy(table, parser)
    names = [str(name) for name in wide.columns]
    if len(names) < 2:
        raise FigureError(f"a correlation needs two categories; there is only {names[0]!r}")
    times = draw_groups(len(wide)).astype(int)
    taken = [wide.iloc[np.repeat(np.arange(len(wide)), one)] for one in times]
    whole, *drawn = (one.corr(min_periods=FEWEST).to_numpy() for one in [wide, *taken])
    rows, there = [], wide.notna().to_numpy(dtype=int)
    for i, j in combinations(range(len(names)), 2):
        ends, known = (np.nan, np.nan), np.isfinite(whole[i, j])
        low, high = percentile_interval(np.array([one[i, j] for one in drawn])) if known else ends
        rows.append((names[i], names[j], whole[i, j], low, high, there[:, i] @ there[:, j]))
    return pd.DataFrame(rows, columns=["first", "second", "correlation", "low", "high", "n"])


def correlations_figure(table: pd.DataFrame, title: Sequence[str]) -> Figure:
    """The lower triangle of the matrix of :func:`category_correlations`."""
    names, table = list(dict.fromkeys([*table["first"], *table["second"]])), table.copy()
    few = len(names) <= WRITTEN_UP_TO + 1
    cell, longest = max(0.25, 1.6 / len(names)), 0.075 * max(map(len, names))
    cell = max(0.62, cell) if few else cell
    side = max(2.4, cell * (len(names) - 1))
    figure = style.new_figure(side + longest + 1.8, side + 0.72 * longest + 1.1)
    axis = figure.subplots()
    table["text"] = [
        f"{row.correlation:.2f}{'*' if row.low > 0 or row.high < 0 else ''}\nn = {row.n:.0f}"
        for row in table.itertuples()
    ]
    cells, texts = (
        table.pivot(index="second", columns="first", values=name).loc[names[1:], names[:-1]]
        for name in ("correlation", "text")
    )
    more = {"square": True, "annot": texts if few else False, "fmt": ""}
    mesh = style.heat(axis, cells, style.DIVERGING + "_r", (-1.0, 1.0), **more)
    axis.set_facecolor("white")
    axis.tick_params(length=0)
    axis.set_xticks(axis.get_xticks(), cells.columns, rotation=40, ha="right")
    label = "Pearson's correlation\nover films (n)"
    figure.colorbar(mesh, ax=axis, fraction=0.05, pad=0.03, label=label)
    subject = "Accuracy in one category against accuracy in another"
    style.heading(figure, title, subject + (" (*: 95 % interval without 0)" if few else ""))
    return figure
