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
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sally_anne.core.bootstrap import draw_groups, percentile_interval
from sally_anne.core.errors import FigureError
from sally_anne.data.mimeqa import CATEGORIES
from sally_anne.figures import style

PARSERS = ("judge", "robust", "official", "options")  # in the order in which one is chosen
SPREAD = 0.3  # of a category's height, how far the outermost runs are from its middle
# Of each measure of a transfer its title, colours and their ends.
PANELS: dict[str, tuple[str, str, tuple[float, float]]] = {
    "accuracy": ("test accuracy of the best head's probe", style.DIVERGING, (0.0, 1.0)),
    "spearman": ("rank correlation of probes' accuracies", style.DIVERGING, (-1.0, 1.0)),
    "overlap": ("share of the best probes' heads in common", style.SEQUENTIAL, (0.0, 1.0)),
    "cosine": ("|cos| of directions", style.SEQUENTIAL, (0.0, 1.0)),
    "question_spearman": ("rank correlation, effects on answers", style.DIVERGING, (-1.0, 1.0)),
    "question_overlap": ("share of the answer's heads in common", style.SEQUENTIAL, (0.0, 1.0)),
    "share": ("normalised effect on the answer", style.SEQUENTIAL, (0.0, 1.0)),
    "steered": ("gain of both answers right, steered", style.DIVERGING, (-1.0, 1.0)),
    "statement_spearman": ("rank correlation, effects on truth", style.DIVERGING, (-1.0, 1.0)),
    "statement_overlap": ("share of the statement's heads in common", style.SEQUENTIAL, (0.0, 1.0)),
}
FEWEST = 3  # groups that a correlation needs: any two points lie on a line
WRITTEN_UP_TO = 7  # parts up to which intervals and controls stand in the cells


def draw_comparison(table: pd.DataFrame, title: Sequence[str], folder: Path) -> list[Path]:
    """Draw and save a comparison into ``folder/figures``; see :func:`comparison_points`."""
    parser, points = comparison_points(table)
    with style.look():
        figure = comparison_figure(points, [*title, f"answers parsed by {parser}"])
        return style.save(figure, folder / "figures", "comparison", points)


def comparison_points(table: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """Whose parsing is shown, and the numbers shown, a row a category and run, the first run first.

    Args:
        table: of a comparison, without parsers that could read nothing.

    Returns:
        Columns ``items, run, n, value, low, high`` and ``difference, difference_low,
        difference_high``, which the first run has not.
    """
    parser = first_parser(table["parser"].unique())
    kept = table[(table["parser"] == parser) & (table["measure"] != "invalid") & (table["n"] > 0)]
    ends = ("value", "low", "high")
    rows: list[dict[str, Any]] = []
    for items, group in kept.groupby("items", sort=False):
        runs = [("against", "first", group.iloc[:1]), ("run", "second", group)]
        for name, which, part in runs:
            for row in part.to_dict("records"):
                columns = [which, f"{which}_low", f"{which}_high"]
                numbers = {end: row[column] for end, column in zip(ends, columns, strict=True)}
                if name == "run":
                    numbers |= {c: v for c, v in row.items() if str(c).startswith("difference")}
                rows.append({"items": items, "run": row[name], "n": row["n"], **numbers})
    return parser, pd.DataFrame(rows)


def first_parser(there: Sequence[str]) -> str:
    """By whose parsing a run is described: a judge's first."""
    return next((parser for parser in PARSERS if parser in there), there[0] if len(there) else "")


def comparison_figure(table: pd.DataFrame, title: Sequence[str]) -> Figure:
    """Left how often each run is right, right its paired difference to the first run.

    Both have 95 % intervals, a line a category; a difference whose interval leaves out zero is
    filled. ``table`` is from :func:`comparison_points`.
    """
    names, runs = list(dict.fromkeys(table["items"])), list(dict.fromkeys(table["run"]))
    height = 0.2 * len(names) * max(1.0, 0.45 * len(runs)) + 0.2 * (len(runs) // 3) + 1.7
    figure = style.new_figure(5.6 + 0.07 * max(map(len, names)), height)
    right, gain = figure.subplots(1, 2, sharey=True)
    handles = []
    for place, run in enumerate(runs):
        rows = table[table["run"] == run]
        lift = SPREAD * (2 * place / max(1, len(runs) - 1) - 1)
        y = np.array([names.index(name) for name in rows["items"]]) + lift
        colour, marker = (look[place % 8] for look in (style.COLOURS, style.MARKERS))
        _draw_intervals(right, rows[["value", "low", "high"]], y, colour, marker)
        if place:
            ends = ["difference", "difference_low", "difference_high"]
            _draw_intervals(gain, rows[ends], y, colour, marker, hollow=True)
        handles.append(style.sign(run, colour, marker=marker, linestyle="", markersize=5))
    counts = table.drop_duplicates("items").set_index("items")["n"]
    right.set_yticks(range(len(names)), labels=[f"{name} ({counts[name]})" for name in names])
    right.set(ylim=(len(names) - 0.5, -0.5), xlim=(-3, 103), xlabel="right (%)")
    gain.axvline(0.0, color="black", linewidth=0.7, zorder=1)
    gain.set_xlabel(f"difference to {runs[0]} (points)")
    for axis in (right, gain):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="x", color="0.9", linewidth=0.6)
    style.legend(figure, handles, 3)
    style.heading(figure, title, "Runs on the same items, with 95 % intervals")
    return figure


def _draw_intervals(
    axis: Axes, numbers: pd.DataFrame, y: np.ndarray, colour: str, marker: str, hollow: bool = False
) -> None:
    """Values with intervals, in percent; where ``hollow``, what may be zero is not filled."""
    value, low, high = 100 * numbers.to_numpy(dtype=float).T
    axis.hlines(y, low, high, color=colour, linewidth=1.2, zorder=2)
    face = [colour if clear else "white" for clear in (low > 0) | (high < 0) | (not hollow)]
    axis.scatter(value, y, s=18, c=face, edgecolors=colour, marker=marker, zorder=3)


def transfer_measures(table: pd.DataFrame) -> list[str]:
    """Measures of which some cell has a value, in the order of the panels."""
    there = set(table.loc[table["value"].notna(), "measure"])
    return [measure for measure in PANELS if measure in there]


def transfer_figure(table: pd.DataFrame, title: list[str]) -> Figure:
    """What was fitted on the rows, tested on the columns: a panel for each measure with values.

    Of each cell the value, its interval over clusters, and the 97.5 % quantile of its control; bold
    where it is above its control. Cells that cannot be compared are grey.

    Args:
        table: a row a cell: ``measure, fitted_on, tested_on, value, low, high, control_high,
            above``; parts in the order in which they are to stand.
        title: written over the figure.
    """
    names, measures = list(dict.fromkeys(table["fitted_on"])), transfer_measures(table)
    columns = min(3, max(1, len(measures)))
    rows = max(1, -(-len(measures) // columns))
    many = len(names) > WRITTEN_UP_TO
    side = max(2.2, (0.45 if many else 0.9) * len(names))
    figure = style.new_figure(columns * (side + 0.9) + 1.2, rows * (0.8 * side + 1.3) + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for place, panel in enumerate(panels):
        if place >= len(measures):
            panel.set_axis_off()
            continue
        words, colours, limits = PANELS[measures[place]]
        part = table[table["measure"] == measures[place]].set_index(["fitted_on", "tested_on"])
        numbers = part[["value", "low", "high", "control_high"]].to_numpy(dtype=float)
        ends = [f"\n{low:.2f} to {high:.2f}\n({top:.2f})" for _, low, high, top in numbers]
        part["text"] = [
            f"{n[0]:.2f}{'' if many else end}" for n, end in zip(numbers, ends, strict=True)
        ]
        square = {c: part[c].unstack().reindex(index=names, columns=names) for c in part}
        values, texts = square["value"].astype(float), square["text"].to_numpy()
        short = [name.replace(", ", "\n") for name in names]
        more: dict[str, Any] = {"xticklabels": short, "annot_kws": {"fontsize": 6.0}}
        more["yticklabels"] = short if place % columns == 0 else False
        mesh = style.heat(panel, values, colours, limits, texts, **more)
        filled = square["above"].to_numpy()[np.isfinite(values.to_numpy())]
        for text, above in zip(panel.texts, filled, strict=True):
            text.set_fontweight("bold" if above else "normal")
        panel.set(title=words, xlabel="tested on")
        panel.set_ylabel("fitted on" if place % columns == 0 else "")
        panel.tick_params(axis="x", length=0, rotation=90 if many else 0)
        figure.colorbar(mesh, ax=panel, fraction=0.05)
    words = "value, 95 % over clusters, (97.5 % of the control); bold: above its control"
    style.heading(figure, title, words)
    return figure


def group_accuracy(table: pd.DataFrame, parser: str, tag: str = "category") -> pd.DataFrame:
    """Accuracy of each group (film) in each category.

    Of answers with ``item_id``, ``story`` (the group), ``<parser>_correct``, ``tag_<tag>`` (values
    joined by ``|``; an item counts in each of them), and where they are there ``<parser>_invalid``
    (which counts as wrong) and ``hidden`` (left out). One row a group, one column a category (the
    paper's order, others after them, sorted), NaN where a group has no question of it.
    """
    kept = table[~_flags(table, "hidden")]
    right = kept[f"{parser}_correct"].astype(bool) & ~_flags(kept, f"{parser}_invalid")
    category = kept[f"tag_{tag}"].fillna("").astype(str).str.split("|")
    columns = {"group": kept["story"].astype(str), "category": category}
    rows = pd.DataFrame({**columns, "right": right.astype(float)}).explode("category")
    rows = rows[rows["category"].str.strip() != ""]
    if rows.empty:
        raise FigureError(f"no answer with a key has a {tag}")
    wide = rows.pivot_table(index="group", columns="category", values="right", aggfunc="mean")
    known = [name for name in CATEGORIES if name in wide.columns]
    return wide[known + sorted(set(wide.columns) - set(known))]


def _flags(table: pd.DataFrame, name: str) -> pd.Series:
    """A column of flags; where it or a value of it is missing, it is False."""
    return table.get(name, pd.Series(False, table.index)).fillna(False).astype(bool)


def category_correlations(
    table: pd.DataFrame, parser: str, tag: str = "category", level: float = 0.95
) -> pd.DataFrame:
    """Correlation of the accuracies of each two categories, over the groups that have both.

    Takes what :func:`group_accuracy` does, and the level of the intervals, of which groups are
    resampled.

    Returns:
        One row a pair: ``first``, ``second`` (in the order of the categories), ``correlation``,
        ``low``, ``high`` (percentile interval) and ``n``, the number of groups with both. The
        correlation is NaN where there are fewer than three groups or one of the two accuracies is
        the same in all of them; resamples of that kind are left out of the interval.
    """
    wide = group_accuracy(table, parser, tag)
    names = [str(name) for name in wide.columns]
    if len(names) < 2:
        raise FigureError(f"a correlation needs two values of {tag}; there is only {names[0]!r}")
    times = draw_groups(len(wide), method="multinomial").astype(int)
    taken = [wide.iloc[np.repeat(np.arange(len(wide)), one)] for one in times]
    whole, *resampled = (one.corr(min_periods=FEWEST).to_numpy() for one in [wide, *taken])
    there = wide.notna().to_numpy(dtype=int)
    rows = []
    for i, j in combinations(range(len(names)), 2):
        low, high = np.nan, np.nan
        if np.isfinite(whole[i, j]):
            low, high = percentile_interval(np.array([one[i, j] for one in resampled]), level)
        n = int(there[:, i] @ there[:, j])
        rows.append((names[i], names[j], float(whole[i, j]), low, high, n))
    return pd.DataFrame(rows, columns=["first", "second", "correlation", "low", "high", "n"])


def correlations_figure(table: pd.DataFrame, title: Sequence[str], tag: str = "category") -> Figure:
    """The lower triangle of the matrix of :func:`category_correlations`.

    A cell has the correlation, bold where its interval leaves out zero, and the number of groups.
    """
    names = list(dict.fromkeys([*table["first"], *table["second"]]))
    columns, rows = names[:-1], names[1:]
    large = len(columns) > 8
    cell = 5.0 / len(columns) if large else max(0.62, 1.6 / len(columns))
    longest = 0.075 * max(map(len, names))
    width = max(longest + cell * len(columns) + 1.8, 4.6)
    figure = style.new_figure(width, 0.72 * longest + cell * len(rows) + 1.3)
    axis = figure.subplots()
    square = table.pivot(index="second", columns="first").reindex(index=rows)
    cells = square["correlation"][columns]
    texts = np.full(cells.shape, "", dtype=object)
    if not large:
        counts = square["n"][columns].to_numpy()
        for at in zip(*np.nonzero(np.isfinite(cells.to_numpy())), strict=True):
            texts[at] = f"{style.number(cells.to_numpy()[at])}\nn = {counts[at]:.0f}"
    more = {"square": True, "yticklabels": rows, "xticklabels": columns}
    mesh = style.heat(axis, cells, style.DIVERGING + "_r", (-1.0, 1.0), texts, **more)
    clear = (square["low"][columns] > 0) | (square["high"][columns] < 0)
    for text, bold in zip(axis.texts, clear.to_numpy()[np.isfinite(cells.to_numpy())], strict=True):
        text.set_fontweight("bold" if bold else "normal")
    # What is above the diagonal is no cell; grey are pairs without a value.
    axis.pcolormesh(
        np.ma.masked_where(square["n"][columns].notna(), np.ones(cells.shape)),
        cmap="Greys_r",
        vmin=0,
        vmax=1,
    )
    axis.tick_params(length=0)
    axis.set_xticklabels(columns, rotation=40, ha="right", rotation_mode="anchor")
    bar = figure.colorbar(mesh, ax=axis, fraction=0.05, pad=0.03)
    bar.set_label("Pearson's correlation\nover films")
    notes = [] if large else ["n: films with both", "bold: the 95 % interval leaves out 0"]
    notes += ["grey: no value"] if table["correlation"].isna().any() else []
    figure.supxlabel("  ·  ".join(notes), fontsize=7.5, color="0.3")
    style.heading(figure, title, f"Accuracy in one {tag} against accuracy in another")
    return figure
