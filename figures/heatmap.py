"""Layer x head heatmap of probe accuracy: figures 5 (A), 19 and 20 of the GridToM paper.

Rows are layers, columns heads in the model's own order. Colours part at chance: orange below, white
around it, purple above. The ring marks the best head by validation accuracy, whichever split is
shown: test samples choose nothing. Heads that on validation samples are above what the best of all
heads reaches with permuted labels are outlined. Beside each panel stand the best and the mean of
each layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sally_anne.core.errors import RunFolderError
from sally_anne.figures import style
from sally_anne.figures.choose import Split, best, label_of, select
from sally_anne.figures.command import FigureConfig, figure_command, file_name
from sally_anne.hooks.geometry import Head
from sally_anne.hooks.saved_run import Run, require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

CHANCE = 0.5
NUMBERS_UP_TO = 12  # the accuracy is written in each cell up to this many layers and heads
TICKS_UP_TO = 12
PROFILE = 0.75  # inches of the profile by layer
SIGNS: dict[str, dict[str, Any]] = {
    "layer": {"color": "#2D004B", "linewidth": 1.8},
    "mean": {"color": "0.45", "linewidth": 0.9},
    "chance": {"color": "0.35", "linewidth": 1.0, "linestyle": ":"},
    "null": {"color": style.RING, "linewidth": 1.2, "linestyle": "--"},
}


@dataclass(frozen=True)
class HeatmapConfig(FigureConfig):
    """Draw the layer x head heatmap of probe accuracy of a finished run."""

    split: Split = "validation"
    """Samples on which the accuracy was taken."""
    label: str = "all"
    """Label that the probes read, or all, a panel each."""


def draw(config: HeatmapConfig) -> list[Path]:
    """Draw and save the heatmap; return the paths written."""
    run = Run.open(config.run)
    labels = run.labels if config.label == "all" else (label_of(run, config.label),)
    shown = select(run.samples, config.split)
    chances = {label: chance_of(run.samples, label, shown) for label in labels}
    table = accuracy_table(run.heads, labels, config.split, chances)
    name = file_name("heatmap", (config.label, "all"), (config.split, "validation"))
    with style.look():
        figure = heatmap_figure(table, config.split, int(shown.sum()), run.title)
        return style.save(figure, config.folder, name, table)


def chance_of(samples: pd.DataFrame, label: str, shown: np.ndarray) -> float:
    """Accuracy on the samples ``shown`` of guessing what most training samples are."""
    train = samples.loc[samples["split"] == "train", label]
    most = (train if len(train) else samples[label]).mode()[0]
    return float((samples.loc[shown, label] == most).mean())


def accuracy_table(
    heads: pd.DataFrame,
    labels: Sequence[str],
    split: str,
    chances: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """The numbers shown, one row a cell.

    Columns ``label, layer, head, accuracy, best, threshold`` (the null's, of validation samples),
    ``above`` (whether the head's validation accuracy is above it) and ``chance``: as in
    ``chances``, else as the table says, or a half in those of earlier versions.
    """
    parts = []
    for label in labels:
        column = f"{label}_{split}_accuracy"
        require_columns(heads, [column], "heads.parquet")
        if heads[column].isna().all():
            raise RunFolderError(f"heads.parquet: {column} is empty, no sample was scored")
        ringed = best(heads, label)
        part = heads[["layer", "head"]].astype("int64").reset_index(drop=True)
        part.insert(0, "label", label)
        part["accuracy"] = heads[column].to_numpy(dtype="float64")
        part["best"] = (part["layer"] == ringed.layer) & (part["head"] == ringed.head)
        null = np.full(len(heads), np.nan)
        if f"{label}_threshold" in heads:
            null = heads[f"{label}_threshold"].to_numpy(dtype="float64")
        chosen_on = heads.get(f"{label}_validation_accuracy", heads[column])
        part["threshold"] = null
        part["above"] = chosen_on.to_numpy(dtype="float64") > null
        guessed = heads.get(f"{label}_{split}_chance", pd.Series([CHANCE]))
        part["chance"] = (chances or {}).get(label, float(guessed.iloc[0]))
        parts.append(part.sort_values(["layer", "head"]))
    return pd.concat(parts, ignore_index=True)


def grid(table: pd.DataFrame, label: str, column: str = "accuracy") -> np.ndarray:
    """A column of one label's rows as ``[L, H]``; NaN where the run has no such head."""
    rows = table[table["label"] == label]
    cells = np.full((int(table["layer"].max()) + 1, int(table["head"].max()) + 1), np.nan)
    cells[rows["layer"], rows["head"]] = rows[column]
    return cells


def colour_limits(table: pd.DataFrame) -> tuple[float, float]:
    """Ends of the colour scale, as far below chance as above: 1, or the worst head."""
    chance = float(table["chance"].iloc[0])
    reach = max(1.0 - chance, chance - float(table["accuracy"].min()))
    return chance - reach, chance + reach


def _ticks(count: int) -> list[int]:
    """Which of 0 .. count - 1 to write on an axis: all if few, else every 4th, 8th, ..."""
    step = 1
    while -(-count // step) > TICKS_UP_TO:
        step = 4 if step == 1 else step * 2
    return list(range(0, count, step))


def heatmap_figure(
    table: pd.DataFrame, split: str, samples: int | None, title: Sequence[str]
) -> Figure:
    """A panel for each label; a colour scale for each chance. ``table`` is of `accuracy_table`."""
    labels = list(dict.fromkeys(table["label"]))
    layers, heads = grid(table, labels[0]).shape
    side = min(0.44, 4.3 / max(layers, heads))  # inches; cells are square but in tiny models
    cell = (max(side, 2.2 / heads), max(side, 1.6 / layers))
    size = cell[0] * heads, cell[1] * layers
    one_scale = table["chance"].nunique() == 1
    figure, places = _place(*size, len(labels), one_scale, split, title)
    for label, (panel, beside, bar_axis) in zip(labels, places, strict=True):
        own = table[table["label"] == label]
        limits = colour_limits(table if one_scale else own)
        rows = own[own["best"]].iloc[0]
        null = float(rows["threshold"]) if split == "validation" else np.nan
        cells = grid(table, label)
        mesh = _draw_panel(panel, cells, limits, cell)
        style.outline(panel, grid(table, label, "above") == 1, 1.8)
        _draw_profile(beside, cells, float(rows["chance"]), null)
        ringed = Head(int(rows["layer"]), int(rows["head"]))
        _ring(panel, ringed, 72 * min(cell))
        best_text = "best: " if split == "validation" else "best on validation:\n"
        panel.set_title(f"{style.named(label)}\n{best_text}{ringed} ({rows['accuracy']:.2f})")
        if bar_axis is not None:
            _draw_bar(bar_axis, mesh, float(rows["chance"]))
            count = f"\n(N = {samples} samples)" if samples else ""
            bar_axis.set_ylabel(f"{split} accuracy{count}")
    places[0][0].set_ylabel("layer (0 at the top)")
    _legend(figure, table, split)
    style.heading(figure, title)
    return figure


def _place(
    width: float, height: float, count: int, one_scale: bool, split: str, title: Sequence[str]
) -> tuple[Figure, list[tuple[Axes, Axes, Axes | None]]]:
    """In a row panels of ``width`` x ``height`` inches, each with profile; bars, or one at the end.

    None stands for the bar of a panel whose scale is that of the last.
    """
    left, gap, beside, below, words = 0.55, 0.4, 0.16, 0.95, 1.15  # inches
    block = width + beside / 2 + PROFILE
    bar = 2 * beside + words
    bars = [not one_scale or number == count - 1 for number in range(count)]
    whole = left + count * block + (count - 1) * gap + sum(bars) * bar
    title_lines = 2 if split == "validation" else 3
    heading_lines = len(style.heading_lines(title, whole))
    high = below + height + 0.17 * title_lines + 0.16 * heading_lines + 0.26
    figure = style.new_figure(whole, high, arrange=False)

    def axes(start: float, wide: float) -> Axes:
        return figure.add_axes((start / whole, below / high, wide / whole, height / high))

    widths = [block + gap + has_bar * bar for has_bar in bars]
    starts = [left + sum(widths[:number]) for number in range(count)]
    panels = [axes(start, width) for start in starts]
    profiles = [axes(start + width + beside / 2, PROFILE) for start in starts]
    scales = [
        axes(start + block + beside, beside) if has_bar else None
        for start, has_bar in zip(starts, bars, strict=True)
    ]
    return figure, list(zip(panels, profiles, scales, strict=True))


def _draw_profile(panel: Axes, cells: np.ndarray, chance: float, null: float) -> None:
    """Best (thick) and mean (thin) accuracy of each layer, beside chance and the null."""
    layers = np.arange(len(cells))
    panel.axvline(chance, **SIGNS["chance"])
    if np.isfinite(null):
        panel.axvspan(chance, null, color="0.92", linewidth=0, zorder=0)
        panel.axvline(null, **SIGNS["null"])
        words = f"null {null:.2f}".replace(" 0", " ")
        panel.set_title(words, fontsize=7.5, color=style.RING, pad=3)
    panel.plot(np.nanmean(cells, axis=1), layers, **SIGNS["mean"])
    panel.plot(np.nanmax(cells, axis=1), layers, **SIGNS["layer"])
    panel.set_ylim(len(cells) - 0.5, -0.5)
    low = min(chance, float(np.nanmin(np.nanmean(cells, axis=1))))
    panel.set_xlim(low - 0.03, 1.03)
    panel.set_xticks([chance, 1.0], labels=[f"{chance:.2g}".removeprefix("0"), "1"])
    panel.set_yticks([])
    panel.set_xlabel("by layer")


def _draw_bar(axis: Axes, mesh: QuadMesh, chance: float) -> None:
    """The colour scale, with chance on it; no accuracy is below 0 or above 1."""
    bar = axis.figure.colorbar(mesh, cax=axis)
    low = max(0.0, float(mesh.get_clim()[0] or 0.0))
    axis.set_ylim(low, 1.0)
    marks = [m / 10 for m in range(11) if m / 10 >= low and abs(m / 10 - chance) > 0.04]
    bar.set_ticks([*marks, chance], labels=[*(f"{m:.1f}" for m in marks), f"{chance:.2g} chance"])
    axis.axhline(chance, color="black", linewidth=1.6)


def _legend(figure: Figure, table: pd.DataFrame, split: str) -> None:
    """What ring, outlines and lines are; of the null only where there is one."""
    ring = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "linestyle": "none"}
    handles = [style.sign("best head on validation", style.RING, markeredgewidth=1.8, **ring)]
    handles += [style.sign("best of the layer", **SIGNS["layer"])]
    handles += [style.sign("mean of the layer", **SIGNS["mean"])]
    handles += [style.sign("chance", **SIGNS["chance"])]
    if table["threshold"].notna().any():
        there = "" if split == "validation" else "on validation "
        words = f"{there}above the null of permuted labels"
        box = {"marker": "s", "markersize": 8, "markerfacecolor": "none", "linestyle": "none"}
        handles.insert(1, style.sign(words, "black", markeredgewidth=1.8, **box))
        if split == "validation":
            handles.append(style.sign("null", **SIGNS["null"]))
    wide = figure.get_figwidth() > 7
    more: dict[str, Any] = {"loc": "lower center", "frameon": False, "columnspacing": 1.4}
    figure.legend(handles=handles, ncols=3 if wide else 2, **more)


def _draw_panel(
    panel: Axes, cells: np.ndarray, limits: tuple[float, float], cell: tuple[float, float]
) -> QuadMesh:
    layers, heads = cells.shape
    line = 0.8 if min(cell) > 0.3 else 0.25
    mesh = style.cells(panel, cells, style.DIVERGING, limits, line)
    panel.set_facecolor(style.MISSING)
    panel.set_aspect(cell[1] / cell[0])
    panel.set_xticks(_ticks(heads))
    panel.set_yticks(_ticks(layers))
    panel.tick_params(length=2.5, labelleft=True)
    panel.set_xlabel("head")
    if max(layers, heads) <= NUMBERS_UP_TO:
        middle, reach = sum(limits) / 2, (limits[1] - limits[0]) / 2
        for (layer, head), value in np.ndenumerate(cells):
            if np.isfinite(value):
                text = f"{value:.2f}".removeprefix("0")
                colour = "white" if abs(value - middle) > 0.6 * reach else "black"
                style.write(panel, head, layer, text, 7.5, colour)
    return mesh


def _ring(panel: Axes, head: Head, cell_points: float) -> None:
    from matplotlib.patheffects import Normal, Stroke

    panel.plot(
        [head.head],
        [head.layer],
        marker="o",
        markersize=min(max(0.86 * cell_points, 11.0), 28.0),
        markerfacecolor="none",
        markeredgecolor=style.RING,
        markeredgewidth=1.8,
        linestyle="none",
        clip_on=False,
        path_effects=[Stroke(linewidth=3.4, foreground="white"), Normal()],
        zorder=5,
    )


main = figure_command("heatmap", HeatmapConfig, draw)
