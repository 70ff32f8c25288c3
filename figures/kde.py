"""Density of one head's activations on two directions: figure 5 (B) of the GridToM paper.

    python -m figures.kde RUN [--label y_p|y_o] [--layer L --head H]
                              [--directions probe|pca] [--split held-out|validation|test|...]

The horizontal axis is theta, the unit weight of the head's probe; the vertical one is theta',
the main direction of the activations orthogonal to it. The paper names "two orthogonal
directions with the maximum variance for separating true and false features" found by PCA;
``--directions pca`` takes the top two principal components instead. Directions are fitted on
training samples alone, and the samples shown are those held out. A group too small or too flat
for a density is shown as points, with a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from figures.choose import best, named
from figures.command import FigureConfig, run_command
from figures.density import no_density
from figures.plane import Plane, pca_plane, probe_plane
from figures.runs import Label, Run, Shown, select
from sally_anne.core.errors import ChoiceError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Frame = tuple[float, float]
Directions = Literal["probe", "pca"]
AXIS_TEXT = {
    "probe": ("projection on θ (probe direction)", "projection on θ′ (main direction ⊥ θ)"),
    "pca": ("projection on principal component 1", "projection on principal component 2"),
}


@dataclass(frozen=True)
class KdeConfig(FigureConfig):
    """Draw the density of one head's activations on two directions."""

    label: Label = "y_p"
    """Label that parts true from false samples."""
    layer: int | None = None
    """Layer of the head; the best head of the label if neither layer nor head is given."""
    head: int | None = None
    """Head in that layer."""
    directions: Directions = "probe"
    """probe: the probe's weight and the main direction off it; pca: two main directions."""
    split: Shown = "held-out"
    """Samples shown; held-out is validation and test. Directions are fitted on train."""

    @property
    def name(self) -> str:
        """File name without suffix; a choice that is not the default is part of it."""
        parts = ["kde"]
        parts += [self.label] if self.label != "y_p" else []
        parts += [f"l{self.layer}h{self.head}"] if self.layer is not None else []
        parts += [self.directions] if self.directions != "probe" else []
        parts += [self.split] if self.split != "held-out" else []
        return "_".join(parts)


def draw(config: KdeConfig) -> list[Path]:
    """Draw and save the density plot; return the paths written.

    Raises:
        FigureError: the run folder lacks what the figure needs, or the choice is not in it.
    """
    from figures import style

    run = Run.open(config.run)
    if (config.layer is None) != (config.head is None):
        raise ChoiceError("give --layer and --head together, or neither for the best head")
    if config.layer is None or config.head is None:
        chosen, why = best(run.heads, config.label), "best on validation"
    else:
        chosen, why = named(run.heads, config.layer, config.head), "as asked"
    items = run.items
    train, shown = select(items, "train"), select(items, config.split)
    activations = run.activations(*chosen)
    truth = items[config.label].to_numpy(dtype=bool)
    coef, intercept = run.probe(config.label, *chosen)
    if config.directions == "probe":
        plane = probe_plane(coef, activations[train], truth[train])
        boundary = _boundary(plane.line(coef, intercept))
    else:
        plane, boundary = pca_plane(activations[train], truth[train]), None
    table = projection_table(plane, activations[shown], items[shown], config.label)
    with style.look():
        figure = kde_figure(
            table,
            config.label,
            f"{chosen} ({why}), {config.split} samples",
            run.title,
            AXIS_TEXT[config.directions],
            boundary,
            plane.notes,
        )
        return style.save(figure, config.folder, config.name, table)


def projection_table(
    plane: Plane, activations: np.ndarray, items: pd.DataFrame, label: Label
) -> pd.DataFrame:
    """The numbers shown: ``item_id, split, condition, {label}, x, y``, one row a sample.

    ``activations [N, D]`` and ``items`` are those of the samples shown, in one order.
    """
    table = items[["item_id", "split", "condition", label]].reset_index(drop=True)
    table[label] = table[label].astype(bool)
    table[["x", "y"]] = plane.project(activations)
    return table


def kde_figure(
    table: pd.DataFrame,
    label: Label,
    subject: str,
    title: Sequence[str],
    axis_text: tuple[str, str] = AXIS_TEXT["probe"],
    boundary: float | None = None,
    notes: Sequence[str] = (),
) -> Figure:
    """Joint density with marginals on top and right; ``table`` is from `projection_table`.

    ``boundary`` is the x at which the probe says 0.5; it is drawn if it lies in the frame.
    """
    from figures import style

    figure = style.new_figure(5.2, 5.4)
    panels = figure.subplot_mosaic(
        [["top", "legend"], ["joint", "right"]],
        width_ratios=[4.2, 1],
        height_ratios=[1, 4.2],
    )
    joint, top, right = panels["joint"], panels["top"], panels["right"]
    x_frame, y_frame = _frame(table["x"]), _frame(table["y"])
    notes = list(notes)
    for value in (True, False):
        points = table.loc[table[label] == value, ["x", "y"]].to_numpy(dtype="float64")
        reason = _draw_joint(joint, points, value, x_frame, y_frame)
        if reason:
            notes.append(f"{style.LABEL_TEXT[label]} {_word(value)}: no density ({reason})")
        _draw_margin(top, points[:, 0], value, x_frame, across=True)
        _draw_margin(right, points[:, 1], value, y_frame, across=False)
    joint.set(xlim=x_frame, ylim=y_frame, xlabel=axis_text[0], ylabel=axis_text[1])
    top.set(xlim=x_frame)
    right.set(ylim=y_frame)
    crossed = boundary is not None and x_frame[0] < boundary < x_frame[1]
    if boundary is not None and crossed:
        for panel in (joint, top):
            panel.axvline(boundary, color="0.25", linewidth=1, linestyle=(0, (4, 3)), zorder=2.5)
    for panel in (top, right):
        panel.set(xticks=[], yticks=[], xlabel="", ylabel="")
        panel.tick_params(length=0)
    for side in ("top", "right", "left"):
        top.spines[side].set_visible(False)
    for side in ("top", "right", "bottom"):
        right.spines[side].set_visible(False)
    for side in ("top", "right"):
        joint.spines[side].set_visible(False)
    panels["legend"].set_axis_off()
    _legend(figure, table, label, crossed)
    style.write_notes(joint, notes)
    style.heading(figure, title, subject)
    return figure


def _boundary(line: tuple[float, float, float]) -> float | None:
    slope, _, offset = line
    return -offset / slope if slope else None


def _word(value: bool) -> str:
    return "true" if value else "false"


def _frame(values: pd.Series) -> Frame:
    low, high = float(values.min()), float(values.max())
    margin = 0.15 * (high - low)
    if margin <= 1e-9 * max(1.0, abs(low), abs(high)):
        margin = 0.5 * max(1.0, abs(low))
    return low - margin, high + margin


def _draw_joint(
    panel: Axes, points: np.ndarray, value: bool, x_frame: Frame, y_frame: Frame
) -> str | None:
    import numpy as np
    import seaborn

    from figures import style

    colour = style.TRUTH_COLOURS[value]
    scales = np.array([x_frame[1] - x_frame[0], y_frame[1] - y_frame[0]])
    reason = no_density(points / scales, 1.0)
    panel.scatter(
        points[:, 0],
        points[:, 1],
        s=9 if reason is None else 24,
        color=colour,
        marker=style.TRUTH_MARKERS[value],
        alpha=0.4 if reason is None else 0.9,
        linewidth=0,
        zorder=2,
    )
    if reason is None:
        shared = {
            "x": points[:, 0],
            "y": points[:, 1],
            "ax": panel,
            "levels": 6,
            "thresh": 0.08,
            "clip": (x_frame, y_frame),
        }
        seaborn.kdeplot(**shared, cmap=style.shades(colour), fill=True, alpha=0.45, zorder=1.5)
        seaborn.kdeplot(**shared, color=colour, linewidths=1.0, zorder=3)
    return reason


def _draw_margin(panel: Axes, values: np.ndarray, value: bool, frame: Frame, across: bool) -> None:
    import seaborn

    from figures import style

    colour = style.TRUTH_COLOURS[value]
    if no_density(values, frame[1] - frame[0]) is None:
        seaborn.kdeplot(
            **{"x" if across else "y": values},
            ax=panel,
            fill=True,
            alpha=0.3,
            color=colour,
            linewidth=1.2,
            clip=frame,
        )
    else:
        seaborn.rugplot(
            **{"x" if across else "y": values}, ax=panel, height=0.3, color=colour, linewidth=1.2
        )


def _legend(figure: Figure, table: pd.DataFrame, label: Label, crossed: bool) -> None:
    from matplotlib.lines import Line2D

    from figures import style

    handles = []
    for value in (True, False):
        count = int((table[label] == value).sum())
        handles.append(
            Line2D(
                [],
                [],
                color=style.TRUTH_COLOURS[value],
                marker=style.TRUTH_MARKERS[value],
                markersize=5,
                linewidth=1.2,
                label=f"{style.LABEL_TEXT[label]} {_word(value)} (n = {count})",
            )
        )
    if crossed:
        handles.append(
            Line2D([], [], color="0.25", linewidth=1, linestyle=(0, (4, 3)), label="probe at 0.5")
        )
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)


if __name__ == "__main__":
    run_command(KdeConfig, draw)
