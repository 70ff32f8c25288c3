"""Which heads are used, against which are readable: the columns of `sally-anne patch` as a picture.

For each kind of contrast pairs the normalised effect of patching each head, as a heatmap, and to
the right of it the same effects against the accuracy of the head's probe. A head is readable right
of the dashed line, which the best of all heads passes in one of twenty permutations of the labels;
it is used if its whole bar is above the dotted one, its equal part of the effect of all heads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sally_anne.core.head import Head
from sally_anne.core.run import conclusions
from sally_anne.figures import style
from sally_anne.figures.heatmap import grid

KINDS = {"question": "answer to the belief question", "statement": "truth of the statement"}
UNTESTED = "not tested"
COLOURS = {
    "readable and used": style.COLOURS[0],
    "used, not readable": style.COLOURS[2],
    "readable, not used": style.COLOURS[1],
    "neither readable nor used": style.MISSING,
    UNTESTED: style.MISSING,
}
NAMED = 5  # heads that are named at their points, of each kind


def kinds_of(heads: pd.DataFrame) -> list[str]:
    """The kinds of contrast pairs between which the heads of a table were patched."""
    return [kind for kind in KINDS if heads.get(f"{kind}_effect", pd.Series(dtype=float)).any()]


def patching_table(heads: pd.DataFrame, label: str) -> pd.DataFrame:
    """The numbers shown: a row a kind of pairs and head.

    Columns ``kind, layer, head, effect, low, high, accuracy, threshold, conclusion``: the effect on
    test pairs, the accuracy of the label's probe on validation samples.
    """
    columns = {
        "effect": "{kind}_effect",
        "low": "{kind}_effect_low",
        "high": "{kind}_effect_high",
        "accuracy": "{label}_validation_accuracy",
        "threshold": "{label}_threshold",
    }
    parts = []
    for kind in kinds_of(heads):
        part = heads[["layer", "head"]].astype("int64")
        part.insert(0, "kind", kind)
        for name, column in columns.items():
            part[name] = heads[column.format(kind=kind, label=label)].to_numpy(dtype="float64")
        # The scan leaves it empty where it cannot say what is used.
        tested = heads[f"{kind}_conclusion"] != ""
        part["conclusion"] = np.where(tested, conclusions(heads, kind, label), UNTESTED)
        parts.append(part.sort_values(["layer", "head"]))
    return pd.concat(parts, ignore_index=True)


def patching_figure(table: pd.DataFrame, label: str, probed: Head, title: list[str]) -> Figure:
    """A row of two panels a kind of pairs. ``table`` is from `patching_table`."""
    kinds = list(dict.fromkeys(table["kind"]))
    figure = style.new_figure(8.2, 3.5 * len(kinds) + 0.7)
    panels = figure.subplots(len(kinds), 2, squeeze=False)
    for (left, right), kind in zip(panels, kinds, strict=True):
        rows = table[table["kind"] == kind]
        cells = grid(rows, "effect")
        reach = max(0.1, float(np.nanmax(np.abs(cells))))
        mesh = style.heat(left, cells, style.DIVERGING, (-reach, reach))
        left.set(xlabel="head", ylabel="layer (0 at the top)")
        style.ring(left, probed.layer, probed.head)
        left.set_title(f"{KINDS[kind]}\nring: best probe, {probed}")
        figure.colorbar(mesh, ax=left, fraction=0.05, label="normalised effect")
        _draw_scatter(right, rows, label)
    there = [words for words in COLOURS if (table["conclusion"] == words).any()]
    dot: dict[str, Any] = {"marker": "o", "linestyle": "none"}
    style.legend(figure, [style.sign(words, COLOURS[words], **dot) for words in there], 4)
    style.heading(figure, title)
    return figure


def _draw_scatter(panel: Axes, rows: pd.DataFrame, label: str) -> None:
    colours = rows["conclusion"].map(COLOURS)
    panel.vlines(rows["accuracy"], rows["low"], rows["high"], colors=colours, linewidth=0.8)
    panel.scatter(rows["accuracy"], rows["effect"], c=colours, s=18, linewidths=0, zorder=3)
    threshold = float(rows["threshold"].iloc[0])
    if np.isfinite(threshold):
        panel.axvline(threshold, color="0.3", linestyle="--", linewidth=0.9)
    panel.axhline(1 / len(rows), color="0.3", linestyle=":", linewidth=0.9)
    place: Any = {"xytext": (4, 2), "textcoords": "offset points", "fontsize": 7.0}
    for _, row in rows.nlargest(NAMED, "effect").iterrows():
        name = str(Head(int(row["layer"]), int(row["head"])))
        panel.annotate(name, (row["accuracy"], row["effect"]), **place)
    panel.set_xlabel(f"validation accuracy of {style.symbol(label)}: readable")
    panel.set_ylabel("normalised effect: used")
    panel.set_title("used against readable\n(bars: 95 % over clusters)")
