"""The four (Y_p, Y_o) clusters and both probes' boundaries: figure 5 (C), (D) of the paper.

    python -m figures.clusters RUN [--split held-out|validation|test|train|all]
                                   [--sensitive LAYER HEAD] [--insensitive LAYER HEAD]

Left, the sensitive head: the one whose worse label is read best on validation samples. Right,
the insensitive one: among the other heads whose probes have weights, the one whose better label
is read worst. The plane is spanned by the weights of the head's two probes, so each boundary is
an exact line, and a sample stands on the side that the probe predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from figures import lines
from figures.choose import Head, insensitive, named, sensitive
from figures.command import FigureConfig, run_command
from figures.plane import two_probe_plane
from figures.runs import LABELS, Label, Run, Shown, select

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLUSTERS = ((1, 1), (0, 0), (1, 0), (0, 1))  # (Y_p, Y_o)
LINE_STYLES: dict[Label, Literal["-", "--"]] = {"y_p": "-", "y_o": "--"}


@dataclass(frozen=True)
class ClustersConfig(FigureConfig):
    """Draw the four (Y_p, Y_o) clusters of a sensitive and an insensitive head."""

    split: Shown = "held-out"
    """Samples shown; held-out is validation and test."""
    sensitive: tuple[int, int] | None = None
    """Layer and head for the left panel; chosen on validation accuracy if not given."""
    insensitive: tuple[int, int] | None = None
    """Layer and head for the right panel; chosen on validation accuracy if not given."""

    @property
    def name(self) -> str:
        """File name without suffix; a choice that is not the default is part of it."""
        parts = ["clusters"]
        for pair in (self.sensitive, self.insensitive):
            parts += [f"l{pair[0]}h{pair[1]}"] if pair is not None else []
        parts += [self.split] if self.split != "held-out" else []
        return "_".join(parts)


@dataclass(frozen=True)
class Panel:
    """One head in its plane.

    Attributes:
        role: "sensitive" or "insensitive".
        head: the head.
        points: ``item_id, split, condition, y_p, y_o, x, y``, one row a sample shown.
        boundaries: each probe's line in the plane; no entry where the probe has no weights.
        notes: what the reader must know beside.
    """

    role: str
    head: Head
    points: pd.DataFrame
    boundaries: dict[Label, lines.Line]
    notes: tuple[str, ...] = ()

    def frame(self) -> lines.Frame:
        """A square frame round the points, so that angles are true."""
        low, high = self.points[["x", "y"]].min(), self.points[["x", "y"]].max()
        half = 0.56 * float((high - low).max()) or 1.0
        middle = (low + high) / 2
        return (
            float(middle["x"] - half),
            float(middle["x"] + half),
            float(middle["y"] - half),
            float(middle["y"] + half),
        )

    def accuracy(self, label: Label) -> float | None:
        """Share of the points on the right side of the probe's line; None without a line."""
        if label not in self.boundaries:
            return None
        xy = self.points[["x", "y"]].to_numpy()
        predicted = lines.values(self.boundaries[label], xy) > 0
        return float((predicted == self.points[label].to_numpy(dtype=bool)).mean())


def draw(config: ClustersConfig) -> list[Path]:
    """Draw and save both panels; return the paths written.

    Raises:
        FigureError: the run folder lacks what the figure needs, or the choice is not in it.
    """
    from figures import style

    run = Run.open(config.run)
    left = named(run.heads, *config.sensitive) if config.sensitive else sensitive(run.heads)
    right = (
        named(run.heads, *config.insensitive)
        if config.insensitive
        else insensitive(run.heads, run.has_weights, left)
    )
    items = run.items
    train, shown = select(items, "train"), select(items, config.split)
    panels = []
    for role, head in (("sensitive", left), ("insensitive", right)):
        activations = run.activations(*head)
        probes = {label: run.probe(label, *head) for label in LABELS}
        panels.append(
            head_panel(role, head, activations[train], activations[shown], items[shown], probes)
        )
    with style.look():
        figure = clusters_figure(panels, config.split, run.title)
        return style.save(figure, config.folder, config.name, plotted_table(panels))


def head_panel(
    role: str,
    head: Head,
    train: np.ndarray,
    activations: np.ndarray,
    items: pd.DataFrame,
    probes: dict[Label, tuple[np.ndarray, float]],
) -> Panel:
    """Put one head's samples and boundaries in the plane of its two probes.

    ``train [M, D]`` sets the origin; ``activations [N, D]`` and ``items`` are the samples
    shown; ``probes`` holds weight ``[D]`` and intercept by label.
    """
    plane = two_probe_plane(probes["y_p"][0], probes["y_o"][0], train)
    points = items[["item_id", "split", "condition", "y_p", "y_o"]].reset_index(drop=True)
    points[["x", "y"]] = plane.project(activations)
    boundaries = {
        label: plane.line(coef, intercept)
        for label, (coef, intercept) in probes.items()
        if coef.any()
    }
    return Panel(role, head, points, boundaries, plane.notes)


def plotted_table(panels: Sequence[Panel]) -> pd.DataFrame:
    """All that is drawn: a row a point, and two rows a boundary, its ends in the frame.

    Columns: ``panel, layer, head, kind`` ("point", "boundary_y_p", "boundary_y_o"),
    ``item_id, split, condition, y_p, y_o`` (empty for boundaries), ``x, y``.
    """
    import pandas as pd

    parts = []
    for panel in panels:
        rows = [panel.points.assign(kind="point").astype({"y_p": "boolean", "y_o": "boolean"})]
        for label, line in panel.boundaries.items():
            ends = lines.segment(line, panel.frame())
            if ends is not None:
                drawn = pd.DataFrame({"kind": f"boundary_{label}", "x": ends[:, 0]})
                rows.append(drawn.assign(y=ends[:, 1]))
        table = pd.concat(rows, ignore_index=True)
        parts.append(table.assign(panel=panel.role, layer=panel.head.layer, head=panel.head.head))
    columns = ["panel", "layer", "head", "kind", "item_id", "split", "condition", "y_p", "y_o"]
    return pd.concat(parts, ignore_index=True)[[*columns, "x", "y"]]


def clusters_figure(panels: Sequence[Panel], split: str, title: Sequence[str]) -> Figure:
    """Panels side by side, one legend below."""
    from figures import style

    figure = style.new_figure(4.1 * len(panels) + 0.4, 5.5)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, panel)
    figure.legend(
        handles=_handles(panels[0].points),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        handletextpad=0.5,
        columnspacing=1.6,
    )
    style.heading(figure, title, f"{split} samples (N = {len(panels[0].points)})")
    return figure


def cluster_text(points: pd.DataFrame, cluster: tuple[int, int]) -> str:
    """Legend text of a cluster: its labels, its belief conditions and how many samples.

    With the ``matched`` contrast of first order, (1, 1) and (0, 0) are true-belief stories
    and (1, 0) and (0, 1) false-belief ones; the text counts what the samples say, two
    conditions a line (second order has four).
    """
    y_p, y_o = cluster
    of_cluster = points[(points["y_p"] == bool(y_p)) & (points["y_o"] == bool(y_o))]
    counts = of_cluster["condition"].value_counts().sort_index(ascending=False)
    words = [f"{name}: n = {count}" for name, count in counts.items()] or ["n = 0"]
    said = ",\n".join(", ".join(words[i : i + 2]) for i in range(0, len(words), 2))
    return f"$Y_p$ = {y_p}, $Y_o$ = {y_o} ({said})"


def _draw_panel(axis: Axes, panel: Panel) -> None:
    from figures import style

    frame = panel.frame()
    _shade(axis, panel, frame)
    points = panel.points
    for y_p, y_o in CLUSTERS:
        chosen = points[(points["y_p"] == bool(y_p)) & (points["y_o"] == bool(y_o))]
        axis.scatter(
            chosen["x"],
            chosen["y"],
            s=20,
            color=style.CLUSTER_COLOURS[y_p, y_o],
            marker=style.CLUSTER_MARKERS[y_p, y_o],
            edgecolor="white",
            linewidth=0.4,
            alpha=0.85,
            zorder=2,
        )
    notes = list(panel.notes)
    for label, line in panel.boundaries.items():
        ends = lines.segment(line, frame)
        if ends is None:
            notes.append(f"{style.LABEL_TEXT[label]} boundary lies outside")
        else:
            axis.plot(
                ends[:, 0],
                ends[:, 1],
                color="0.15",
                linewidth=1.6,
                linestyle=LINE_STYLES[label],
                zorder=3,
            )
    axis.set(xlim=frame[:2], ylim=frame[2:], aspect="equal")
    axis.set_xlabel("along θ of the $Y_p$ probe")
    axis.set_ylabel("along θ of the $Y_o$ probe, part ⊥ θ of $Y_p$")
    read = [
        f"{style.LABEL_TEXT[label]} {accuracy:.2f}"
        for label in LABELS
        if (accuracy := panel.accuracy(label)) is not None
    ]
    axis.set_title(
        f"{panel.role}: {panel.head}\naccuracy: {', '.join(read) or 'no probe has weights'}"
    )
    axis.tick_params(length=2.5)
    style.write_notes(axis, notes)


def _shade(axis: Axes, panel: Panel, frame: lines.Frame) -> None:
    """Tint each area with the colour of the cluster that both probes predict there."""
    from matplotlib.patches import Polygon

    from figures import style

    if len(panel.boundaries) < len(LABELS):
        return
    for y_p, y_o in CLUSTERS:
        area = lines.clip(lines.corners(frame), panel.boundaries["y_p"], bool(y_p))
        area = lines.clip(area, panel.boundaries["y_o"], bool(y_o))
        if len(area):
            colour = style.CLUSTER_COLOURS[y_p, y_o]
            axis.add_patch(Polygon(area, facecolor=colour, alpha=0.12, linewidth=0, zorder=0))


def _handles(points: pd.DataFrame) -> list:
    from matplotlib.lines import Line2D

    from figures import style

    handles = [
        Line2D(
            [],
            [],
            color=style.CLUSTER_COLOURS[cluster],
            marker=style.CLUSTER_MARKERS[cluster],
            linestyle="none",
            markersize=5.5,
            label=cluster_text(points, cluster),
        )
        for cluster in CLUSTERS
    ]
    for label, pattern in LINE_STYLES.items():
        handles.append(
            Line2D(
                [],
                [],
                color="0.15",
                linewidth=1.6,
                linestyle=pattern,
                label=f"{style.LABEL_TEXT[label]} probe at 0.5",
            )
        )
    return handles


if __name__ == "__main__":
    run_command(ClustersConfig, draw)
