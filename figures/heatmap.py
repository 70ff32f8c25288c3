"""Maps of all heads, layers by heads: accuracies of probes, and effects of patching.

Accuracies are figures 5 (A), 19 and 20 of the GridToM paper. Ring and dots are of validation
samples, whichever split is shown. A head is readable right of the dashed line, the null of permuted
labels; used above the upper dotted line, used against below the lower, if its bar ends before zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sally_anne.core import run as saved_run
from sally_anne.core.errors import RunFolderError
from sally_anne.core.run import AGAINST, NOT_USED, USED, Head, heads_of, in_words, symbol
from sally_anne.data.items import KINDS
from sally_anne.figures import style

CHANCE = 0.5
UNTESTED = "not tested"
COLOURS = {
    in_words(True, USED): style.COLOURS[0],
    in_words(False, USED): style.COLOURS[2],
    in_words(True, AGAINST): style.COLOURS[5],
    in_words(False, AGAINST): style.COLOURS[3],
    in_words(True, NOT_USED): style.COLOURS[1],
    in_words(False, NOT_USED): style.MISSING,
    # Where nothing was permuted.
    USED: style.COLOURS[2],
    AGAINST: style.COLOURS[3],
    NOT_USED: style.MISSING,
    UNTESTED: style.MISSING,
}
# The perspective that a label is taken from.
OF = {"y_p": " (protagonist)", "y_o": " (omniscient)"}
NAMED = 5  # heads that are named at their points, of each kind


def accuracy_table(
    heads: pd.DataFrame, labels: Sequence[str], split: str, condition: str | None = None
) -> pd.DataFrame:
    """Accuracies, in one ``condition`` if it is given: a row a label and head.

    Columns ``label, layer, head, accuracy, best``, ``threshold`` and ``above`` (of the null, on
    validation samples) and ``chance``. A RunFolderError says which accuracies there are.
    """
    parts = []
    kind = condition or "accuracy"
    for label in labels:
        column = f"{label}_{split}_{kind}"
        if column not in heads or heads[column].isna().all():
            there = [str(name) for name in heads if str(name).endswith(f"_{kind}")]
            raise RunFolderError(
                f"the table of heads has no values of {column}; it has {', '.join(there) or 'none'}"
            )
        part = heads[["layer", "head"]].astype("int64")
        part.insert(0, "label", label)
        part["accuracy"] = heads[column].astype("float64")
        part["best"] = (part[["layer", "head"]] == list(saved_run.best(heads, label))).all(axis=1)
        part["threshold"] = heads.get(f"{label}_threshold", np.nan)
        validation = heads.get(f"{label}_validation_accuracy", heads[column])
        part["above"] = validation.astype("float64") > part["threshold"]
        part["chance"] = float(heads.get(f"{label}_{split}_chance", pd.Series([CHANCE])).iloc[0])
        parts.append(part.sort_values(["layer", "head"]))
    return pd.concat(parts, ignore_index=True)


def grid(table: pd.DataFrame, column: str = "accuracy") -> np.ndarray:
    """A column of a table of heads as ``[L, H]``, NaN where there is none."""
    cells = np.full((int(table["layer"].max()) + 1, int(table["head"].max()) + 1), np.nan)
    cells[table["layer"], table["head"]] = table[column]
    return cells


def colour_limits(table: pd.DataFrame) -> tuple[float, float]:
    """Ends of the colour scale, as far below chance as above."""
    chance = float(table["chance"].iloc[0])
    reach = max(chance, 1.0 - chance)
    return chance - reach, chance + reach


def heatmap_figure(
    table: pd.DataFrame, shown: str, samples: int | None, title: Sequence[str]
) -> Figure:
    """A panel for each label of `accuracy_table`; ``shown`` is its split, and condition."""
    labels = list(dict.fromkeys(table["label"]))
    layers, heads = grid(table).shape
    width = max(2.4, min(4.3, 0.44 * heads))
    height = max(1.8, min(0.44, width / heads) * layers)
    figure = style.new_figure((width + 1.2) * len(labels) + 0.4, height + 1.5)
    place = "" if shown == "validation" else " on validation"
    for panel, label in zip(figure.subplots(1, len(labels), squeeze=False)[0], labels, strict=True):
        rows = table[table["label"] == label]
        top = next(rows[rows["best"]].itertuples())
        mesh = style.heat(panel, grid(rows), style.DIVERGING, colour_limits(rows))
        y, x = np.nonzero(grid(rows, "above") == 1)
        panel.scatter(x + 0.84, y + 0.16, s=9, color="black", edgecolors="white", zorder=4)
        size = 58 * min(width / heads, height / layers)
        style.ring(panel, Head(top.layer, top.head), min(max(size, 11), 26))
        words = f"best{place}: {Head(top.layer, top.head)} ({top.accuracy:.2f})"
        words += f", null{place}: {top.threshold:.2f}" if np.isfinite(top.threshold) else ""
        panel.set_title(f"{symbol(label)}{OF.get(label, '')}\n{words}")
        panel.set(xlabel="head", ylabel="layer (0 at the top)")
        count = f" (N = {samples} samples)" if samples else ""
        bar = figure.colorbar(mesh, ax=panel, fraction=0.06, label=f"{shown} accuracy{count}")
        bar.ax.set_ylim(max(0.0, mesh.get_clim()[0]), 1.0)
        bar.set_ticks([0.0, top.chance, 1.0], labels=["0", f"{top.chance:.2g} chance", "1"])
    dot: dict[str, Any] = {"marker": "o", "ls": "none"}
    ring = dot | {"mfc": "none", "ms": 8, "mew": 1.8}
    handles = [style.sign("best head on validation", style.RING, **ring)]
    if table["threshold"].notna().any():
        words = f"above the null of permuted labels{place}"
        handles.append(style.sign(words, "black", ms=3.5, **dot))
    style.legend(figure, handles, 2)
    style.heading(figure, title)
    return figure


def kinds_of(heads: pd.DataFrame) -> list[str]:
    """The kinds of contrast pairs between which the heads of a table were patched."""
    return [k for k in KINDS if f"{k}_used" in heads and heads[f"{k}_effect"].notna().any()]


def patching_table(heads: pd.DataFrame, label: str) -> pd.DataFrame:
    """Effects on test pairs and accuracies on validation samples: a row a kind of pairs and head.

    Columns ``kind, layer, head, effect, low, high, against_below, used_above, accuracy, threshold,
    conclusion``.
    """
    parts = []
    for kind in kinds_of(heads):
        columns = {f"{kind}_effect{end}": end[1:] or "effect" for end in ("", "_low", "_high")}
        columns |= {f"{kind}_{end}": end for end in ("against_below", "used_above")}
        columns |= {f"{label}_validation_accuracy": "accuracy", f"{label}_threshold": "threshold"}
        part = heads[["layer", "head", *columns]].rename(columns=columns).astype("float64")
        part = part.astype({"layer": "int64", "head": "int64"})
        part.insert(0, "kind", kind)
        part["conclusion"] = [w or UNTESTED for w in saved_run.conclusions(heads, kind, label)]
        parts.append(part.sort_values(["layer", "head"]))
    return pd.concat(parts, ignore_index=True)


def patching_figure(
    table: pd.DataFrame, label: str, probed: Head, title: Sequence[str], asks: Callable[[str], str]
) -> Figure:
    """Two panels a kind of pairs of `patching_table`; ``probed`` has the label's best probe."""
    kinds = list(dict.fromkeys(table["kind"]))
    figure = style.new_figure(8.2, 3.5 * len(kinds) + 0.7)
    panels = figure.subplots(len(kinds), 2, squeeze=False)
    for (left, right), kind in zip(panels, kinds, strict=True):
        rows = table[table["kind"] == kind]
        cells = grid(rows, "effect")
        reach = max(0.1, float(np.nanmax(np.abs(cells))))
        mesh = style.heat(left, cells, style.DIVERGING, (-reach, reach))
        left.set(xlabel="head", ylabel="layer (0 at the top)")
        style.ring(left, probed)
        left.set_title(f"effect on the {asks(kind)}\nring: best probe, {probed}")
        figure.colorbar(mesh, ax=left, fraction=0.05, label="normalised effect")
        colours = rows["conclusion"].map(COLOURS)
        right.vlines(rows["accuracy"], rows["low"], rows["high"], colors=colours, linewidth=0.8)
        right.scatter(rows["accuracy"], rows["effect"], c=colours, s=18, linewidths=0, zorder=3)
        right.axvline(rows["threshold"].iloc[0], color="0.3", linestyle="--", linewidth=0.9)
        for end in rows[["used_above", "against_below"]].iloc[0]:
            right.axhline(end, color="0.3", linestyle=":", linewidth=0.9)
        right.set_xlabel(f"validation accuracy of {symbol(label)}: readable")
        right.set_ylabel("normalised effect: used")
        right.set_title("effect and accuracy of each head\n(bars: 95 % over maps or groups)")
    there = [words for words in COLOURS if (table["conclusion"] == words).any()]
    dot: dict[str, Any] = {"marker": "o", "ls": "none"}
    style.legend(figure, [style.sign(words, COLOURS[words], **dot) for words in there], 3)
    style.heading(figure, title)
    figure.canvas.figure.draw_without_rendering()  # what is named has its place by now
    for (_, right), kind in zip(panels, kinds, strict=True):
        rows = table[table["kind"] == kind]
        rows = rows.sort_values("effect", key=lambda effect: -effect.abs(), kind="stable")
        top = rows[rows["conclusion"].map(COLOURS) != style.MISSING].head(NAMED)
        at, points = (one[["accuracy", "effect"]].to_numpy() for one in (top, rows))
        style.name_points(right, at, heads_of(top), points)
    return figure
