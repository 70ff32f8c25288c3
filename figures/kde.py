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

from sally_anne.core.errors import ChoiceError
from sally_anne.core.options import Natural
from sally_anne.figures import style
from sally_anne.figures.choose import Shown, best, label_of, named, select
from sally_anne.figures.command import FigureConfig, figure_command, file_name
from sally_anne.figures.plane import pca_plane, probe_plane
from sally_anne.hooks.saved_run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Frame = tuple[float, float]
Directions = Literal["probe", "pca"]
FEWEST = 3  # points that a kernel density needs
GRID = 160  # places along each axis at which a density is worked out
REACH = 3.0  # widths at which a kernel ends
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
    classes = classes_of(values)
    truth = values.to_numpy() == classes[0]
    binary = len(run.saved.get("labels", {}).get(label, ())) <= 2
    logits = logits_of(run, label, *chosen, activations)
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
    told = told_by(logits[shown], values[shown], classes)
    with style.look():
        figure = kde_figure(
            table,
            label,
            f"{chosen} ({why}), {config.split} samples",
            [told, *run.title],
            AXIS_TEXT[config.directions if binary else "pca"],
            boundary,
            plane.notes,
        )
        return style.save(figure, config.folder, name, table)


def logits_of(run: Run, label: str, layer: int, head: int, z: np.ndarray) -> np.ndarray:
    """What a head's probe gives each class of ``z [N, D]``, ``[N, C]`` as :func:`classes_of`."""
    classes = classes_of(run.samples[label])
    if f"{label}.coef" in run.probes and run.probes[f"{label}.coef"].ndim == 4:
        coef, intercept = (run.probes[f"{label}.{p}"][layer, head] for p in ("coef", "intercept"))
        order = [run.saved["labels"][label].index(value) for value in classes]
        return (z @ coef.T.astype("float64") + intercept)[:, order]
    coef, intercept = run.probe(label, layer, head)
    scores = z @ coef + intercept
    # Of two classes the second is what the probe calls true; True is the first in colours.
    true_first = run.samples[label].dtype == bool
    return np.stack([scores, -scores] if true_first else [-scores, scores], axis=1)


def guessed(logits: np.ndarray, values: pd.Series) -> np.ndarray:
    """Which class ``logits [N, C]`` tell; of two the true one, or second, above 0 alone."""
    if logits.shape[1] > 2:
        return logits.argmax(axis=1)
    positive = 0 if values.dtype == bool else 1
    return np.where(logits[:, positive] > 0, positive, 1 - positive)


def told_by(logits: np.ndarray, values: pd.Series, classes: Sequence[Any]) -> str:
    """Accuracy and, of two classes, AUC of ``logits [N, C]``, in words."""
    from sklearn.metrics import roc_auc_score

    truth = np.array([classes.index(value) for value in values])
    said = f"accuracy {(guessed(logits, values) == truth).mean():.3f}"
    if logits.shape[1] != 2 or len(set(truth)) != 2:
        return said
    return f"{said}, AUC {roc_auc_score(truth, logits[:, 1]):.3f}"


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
    figure = style.new_figure(5.2, 5.6)
    ratios: dict[str, Any] = {"width_ratios": [4.2, 1], "height_ratios": [1, 4.2]}
    panels = figure.subplot_mosaic([["top", "legend"], ["joint", "right"]], **ratios)
    joint, top, right = panels["joint"], panels["top"], panels["right"]
    x_frame, y_frame = (_frame(table, axis, label) for axis in "xy")
    scales = np.array([x_frame[1] - x_frame[0], y_frame[1] - y_frame[0]])
    places = [np.linspace(*frame, GRID) for frame in (x_frame, y_frame)]
    notes, handles = list(notes), []
    for value, colour, marker in zip(
        classes_of(table[label]), style.CLASS_COLOURS, style.CLASS_MARKERS, strict=False
    ):
        points = table.loc[table[label] == value, ["x", "y"]].to_numpy(dtype="float64")
        word = str(value).lower() if isinstance(value, bool | np.bool_) else str(value)
        name = f"{style.symbol(label)} {word}"
        reason = no_density(points / scales, 1.0)
        size, alpha = (9, 0.4) if reason is None else (24, 0.9)
        dots: dict[str, Any] = {"s": size, "alpha": alpha, "linewidth": 0, "zorder": 2}
        joint.scatter(*points.T, color=colour, marker=marker, **dots)
        if reason:
            notes.append(f"{name}: no density ({reason})")
        across, upwards = heap(points[:, 0], x_frame, boundary), heap(points[:, 1], y_frame)
        if reason is None:
            _draw_joint(joint, places, across, upwards, colour)
        _draw_margin(top, points[:, 0], across, x_frame, colour, across=True)
        _draw_margin(right, points[:, 1], upwards, y_frame, colour, across=False)
        sign = {"marker": marker, "markersize": 5, "linewidth": 1.2}
        handles.append(style.sign(f"{name} (n = {len(points)})", colour, **sign))
    joint.set(xlim=x_frame, ylim=y_frame, xlabel=axis_text[0], ylabel=f"{axis_text[1]}\n")
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
    top.set_ylim(bottom=0)
    right.set_xlim(left=0)
    top.spines[["top", "right", "left"]].set_visible(False)
    right.spines[["top", "right", "bottom"]].set_visible(False)
    joint.spines[["top", "right"]].set_visible(False)
    panels["legend"].set_axis_off()
    style.legend(figure, handles, 3)
    style.write_notes(joint, notes)
    style.heading(figure, title, subject)
    figure.draw_without_rendering()  # only now is it known how large the axes are
    larger = float(joint.bbox.height / scales[1] / (joint.bbox.width / scales[0]))
    joint.set_ylabel(f"{axis_text[1]}\na unit is drawn {larger:.2g} times as long as across")
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


def spread_of(values: np.ndarray) -> float:
    """Standard deviation ``[N]`` by the shortest interval that holds half of them.

    Of a class in two heaps it is that of one, not of the gap between them.
    """
    ordered, half = np.sort(values), -(-len(values) // 2)
    shortest = float((ordered[half - 1 :] - ordered[: len(ordered) - half + 1]).min())
    whole = float(values.std())
    return min(whole, shortest / 1.349) if shortest > 0 else whole


def width_of(values: np.ndarray) -> float:
    """Width of a class's kernels along one axis, by the rule of thumb for two dimensions."""
    return spread_of(values) * len(values) ** (-1 / 6)


def heap(values: np.ndarray, frame: Frame, boundary: float | None = None) -> np.ndarray:
    """What each of ``values [N]`` gives a density at the places of a frame, ``[GRID, N]``.

    Gaussian kernels, cut at REACH widths. Their width is by the class's own spread; next to the
    boundary it is less, for samples on the side on which the class has its middle: where all stand
    on their side of it, no density crosses.
    """
    places = np.linspace(*frame, GRID)
    if not len(values):
        return np.zeros((GRID, 0))
    least = (frame[1] - frame[0]) / GRID
    widths = np.full(len(values), max(width_of(values), least))
    if boundary is not None:
        side = np.sign(np.median(values) - boundary)
        room = (values - boundary) * side / REACH
        widths = np.where(room > 0, np.minimum(widths, np.maximum(room, least / REACH)), widths)
    off = (places[:, None] - values) / widths
    kernels = np.where(np.abs(off) < REACH, np.exp(-0.5 * off**2) / widths, 0.0)
    return kernels / np.sqrt(2 * np.pi)


def _boundary(line: tuple[float, float, float]) -> float | None:
    slope, _, offset = line
    return -offset / slope if slope else None


def _frame(table: pd.DataFrame, axis: str, label: str) -> Frame:
    """Ends of an axis: beyond all samples by so much that hardly any density is cut."""
    low, high = float(table[axis].min()), float(table[axis].max())
    widest = max(width_of(own.to_numpy()) for _, own in table.groupby(label)[axis])
    margin = max(0.15 * (high - low), 2.5 * widest)
    if margin <= 1e-9 * max(1.0, abs(low), abs(high)):
        margin = 0.5 * max(1.0, abs(low))
    return low - margin, high + margin


def levels_of(density: np.ndarray) -> np.ndarray:
    """Heights of a density's contours: below them lie 8 %, 26 %, ... of its mass."""
    heights = np.sort(density, axis=None)
    mass = np.cumsum(heights) / heights.sum()
    return np.unique(heights[np.searchsorted(mass, np.linspace(0.08, 1.0, 6)[:-1])])


def _draw_joint(
    panel: Axes, places: list[np.ndarray], across: np.ndarray, upwards: np.ndarray, colour: str
) -> None:
    density = upwards @ across.T / across.shape[1]
    levels = levels_of(density)
    ends = [*levels, 1.001 * float(density.max())]
    shade: dict[str, Any] = {"cmap": style.shades(colour), "alpha": 0.45, "zorder": 1.5}
    panel.contourf(*places, density, levels=ends, vmin=0.0, **shade)
    panel.contour(*places, density, levels=levels, colors=colour, linewidths=1.0, zorder=3)


def _draw_margin(
    panel: Axes, values: np.ndarray, kernels: np.ndarray, frame: Frame, colour: str, across: bool
) -> None:
    if no_density(values, frame[1] - frame[0]) is None:
        places, density = np.linspace(*frame, GRID), kernels.mean(axis=1)
        fill = panel.fill_between if across else panel.fill_betweenx
        fill(places, density, color=colour, alpha=0.3, linewidth=0)
        density[density == 0] = np.nan
        line = (places, density) if across else (density, places)
        panel.plot(*line, color=colour, linewidth=1.2)
    elif len(values):
        draw = panel.vlines if across else panel.hlines
        area = panel.get_xaxis_transform() if across else panel.get_yaxis_transform()
        draw(values, 0.0, 0.3, colors=colour, linewidth=1.2, transform=area)


main = figure_command("kde", KdeConfig, draw)
