"""Density of one head's activations on two directions: figure 5 (B) of the GridToM paper.

Across, theta, the unit weight of the head's probe; upwards, theta', the main direction orthogonal
to it; or the top two principal components, as the paper says. Both are of training samples alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from figures import style
from figures.choose import Shown, best, label_of, named, select
from figures.command import FigureConfig, figure_command, file_name
from figures.plane import pca_plane, probe_plane
from hooks.saved_run import Run
from sally_anne.core.errors import ChoiceError
from sally_anne.core.options import Natural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Frame = tuple[float, float]
Directions = Literal["probe", "pca"]
FEWEST = 3  # points that a kernel density needs
FLAT = 1e-7  # spread, as a part of the frame, below which points do not vary
AXIS_TEXT = {
    "probe": ("projection on θ (probe direction)", "projection on θ′ (main direction ⊥ θ)"),
    "pca": ("projection on principal component 1", "projection on principal component 2"),
}


@dataclass(frozen=True)
class KdeConfig(FigureConfig):
    """Draw the density of one head's activations on two directions."""

    label: str | None = None
    """Label that parts the samples; the run's first if not given."""
    layer: Natural | None = None
    """Layer of the head; the best head of the label if neither layer nor head is given."""
    head: Natural | None = None
    """Head in that layer."""
    directions: Directions = "probe"
    """probe: the probe's weight and the main direction off it; pca: two main directions."""
    split: Shown = "held-out"
    """Samples shown; held-out is validation and test. Directions are fitted on train."""


def draw(config: KdeConfig) -> list[Path]:
    """Draw and save the density plot; return the paths written."""
    run = Run.open(config.run)
    if (config.layer is None) != (config.head is None):
        raise ChoiceError("give --layer and --head together, or neither for the best head")
    label = label_of(run, config.label)
    if config.layer is None or config.head is None:
        chosen, why = best(run.heads, label), "best on validation"
    else:
        chosen, why = named(run.heads, config.layer, config.head), "as asked"
    samples = run.samples
    train, shown = select(samples, "train"), select(samples, config.split)
    activations = run.head_activations(*chosen)
    values = samples[label]
    binary = values.nunique() <= 2
    truth = values.to_numpy() == classes_of(values)[0]
    if config.directions == "probe" and binary:
        coef, intercept = run.probe(label, *chosen)
        plane = probe_plane(coef, activations[train], truth[train])
        boundary = _boundary(plane.line(coef, intercept))
    else:
        plane, boundary = pca_plane(activations[train], truth[train]), None
    table = plane.table(activations[shown], samples[shown], label)
    place = None if config.layer is None else f"l{config.layer}h{config.head}"
    choices = ((config.label, "y_p"), (place, None), (config.directions, "probe"))
    name = file_name("kde", *choices, (config.split, "held-out"))
    with style.look():
        figure = kde_figure(
            table,
            label,
            f"{chosen} ({why}), {config.split} samples",
            run.title,
            AXIS_TEXT[config.directions if binary else "pca"],
            boundary,
            plane.notes,
        )
        return style.save(figure, config.folder, name, table)


def classes_of(values: pd.Series) -> list[Any]:
    """The values of a label in the order of their colours; True comes before False."""
    return [True, False] if values.dtype == bool else sorted(values.unique(), key=str)


def kde_figure(
    table: pd.DataFrame,
    label: str,
    subject: str,
    title: Sequence[str],
    axis_text: tuple[str, str] = AXIS_TEXT["probe"],
    boundary: float | None = None,
    notes: Sequence[str] = (),
) -> Figure:
    """Joint density with marginals on top and right; ``table`` is from `Plane.table`.

    ``boundary`` is the x at which the probe says 0.5; it is drawn if it lies in the frame.
    """
    figure = style.new_figure(5.2, 5.4)
    ratios: dict[str, Any] = {"width_ratios": [4.2, 1], "height_ratios": [1, 4.2]}
    panels = figure.subplot_mosaic([["top", "legend"], ["joint", "right"]], **ratios)
    joint, top, right = panels["joint"], panels["top"], panels["right"]
    x_frame, y_frame = _frame(table["x"]), _frame(table["y"])
    notes, handles = list(notes), []
    found = classes_of(table[label])
    for value, colour, marker in zip(found, style.CLASS_COLOURS, style.CLASS_MARKERS, strict=False):
        points = table.loc[table[label] == value, ["x", "y"]].to_numpy(dtype="float64")
        reason = _draw_joint(joint, points, colour, marker, x_frame, y_frame)
        word = str(value).lower() if isinstance(value, bool | np.bool_) else str(value)
        name = f"{style.symbol(label)} {word}"
        if reason:
            notes.append(f"{name}: no density ({reason})")
        sign = {"marker": marker, "markersize": 5, "linewidth": 1.2}
        handles.append(style.sign(f"{name} (n = {len(points)})", colour, **sign))
        _draw_margin(top, points[:, 0], colour, x_frame, across=True)
        _draw_margin(right, points[:, 1], colour, y_frame, across=False)
    joint.set(xlim=x_frame, ylim=y_frame, xlabel=axis_text[0], ylabel=axis_text[1])
    top.set(xlim=x_frame)
    right.set(ylim=y_frame)
    if boundary is not None and x_frame[0] < boundary < x_frame[1]:
        dashed: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (4, 3))}
        for panel in (joint, top):
            panel.axvline(boundary, color="0.25", zorder=2.5, **dashed)
        handles.append(style.sign("probe at 0.5", "0.25", **dashed))
    for panel in (top, right):
        panel.set(xticks=[], yticks=[], xlabel="", ylabel="")
        panel.tick_params(length=0)
    top.spines[["top", "right", "left"]].set_visible(False)
    right.spines[["top", "right", "bottom"]].set_visible(False)
    joint.spines[["top", "right"]].set_visible(False)
    panels["legend"].set_axis_off()
    style.legend(figure, handles, 3)
    style.write_notes(joint, notes)
    style.heading(figure, title, subject)
    return figure


def no_density(points: np.ndarray, scale: float) -> str | None:
    """Why points ``[N]`` or ``[N, 2]`` in a picture of size ``scale`` have no kernel density."""
    if len(points) < FEWEST:
        return f"{len(points)} sample{'' if len(points) == 1 else 's'}"
    columns = points.reshape(len(points), -1)
    spread = np.linalg.svd(columns - columns.mean(axis=0), compute_uv=False)
    if spread[-1] / np.sqrt(len(points)) <= FLAT * scale:
        return "no variance" if spread[0] / np.sqrt(len(points)) <= FLAT * scale else "on one line"
    return None


def _boundary(line: tuple[float, float, float]) -> float | None:
    slope, _, offset = line
    return -offset / slope if slope else None


def _frame(values: pd.Series) -> Frame:
    low, high = float(values.min()), float(values.max())
    margin = 0.15 * (high - low)
    if margin <= 1e-9 * max(1.0, abs(low), abs(high)):
        margin = 0.5 * max(1.0, abs(low))
    return low - margin, high + margin


def _draw_joint(
    panel: Axes, points: np.ndarray, colour: str, marker: str, x_frame: Frame, y_frame: Frame
) -> str | None:
    import seaborn

    scales = np.array([x_frame[1] - x_frame[0], y_frame[1] - y_frame[0]])
    reason = no_density(points / scales, 1.0)
    size, alpha = (9, 0.4) if reason is None else (24, 0.9)
    x, y = points.T
    panel.scatter(x, y, s=size, color=colour, marker=marker, alpha=alpha, linewidth=0, zorder=2)
    if reason is None:
        common = {"x": x, "y": y, "ax": panel, "clip": (x_frame, y_frame)}
        common |= {"levels": 6, "thresh": 0.08}
        seaborn.kdeplot(**common, cmap=style.shades(colour), fill=True, alpha=0.45, zorder=1.5)
        seaborn.kdeplot(**common, color=colour, linewidths=1.0, zorder=3)
    return reason


def _draw_margin(panel: Axes, values: np.ndarray, colour: str, frame: Frame, across: bool) -> None:
    import seaborn

    common = {"x" if across else "y": values, "ax": panel, "color": colour, "linewidth": 1.2}
    if no_density(values, frame[1] - frame[0]) is None:
        seaborn.kdeplot(**common, fill=True, alpha=0.3, clip=frame)
    else:
        seaborn.rugplot(**common, height=0.3)


main = figure_command("kde", KdeConfig, draw)

if __name__ == "__main__":
    main()
