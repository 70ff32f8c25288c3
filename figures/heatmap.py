"""Layer x head heatmap of probe accuracy: figures 5 (A), 19 and 20 of the GridToM paper.

Rows are layers, columns heads in the model's own order; all labels share one green scale. The ring
marks the best head by validation accuracy, whichever split is shown: test samples choose nothing.
Beside each panel stand the best and the mean of each layer, and what the best of all heads reaches
with permuted labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from figures import style
from figures.choose import Head, Split, best, label_of, select
from figures.command import FigureConfig, figure_command, file_name
from hooks.saved_run import Run, require_columns
from sally_anne.core.errors import RunFolderError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

CHANCE = 0.5
NUMBERS_UP_TO = 12  # the accuracy is written in each cell up to this many layers and heads
TICKS_UP_TO = 12
PROFILE = 0.6  # inches of the profile by layer


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
    table = accuracy_table(run.heads, labels, config.split)
    samples = int(select(run.samples, config.split).sum())
    name = file_name("heatmap", (config.label, "all"), (config.split, "validation"))
    with style.look():
        figure = heatmap_figure(table, config.split, samples, run.title)
        return style.save(figure, config.folder, name, table)


def accuracy_table(heads: pd.DataFrame, labels: Sequence[str], split: str) -> pd.DataFrame:
    """The numbers shown: columns ``label, layer, head, accuracy, best``, one row a cell."""
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
        null = heads.get(f"{label}_threshold") if split == "validation" else None
        part["threshold"] = np.nan if null is None else null.to_numpy(dtype="float64")
        parts.append(part.sort_values(["layer", "head"]))
    return pd.concat(parts, ignore_index=True)


def grid(table: pd.DataFrame, label: str) -> np.ndarray:
    """Accuracy ``[L, H]`` of one label; NaN where the run has no such head."""
    rows = table[table["label"] == label]
    cells = np.full((int(table["layer"].max()) + 1, int(table["head"].max()) + 1), np.nan)
    cells[rows["layer"], rows["head"]] = rows["accuracy"]
    return cells


def colour_limits(table: pd.DataFrame) -> tuple[float, float]:
    """Ends of the colour scale: 1 above; below, chance or the tenth under the worst head."""
    worst = float(table["accuracy"].min())
    return min(CHANCE, np.floor(round(worst * 10, 6)) / 10), 1.0


def _ticks(count: int) -> list[int]:
    """Which of 0 .. count - 1 to write on an axis: all if few, else every 4th, 8th, ..."""
    step = 1
    while -(-count // step) > TICKS_UP_TO:
        step = 4 if step == 1 else step * 2
    return list(range(0, count, step))


def heatmap_figure(
    table: pd.DataFrame, split: str, samples: int | None, title: Sequence[str]
) -> Figure:
    """One panel a label on a shared colour scale. ``table`` is from `accuracy_table`."""
    labels = list(dict.fromkeys(table["label"]))
    grids = [grid(table, label) for label in labels]
    layers, heads = grids[0].shape
    side = min(0.44, 4.3 / max(layers, heads))  # inches; cells are square but in tiny models
    cell = (max(side, 2.2 / heads), max(side, 1.6 / layers))
    size = cell[0] * heads, cell[1] * layers
    figure, panels, profiles, bar_axis = _place(*size, len(labels), split, title)
    limits = colour_limits(table)
    for panel, beside, label, cells in zip(panels, profiles, labels, grids, strict=True):
        rows = table[(table["label"] == label) & table["best"]]
        null = float(rows["threshold"].iloc[0])
        mesh = _draw_panel(panel, cells, limits, cell, null)
        _draw_profile(beside, cells, limits, null)
        ringed = Head(int(rows["layer"].iloc[0]), int(rows["head"].iloc[0]))
        _ring(panel, ringed, 72 * min(cell))
        best_text = "best: " if split == "validation" else "best on validation:\n"
        panel.set_title(
            f"{style.named(label)}\n{best_text}{ringed} ({rows['accuracy'].iloc[0]:.2f})"
        )
    panels[0].set_ylabel("layer (0 at the top)")
    bar = figure.colorbar(mesh, cax=bar_axis)
    bar.set_label(f"{split} accuracy" + (f"\n(N = {samples} samples)" if samples else ""))
    marks = [limits[0] + 0.1 * i for i in range(round((limits[1] - limits[0]) * 10) + 1)]
    bar.set_ticks(
        marks, labels=[f"{m:.1f}" + (" chance" if abs(m - CHANCE) < 1e-9 else "") for m in marks]
    )
    bar.ax.axhline(CHANCE, color="black", linewidth=1.6)
    for null in {round(null, 2) for null in table["threshold"] if limits[0] < null < limits[1]}:
        bar.ax.axhline(null, color=style.RING, linewidth=1.4)
        font: dict[str, Any] = {"fontsize": 7.0, "color": style.RING}
        bar.ax.text(2.7, null, "null", va="center", transform=bar.ax.get_yaxis_transform(), **font)
    style.heading(figure, title)
    return figure


def _place(
    width: float, height: float, count: int, split: str, title: Sequence[str]
) -> tuple[Figure, list[Axes], list[Axes], Axes]:
    """Panels of ``width`` x ``height`` inches in a row, each with its profile; then the bar."""
    left, gap, beside, below = 0.55, 0.4, 0.16, 0.46  # inches; beside: bar, and space before it
    block = width + beside / 2 + PROFILE
    whole = left + count * block + (count - 1) * gap + 2 * beside + 1.15
    title_lines = 2 if split == "validation" else 3
    heading_lines = len(style.heading_lines(title, whole))
    high = below + height + 0.17 * title_lines + 0.16 * heading_lines + 0.26
    figure = style.new_figure(whole, high, arrange=False)
    starts = [left + i * (block + gap) for i in range(count)]

    def axes(start: float, wide: float) -> Axes:
        return figure.add_axes((start / whole, below / high, wide / whole, height / high))

    panels = [axes(start, width) for start in starts]
    profiles = [axes(start + width + beside / 2, PROFILE) for start in starts]
    return figure, panels, profiles, axes(starts[-1] + block + beside, beside)


def _draw_profile(panel: Axes, cells: np.ndarray, limits: tuple[float, float], null: float) -> None:
    """Best (thick) and mean (thin) accuracy of each layer, beside chance and the null."""
    layers = np.arange(len(cells))
    panel.axvline(CHANCE, color="0.6", linewidth=0.8, linestyle=":")
    if np.isfinite(null):
        panel.axvline(null, color=style.RING, linewidth=1.0, linestyle="--")
    panel.plot(np.nanmean(cells, axis=1), layers, color="0.45", linewidth=0.9)
    panel.plot(np.nanmax(cells, axis=1), layers, color="#00441B", linewidth=1.8)
    panel.set_ylim(len(cells) - 0.5, -0.5)
    panel.set_xlim(limits[0] - 0.02, limits[1] + 0.02)
    panel.set_xticks([CHANCE, 1.0], labels=[".5", "1"])
    panel.set_yticks([])
    panel.set_xlabel("best, mean")


def _draw_panel(
    panel: Axes,
    cells: np.ndarray,
    limits: tuple[float, float],
    cell: tuple[float, float],
    null: float,
) -> QuadMesh:
    layers, heads = cells.shape
    line = 0.8 if min(cell) > 0.3 else 0.25
    mesh = style.cells(panel, cells, style.SEQUENTIAL, limits, line)
    panel.set_facecolor(style.MISSING)
    panel.set_aspect(cell[1] / cell[0])
    panel.set_xticks(_ticks(heads))
    panel.set_yticks(_ticks(layers))
    panel.tick_params(length=2.5, labelleft=True)
    panel.set_xlabel("head")
    if max(layers, heads) <= NUMBERS_UP_TO:
        middle = limits[0] + 0.6 * (limits[1] - limits[0])
        for (layer, head), value in np.ndenumerate(cells):
            if np.isfinite(value):
                text = f"{value:.2f}".removeprefix("0")
                colour = "white" if value > middle else "black"
                style.write(panel, head, layer, text, 7.5, "0.55" if value <= null else colour)
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

if __name__ == "__main__":
    main()
