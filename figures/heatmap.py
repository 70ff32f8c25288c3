"""Layer x head heatmap of probe accuracy: figures 5 (A), 19 and 20 of the GridToM paper.

Colours part at chance: orange below, purple above. The ring marks the best head by validation
accuracy, whichever split is shown: test samples choose nothing. Heads whose validation accuracy is
above what the best of all heads reaches with permuted labels are outlined. To the right of each
panel stand the best and the mean of each layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sally_anne.core.errors import RunFolderError
from sally_anne.core.head import Head, best
from sally_anne.figures import style

CHANCE = 0.5
SIGNS: dict[str, dict[str, Any]] = {
    "layer": {"color": "#2D004B", "linewidth": 1.8},
    "mean": {"color": "0.45", "linewidth": 0.9},
    "chance": {"color": "0.35", "linewidth": 1.0, "linestyle": ":"},
    "null": {"color": style.RING, "linewidth": 1.2, "linestyle": "--"},
}


def accuracy_table(
    heads: pd.DataFrame, labels: Sequence[str], split: str, chance: float | None = None
) -> pd.DataFrame:
    """The numbers shown, a row a label and head.

    Columns ``label, layer, head, accuracy, best, threshold`` (the null's, of validation samples),
    ``above`` (whether the head's validation accuracy is above it) and ``chance``: the one given,
    else the table's, else a half.

    Raises:
        RunFolderError: the table has no accuracy of this label and split.
    """
    parts = []
    for label in labels:
        column = f"{label}_{split}_accuracy"
        if column not in heads or heads[column].isna().all():
            raise RunFolderError(f"the table of heads has no values of {column}")
        top = best(heads, label)
        part = heads[["layer", "head"]].astype("int64").reset_index(drop=True)
        part.insert(0, "label", label)
        part["accuracy"] = heads[column].to_numpy(dtype="float64")
        part["best"] = (part["layer"] == top.layer) & (part["head"] == top.head)
        null = heads.get(f"{label}_threshold", pd.Series(np.nan, heads.index))
        part["threshold"] = null.to_numpy(dtype="float64")
        validation = heads.get(f"{label}_validation_accuracy", heads[column])
        part["above"] = validation.to_numpy(dtype="float64") > part["threshold"]
        guessed = heads.get(f"{label}_{split}_chance", pd.Series([CHANCE]))
        part["chance"] = float(guessed.iloc[0]) if chance is None else chance
        parts.append(part.sort_values(["layer", "head"]))
    return pd.concat(parts, ignore_index=True)


def grid(table: pd.DataFrame, column: str = "accuracy") -> np.ndarray:
    """A column of a table of heads as ``[L, H]``; NaN where there is no such head."""
    cells = np.full((int(table["layer"].max()) + 1, int(table["head"].max()) + 1), np.nan)
    cells[table["layer"], table["head"]] = table[column]
    return cells


def colour_limits(table: pd.DataFrame) -> tuple[float, float]:
    """Ends of the colour scale, as far below chance as above: 1, or the worst head."""
    chance = float(table["chance"].iloc[0])
    reach = max(1.0 - chance, chance - float(table["accuracy"].min()))
    return chance - reach, chance + reach


def heatmap_figure(
    table: pd.DataFrame, split: str, samples: int | None, title: Sequence[str]
) -> Figure:
    """A panel for each label; a colour scale for each chance. ``table`` is of `accuracy_table`."""
    labels = list(dict.fromkeys(table["label"]))
    layers, heads = grid(table).shape
    width = max(2.4, min(4.3, 0.44 * heads))
    height = max(1.8, min(0.44, width / heads) * layers)
    one_scale = table["chance"].nunique() == 1
    bars = [not one_scale or label == labels[-1] for label in labels]
    widths = [w for bar in bars for w in (width, 0.75, *([0.16] if bar else []))]
    figure = style.new_figure(sum(widths) + 0.9 + 0.45 * len(labels), height + 1.75)
    axes = iter(figure.subplots(1, len(widths), width_ratios=widths))
    for label, has_bar in zip(labels, bars, strict=True):
        rows = table[table["label"] == label]
        best_row = next(rows[rows["best"]].itertuples())
        panel, profile, cells = next(axes), next(axes), grid(rows)
        limits = colour_limits(table if one_scale else rows)
        mesh = style.heat(panel, cells, style.DIVERGING, limits)
        style.outline(panel, grid(rows, "above") == 1)
        size = 72 * 0.8 * min(width / heads, height / layers)
        style.ring(panel, best_row.layer, best_row.head, min(max(size, 11), 26))
        where = "" if split == "validation" else " on validation"
        words = f"best{where}: {Head(best_row.layer, best_row.head)} ({best_row.accuracy:.2f})"
        panel.set(title=f"{style.named(label)}\n{words}", xlabel="head")
        panel.set_ylabel("layer (0 at the top)" if label == labels[0] else "")
        null = best_row.threshold if split == "validation" else np.nan
        _draw_profile(profile, cells, best_row.chance, null)
        if has_bar:
            count = f"\n(N = {samples} samples)" if samples else ""
            _draw_bar(next(axes), mesh, best_row.chance, f"{split} accuracy{count}")
    _legend(figure, table, split)
    style.heading(figure, title)
    return figure


def _draw_profile(panel: Axes, cells: np.ndarray, chance: float, null: float) -> None:
    """Best (thick) and mean (thin) accuracy of each layer, with chance and the null."""
    rows = np.arange(len(cells)) + 0.5
    panel.axvline(chance, **SIGNS["chance"])
    if np.isfinite(null):
        panel.axvspan(chance, null, color="0.92", linewidth=0, zorder=0)
        panel.axvline(null, **SIGNS["null"])
        panel.set_title(f"null {style.number(null)}", fontsize=7.5, color=style.RING, pad=3)
    panel.plot(np.nanmean(cells, axis=1), rows, **SIGNS["mean"])
    panel.plot(np.nanmax(cells, axis=1), rows, **SIGNS["layer"])
    low = min(chance, float(np.nanmin(np.nanmean(cells, axis=1))))
    panel.set(ylim=(len(cells), 0), xlim=(low - 0.03, 1.03), yticks=[], xlabel="by layer")
    panel.set_xticks([chance, 1.0], labels=[f"{chance:.2g}".removeprefix("0"), "1"])


def _draw_bar(axis: Axes, mesh: Any, chance: float, words: str) -> None:
    """The colour scale, with chance on it; no accuracy is below 0 or above 1."""
    bar = axis.figure.colorbar(mesh, cax=axis, label=words)
    low = max(0.0, float(mesh.get_clim()[0]))
    axis.set_ylim(low, 1.0)
    marks = [m / 10 for m in range(11) if m / 10 >= low and abs(m / 10 - chance) > 0.04]
    bar.set_ticks([*marks, chance], labels=[*(f"{m:.1f}" for m in marks), f"{chance:.2g} chance"])
    axis.axhline(chance, color="black", linewidth=1.6)


def _legend(figure: Figure, table: pd.DataFrame, split: str) -> None:
    """What ring, outlines and lines are; of the null only where there is one."""
    open_mark: dict[str, Any] = {"markerfacecolor": "none", "linestyle": "none"}
    open_mark |= {"markersize": 8, "markeredgewidth": 1.8}
    handles = [style.sign("best head on validation", style.RING, marker="o", **open_mark)]
    has_null = bool(table["threshold"].notna().any())
    if has_null:
        words = f"above the null{'' if split == 'validation' else ' on validation'}"
        handles.append(style.sign(words, "black", marker="s", **open_mark))
    handles += [style.sign("best of the layer", **SIGNS["layer"])]
    handles += [style.sign("mean of the layer", **SIGNS["mean"])]
    handles += [style.sign("chance", **SIGNS["chance"])]
    if has_null and split == "validation":
        handles.append(style.sign("null of permuted labels", **SIGNS["null"]))
    style.legend(figure, handles, 3 if figure.get_figwidth() > 7 else 2)
