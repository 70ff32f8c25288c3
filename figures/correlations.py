"""How accuracies in two kinds of questions go together: figures 9 and 10 of the MimeQA paper.

A cell is Pearson's correlation over the films (groups) that have both kinds, with their number,
bold where the 95 % interval, a bootstrap over films, leaves out zero. The paper names no
coefficient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sally_anne.core.bootstrap import draw_groups, percentile_interval
from sally_anne.core.errors import ChoiceError
from sally_anne.data.mimeqa import CATEGORIES
from sally_anne.figures import style

FEWEST = 3  # groups that a correlation needs: any two points lie on a line


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
        raise ChoiceError(f"no answer with a key has a {tag}")
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
        raise ChoiceError(f"a correlation needs two values of {tag}; there is only {names[0]!r}")
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
    """The lower triangle of the matrix; ``table`` is from :func:`category_correlations`."""
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
    limit = limit_of(table)
    more = {"square": True, "yticklabels": rows, "xticklabels": columns}
    mesh = style.heat(axis, cells, style.DIVERGING + "_r", (-limit, limit), texts, **more)
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


def limit_of(table: pd.DataFrame) -> float:
    """End of the colour scale: the tenth above the strongest correlation, at least 0.3."""
    strongest = float(table["correlation"].abs().max())
    if not math.isfinite(strongest):
        return 0.3
    return max(0.3, min(1.0, math.ceil(round(10 * strongest, 6)) / 10))
