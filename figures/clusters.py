"""The four (Y_p, Y_o) clusters and both probes' boundaries: figure 5 (C), (D) of the paper.

Left, the head whose worse label is read best on validation samples; right, of the others whose
probes have weights, the one whose better label is read worst. The plane is spanned by the weights
of the head's two probes, so each boundary is an exact line; the axes have scales of their own, so
that angles are not those of the activation space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sally_anne.core.errors import ChoiceError
from sally_anne.core.options import Natural
from sally_anne.figures import plane as lines
from sally_anne.figures import style
from sally_anne.figures.choose import Shown, insensitive, named, select, sensitive
from sally_anne.figures.command import FigureConfig, figure_command, file_name
from sally_anne.hooks.geometry import Head
from sally_anne.hooks.saved_run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLUSTERS = ((1, 1), (0, 0), (1, 0), (0, 1))  # (Y_p, Y_o), or a run's own first two labels
DASHES = ("-", "--")


@dataclass(frozen=True)
class ClustersConfig(FigureConfig):
    """Draw the four (Y_p, Y_o) clusters of a sensitive and an insensitive head."""

    split: Shown = "held-out"
    """Samples shown; held-out is validation and test."""
    sensitive: tuple[Natural, Natural] | None = None
    """Layer and head for the left panel; chosen on validation accuracy if not given."""
    insensitive: tuple[Natural, Natural] | None = None
    """Layer and head for the right panel; chosen on validation accuracy if not given."""


@dataclass(frozen=True)
class Panel:
    """One head in its plane; ``why`` says how it was chosen.

    ``points`` has a row a sample shown: ``item_id, split, condition``, both labels, ``x, y``;
    ``boundaries`` holds each probe's line in the plane, but of probes that have no weights.
    """

    role: str
    head: Head
    labels: tuple[str, str]
    points: pd.DataFrame
    boundaries: dict[str, lines.Line]
    notes: tuple[str, ...] = ()
    why: str = "as asked"

    def frame(self) -> lines.Frame:
        """A frame that the points fill; the two axes have scales of their own."""
        points = self.points[["x", "y"]].to_numpy()
        low, high = points.min(axis=0), points.max(axis=0)
        margin = np.where(high > low, 0.06 * (high - low), 1.0)
        (left, bottom), (right, top) = (low - margin).tolist(), (high + margin).tolist()
        return left, right, bottom, top

    def accuracy(self, label: str) -> float | None:
        """Share of the points on the right side of the probe's line; None without a line."""
        if label not in self.boundaries:
            return None
        xy = self.points[["x", "y"]].to_numpy()
        predicted = lines.values(self.boundaries[label], xy) > 0
        return float((predicted == self.points[label].to_numpy(dtype=bool)).mean())


def draw(config: ClustersConfig) -> list[Path]:
    """Draw and save both panels; return the paths written."""
    run = Run.open(config.run)
    labels = pair_of(run)
    if labels is None:
        raise ChoiceError(f"{config.run} has no two labels that are true or false, to be crossed")

    def has_weights(layer: int, head: int) -> bool:
        return all(run.probe(label, layer, head)[0].any() for label in labels)

    heads, items = run.heads, run.samples
    left = named(heads, *config.sensitive) if config.sensitive else sensitive(heads, labels)
    if config.insensitive:
        right = named(heads, *config.insensitive)
    else:
        right = insensitive(heads, has_weights, left, labels)
    train, shown = select(items, "train"), select(items, config.split)
    panels = []
    worse, better = (_of_validation(heads, labels, *pair) for pair in ((left, min), (right, max)))
    why_left = f"worse label is best of all heads (validation {worse:.2f})"
    why_right = f"better label is worst of all heads (validation {better:.2f})"
    for role, head, why, asked in (
        ("sensitive", left, why_left, config.sensitive),
        ("insensitive", right, why_right, config.insensitive),
    ):
        activations = run.head_activations(*head)
        probes = {label: run.probe(label, *head) for label in labels}
        seen = activations[train], activations[shown], items[shown]
        panel = head_panel(role, head, *seen, probes)
        panels.append(panel if asked else replace(panel, why=why))
    heads_asked = filter(None, (config.sensitive, config.insensitive))
    places = [(f"l{layer}h{head}", None) for layer, head in heads_asked]
    name = file_name("clusters", *places, (config.split, "held-out"))
    with style.look():
        figure = clusters_figure(panels, config.split, run.title)
        return style.save(figure, config.folder, name, plotted_table(panels))


def _of_validation(
    heads: pd.DataFrame, labels: Sequence[str], head: Head, of: Callable[[list[float]], float]
) -> float:
    """The least or largest validation accuracy of a head's labels."""
    row = heads[(heads["layer"] == head.layer) & (heads["head"] == head.head)].iloc[0]
    return of([float(row[f"{label}_validation_accuracy"]) for label in labels])


def pair_of(run: Run) -> tuple[str, str] | None:
    """The first two labels of a run if both are true or false, else None."""
    pair = run.labels[:2]
    if len(pair) < 2 or any(run.samples[label].dtype != bool for label in pair):
        return None
    return pair[0], pair[1]


def head_panel(
    role: str,
    head: Head,
    train: np.ndarray,
    activations: np.ndarray,
    items: pd.DataFrame,
    probes: dict[str, tuple[np.ndarray, float]],
) -> Panel:
    """Put one head's samples and boundaries in the plane of its two probes.

    ``train [M, D]`` sets the origin; ``activations [N, D]`` and ``items`` are the samples
    shown; ``probes`` holds weight ``[D]`` and intercept by label.
    """
    first, second = probes
    symbols = (style.symbol(first), style.symbol(second))
    plane = lines.two_probe_plane(probes[first][0], probes[second][0], train, symbols)
    points = plane.table(activations, items, first, second)
    boundaries = {
        label: plane.line(coef, intercept)
        for label, (coef, intercept) in probes.items()
        if coef.any()
    }
    return Panel(role, head, (first, second), points, boundaries, plane.notes)


def plotted_table(panels: Sequence[Panel]) -> pd.DataFrame:
    """All that is drawn: a row a point, and two rows a boundary, its ends in the frame.

    Columns: ``panel, layer, head, kind`` ("point", "boundary_y_p", "boundary_y_o"),
    ``item_id, split, condition, y_p, y_o`` (empty for boundaries), ``x, y``.
    """
    parts = []
    for panel in panels:
        rows = [panel.points.assign(kind="point").astype(dict.fromkeys(panel.labels, "boolean"))]
        for label, line in panel.boundaries.items():
            ends = lines.segment(line, panel.frame())
            if ends is not None:
                drawn = pd.DataFrame({"kind": f"boundary_{label}", "x": ends[:, 0]})
                rows.append(drawn.assign(y=ends[:, 1]))
        table = pd.concat(rows, ignore_index=True)
        parts.append(table.assign(panel=panel.role, layer=panel.head.layer, head=panel.head.head))
    columns = ["panel", "layer", "head", "kind"]
    columns += [name for name in panels[0].points if name not in ("x", "y")]
    return pd.concat(parts, ignore_index=True)[[*columns, "x", "y"]]


def clusters_figure(panels: Sequence[Panel], split: str, title: Sequence[str]) -> Figure:
    """Panels side by side, one legend below."""
    figure = style.new_figure(4.1 * len(panels) + 0.4, 5.4)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, panel)
    style.legend(figure, _handles(panels[0]), 3, handletextpad=0.5, columnspacing=1.6)
    style.heading(figure, title, f"{split} samples (N = {len(panels[0].points)})")
    return figure


def cluster_text(points: pd.DataFrame, labels: Sequence[str], cluster: tuple[int, int]) -> str:
    """Legend text of a cluster: its labels, and how many samples of which belief conditions.

    Two conditions stand on a line; second order has four.
    """
    of_cluster = _members(points, labels, cluster)
    words = [f"n = {len(of_cluster)}"]
    if "condition" in points and len(of_cluster):
        counts = of_cluster["condition"].value_counts().sort_index(ascending=False)
        words = [f"{name}: n = {count}" for name, count in counts.items()]
    said = ",\n".join(", ".join(words[i : i + 2]) for i in range(0, len(words), 2))
    pairs = zip(labels, cluster, strict=True)
    return ", ".join(f"{style.symbol(label)} = {value}" for label, value in pairs) + f" ({said})"


def _members(points: pd.DataFrame, labels: Sequence[str], cluster: tuple[int, int]) -> pd.DataFrame:
    first, second = (points[label] == bool(v) for label, v in zip(labels, cluster, strict=True))
    return points[first & second]


def _draw_panel(axis: Axes, panel: Panel) -> None:
    frame = panel.frame()
    _shade(axis, panel, frame)
    for cluster in CLUSTERS:
        chosen = _members(panel.points, panel.labels, cluster)
        axis.scatter(
            chosen["x"],
            chosen["y"],
            s=20,
            color=style.CLUSTER_COLOURS[cluster],
            marker=style.CLUSTER_MARKERS[cluster],
            edgecolor="white",
            linewidth=0.4,
            alpha=0.85,
            zorder=2,
        )
    notes = list(panel.notes)
    for label, line in panel.boundaries.items():
        ends = lines.segment(line, frame)
        if ends is None:
            notes.append(f"{style.symbol(label)} boundary lies outside")
        else:
            dash = DASHES[panel.labels.index(label)]
            axis.plot(*ends.T, color="0.15", linewidth=1.6, linestyle=dash, zorder=3)
    axis.set(xlim=frame[:2], ylim=frame[2:])
    first, second = map(style.symbol, panel.labels)
    axis.set_xlabel(f"along θ of the {first} probe")
    axis.set_ylabel(f"along θ of the {second} probe, part ⊥ θ of {first}")
    scores = [
        f"{style.symbol(label)} {accuracy:.2f} right"
        for label in panel.labels
        if (accuracy := panel.accuracy(label)) is not None
    ]
    axis.set_title(
        f"{panel.role}: {panel.head}\n{panel.why}\n"
        f"shown: {', '.join(scores) or 'no probe has weights'}"
    )
    axis.tick_params(length=2.5)
    style.write_notes(axis, notes)


def _shade(axis: Axes, panel: Panel, frame: lines.Frame) -> None:
    """Tint each area with the colour of the cluster that both probes predict there."""
    from matplotlib.patches import Polygon

    if len(panel.boundaries) < len(panel.labels):
        return
    for cluster in CLUSTERS:
        area = lines.corners(frame)
        for label, value in zip(panel.labels, cluster, strict=True):
            area = lines.clip(area, panel.boundaries[label], bool(value))
        if len(area):
            colour = style.CLUSTER_COLOURS[cluster]
            axis.add_patch(Polygon(area, facecolor=colour, alpha=0.12, linewidth=0, zorder=0))


def _handles(panel: Panel) -> list[Any]:
    handles = [
        style.sign(
            cluster_text(panel.points, panel.labels, cluster),
            style.CLUSTER_COLOURS[cluster],
            marker=style.CLUSTER_MARKERS[cluster],
            linestyle="none",
            markersize=5.5,
        )
        for cluster in CLUSTERS
    ]
    for label, dash in zip(panel.labels, DASHES, strict=True):
        text = f"{style.symbol(label)} probe at 0.5"
        handles.append(style.sign(text, "0.15", linewidth=1.6, linestyle=dash))
    return handles


main = figure_command("clusters", ClustersConfig, draw)
