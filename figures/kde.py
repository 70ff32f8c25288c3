"""Activations of one head in a plane: figures 5 (B), the density, and 5 (C, D), the clusters.

Across the density stands theta, the unit weight of the head's probe; upwards theta', the main
direction orthogonal to it; or the top two principal components, as the paper says. Clusters lie in
the plane of the weights of both labels' probes, so each boundary is an exact line. Directions come
from training samples alone; the origin is their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

from sally_anne.core.head import Head
from sally_anne.figures import style

Line = tuple[float, float, float]
"""``(a, b, c)``: all points with ``a * x + b * y + c = 0``."""
PARALLEL = 1e-6  # sine of the angle below which two weights count as one direction
AXIS_TEXT = {
    "probe": ("projection on θ (probe direction)", "projection on θ′ (main direction ⊥ θ)"),
    "pca": ("projection on principal component 1", "projection on principal component 2"),
}
# (Y_p, Y_o), or a run's first two labels, with the place of each in the palette.
CLUSTERS = ((1, 1), (0, 0), (1, 0), (0, 1))
DASHES = ("-", "--")


@dataclass(frozen=True)
class Plane:
    """Origin and two orthonormal directions, each ``[D]``; zero where there is none to choose."""

    origin: np.ndarray
    u: np.ndarray
    v: np.ndarray

    def table(self, z: np.ndarray, samples: pd.DataFrame, *labels: str) -> pd.DataFrame:
        """Labels, ``x`` and ``y`` of ``samples [N]`` with activations ``z [N, D]``."""
        kept = [name for name in ("item_id", "split", "condition", *labels) if name in samples]
        table = samples[kept].reset_index(drop=True)
        table[["x", "y"]] = (z - self.origin) @ np.stack([self.u, self.v], axis=1)
        return table

    def line(self, coef: np.ndarray, intercept: float) -> Line:
        """Where a probe says 0.5; exact if its weight ``[D]`` lies in the plane."""
        return float(coef @ self.u), float(coef @ self.v), float(coef @ self.origin + intercept)


def probe_plane(coef: np.ndarray, train: np.ndarray, truth: np.ndarray) -> Plane:
    """Theta, the direction of a probe's weight ``[D]``, and theta', the axes of figure 5 (B).

    Theta' is the direction of greatest variance among the training activations ``[N, D]`` once
    theta is projected out, turned so that true samples (``truth [N]``) lie higher on average.
    """
    theta = unit(coef)
    return Plane(train.mean(axis=0), theta, main_direction(train, theta, truth))


def pca_plane(train: np.ndarray, truth: np.ndarray) -> Plane:
    """The first two principal components of the training activations ``[N, D]``."""
    first = main_direction(train, np.zeros(train.shape[1]), truth)
    return Plane(train.mean(axis=0), first, main_direction(train, first, truth))


def two_probe_plane(first: np.ndarray, second: np.ndarray, train: np.ndarray) -> Plane:
    """The plane that two probes' weights ``[D]`` span, for figure 5 (C) and (D).

    If they are parallel or one is zero, v is the main direction of the training activations
    ``[N, D]`` off u.
    """
    u = unit(first) if first.any() else unit(second)
    rest = unit(second) - (unit(second) @ u) * u
    rest -= (rest @ u) * u
    distinct = np.linalg.norm(rest) > PARALLEL
    return Plane(train.mean(axis=0), u, unit(rest) if distinct else main_direction(train, u))


def unit(vector: np.ndarray) -> np.ndarray:
    """``vector`` divided by its length; a zero vector stays zero."""
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else np.zeros_like(vector)


def main_direction(z: np.ndarray, off: np.ndarray, truth: np.ndarray | None = None) -> np.ndarray:
    """First principal component of ``z [N, D]`` without its part along ``off``; zero if none."""
    rest = z - z.mean(axis=0)
    rest = rest - np.outer(rest @ off, off)
    if np.abs(rest).max() <= 1e-9 * max(1.0, np.abs(z).max()):
        return np.zeros(z.shape[1])
    direction = PCA(1, svd_solver="full").fit(rest).components_[0]
    along = rest @ direction
    mixed = truth is not None and truth.any() and not truth.all()
    lean = along[truth].mean() - along[~truth].mean() if mixed else 0.0  # type: ignore[operator]
    lean = lean or direction[np.abs(direction).argmax()]
    return direction if lean > 0 else -direction


def classes_of(values: pd.Series) -> list[Any]:
    """The values of a label in the order of their colours; True comes before False."""
    return [True, False] if values.dtype == bool else sorted(values.unique(), key=str)


def logits_of(
    probes: Mapping[str, np.ndarray],
    label: str,
    head: Head,
    z: np.ndarray,
    values: pd.Series,
    order: Sequence[Any] = (),
) -> np.ndarray:
    """What a head's probe gives each class of ``z [N, D]``: ``[N, C]`` as :func:`classes_of`.

    ``order`` is that of the classes in a probe of more than two.
    """
    classes = classes_of(values)
    coef, intercept = (
        np.asarray(probes[f"{label}.{part}"][head.layer, head.head], dtype="float64")
        for part in ("coef", "intercept")
    )
    scores = z @ coef.T + intercept
    if scores.ndim == 2:
        return scores[:, [list(order).index(value) for value in classes]]
    # Of two classes the second is what the probe calls true, above 0; True is the first in colours.
    return np.stack([scores, 1e-12 - scores] if values.dtype == bool else [-scores, scores], axis=1)


def scores_of(logits: np.ndarray, values: pd.Series) -> str:
    """Accuracy and, of two classes, AUC of ``logits [N, C]``, in words."""
    classes = classes_of(values)
    truth = np.array([classes.index(value) for value in values])
    text = f"accuracy {(logits.argmax(axis=1) == truth).mean():.3f}"
    if logits.shape[1] != 2 or len(set(truth)) != 2:
        return text
    return f"{text}, AUC {roc_auc_score(truth, logits[:, 1]):.3f}"


def class_name(value: Any) -> str:
    """How a class is written."""
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)


def kde_figure(
    table: pd.DataFrame,
    label: str,
    subject: str,
    title: Sequence[str],
    boundary: float | None = None,
) -> Figure:
    """Joint density with marginals on top and right; ``table`` is from `Plane.table`.

    ``boundary`` is the x at which the probe says 0.5; without one the plane is of components.
    """
    figure = style.new_figure(5.2, 5.6)
    ratios: dict[str, Any] = {"width_ratios": [4.2, 1], "height_ratios": [1, 4.2]}
    panels = figure.subplot_mosaic([["top", "."], ["joint", "right"]], **ratios)
    joint, top, right = panels["joint"], panels["top"], panels["right"]
    handles, notes = [], []
    classes = classes_of(table[label])
    for value, colour, marker in zip(classes, style.COLOURS, style.MARKERS, strict=False):
        points = table[table[label] == value]
        name = f"{style.symbol(label)} {class_name(value)}"
        spread = points[["x", "y"]] - points[["x", "y"]].mean()
        dense = len(points) > 2 and np.linalg.matrix_rank(spread, tol=1e-7) == 2
        notes += [] if dense else [f"{name}: no density of {len(points)} samples on a line"]
        dots: dict[str, Any] = {"s": 9 if dense else 24, "alpha": 0.4, "linewidth": 0, "zorder": 2}
        joint.scatter(points["x"], points["y"], color=colour, marker=marker, **dots)
        look: dict[str, Any] = {"color": colour, "bw_adjust": 0.8, "warn_singular": False}
        if dense:
            shape = look | {"levels": 6, "thresh": 0.08, "zorder": 1.5, "ax": joint}
            sns.kdeplot(points, x="x", y="y", fill=True, alpha=0.35, **shape)
            sns.kdeplot(points, x="x", y="y", linewidths=1.0, **shape)
        look |= {"fill": True, "alpha": 0.3, "linewidth": 1.2}
        sns.kdeplot(points, x="x", ax=top, **look)
        sns.kdeplot(points, y="y", ax=right, **look)
        mark = {"marker": marker, "markersize": 5, "linewidth": 1.2}
        handles.append(style.sign(f"{name} (n = {len(points)})", colour, **mark))
    across, upwards = AXIS_TEXT["pca" if boundary is None else "probe"]
    joint.set(xlabel=across, ylabel=upwards)
    left, end = joint.get_xlim()
    if boundary is not None and left < boundary < end:
        dashed: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (4, 3))}
        for panel in (joint, top):
            panel.axvline(boundary, color="0.25", zorder=2.5, **dashed)
        handles.append(style.sign("probe at 0.5", "0.25", **dashed))
    bare = {"xticks": [], "yticks": [], "xlabel": "", "ylabel": ""}
    top.set(xlim=(left, end), ylim=(0, None), **bare)
    right.set(ylim=joint.get_ylim(), xlim=(0, None), **bare)
    top.spines[["top", "right", "left"]].set_visible(False)
    right.spines[["top", "right", "bottom"]].set_visible(False)
    joint.spines[["top", "right"]].set_visible(False)
    style.legend(figure, handles, 3)
    font: dict[str, Any] = {"fontsize": 7, "color": "0.3", "transform": joint.transAxes}
    joint.text(0.015, 0.015, "\n".join(notes), va="bottom", zorder=6, **font)
    style.heading(figure, title, subject)
    return figure


@dataclass(frozen=True)
class Panel:
    """One head in the plane of its two probes.

    Attributes:
        points: a row a sample shown: ``item_id, split, condition``, both labels, ``x, y``.
        lines: each probe's boundary in the plane, without probes that have no weights.
    """

    head: Head
    title: str
    labels: tuple[str, ...]
    points: pd.DataFrame
    lines: dict[str, Line]

    @classmethod
    def of(
        cls,
        head: Head,
        title: str,
        train: np.ndarray,
        z: np.ndarray,
        samples: pd.DataFrame,
        probes: dict[str, tuple[np.ndarray, float]],
    ) -> Panel:
        """``train [M, D]`` sets the origin; ``z [N, D]`` and ``samples`` are those shown.

        ``probes`` holds weight ``[D]`` and intercept by label.
        """
        (first, _), (second, _) = probes.values()
        plane = two_probe_plane(first, second, train)
        lines = {label: plane.line(*probe) for label, probe in probes.items() if probe[0].any()}
        return cls(head, title, tuple(probes), plane.table(z, samples, *probes), lines)

    def side(self, label: str, points: pd.DataFrame) -> pd.Series:
        """On which side of a probe's line points with ``x`` and ``y`` lie."""
        a, b, c = self.lines[label]
        return a * points["x"] + b * points["y"] + c > 0

    def table(self) -> pd.DataFrame:
        """All that is drawn: a row a point, and of each boundary the line ``a x + b y + c = 0``."""
        lines = {
            f"{label}_{n}": v
            for label in self.lines
            for n, v in zip("abc", self.lines[label], strict=True)
        }
        return self.points.assign(layer=self.head.layer, head=self.head.head, **lines)


def clusters_figure(panels: Sequence[Panel], split: str, title: Sequence[str]) -> Figure:
    """Panels next to each other, one legend below."""
    figure = style.new_figure(4.1 * len(panels) + 0.4, 5.4)
    for axis, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axis, panel)
    handles = []
    for cluster, colour, marker in zip(CLUSTERS, style.COLOURS, style.MARKERS, strict=False):
        text = _cluster_text(panels[0], cluster)
        handles.append(style.sign(text, colour, marker=marker, linestyle="none", markersize=5))
    for label, dash in zip(panels[0].labels, DASHES, strict=True):
        handles.append(style.sign(f"{style.symbol(label)} probe at 0.5", "0.15", linestyle=dash))
    style.legend(figure, handles, 3)
    style.heading(figure, title, f"{split} samples (N = {len(panels[0].points)})")
    return figure


def _members(panel: Panel, cluster: tuple[int, int]) -> pd.DataFrame:
    first, second = panel.labels
    points = panel.points
    return points[(points[first] == bool(cluster[0])) & (points[second] == bool(cluster[1]))]


def _cluster_text(panel: Panel, cluster: tuple[int, int]) -> str:
    """A cluster's labels, and how many samples of which belief conditions, two of them a line."""
    points = _members(panel, cluster)
    words = [f"n = {len(points)}"]
    if "condition" in points and len(points):
        counts = points["condition"].value_counts().sort_index(ascending=False)
        words = [f"{name}: n = {count}" for name, count in counts.items()]
    counted = ",\n".join(", ".join(words[i : i + 2]) for i in range(0, len(words), 2))
    pairs = zip(panel.labels, cluster, strict=True)
    return f"{', '.join(f'{style.symbol(n)} = {value}' for n, value in pairs)} ({counted})"


def _draw_panel(axis: Axes, panel: Panel) -> None:
    for cluster, colour, marker in zip(CLUSTERS, style.COLOURS, style.MARKERS, strict=False):
        points = _members(panel, cluster)
        dots: dict[str, Any] = {"s": 20, "edgecolor": "white", "linewidth": 0.4, "alpha": 0.85}
        axis.scatter(points["x"], points["y"], color=colour, marker=marker, zorder=2, **dots)
    places = panel.points[["x", "y"]].to_numpy()
    low, high = places.min(axis=0), places.max(axis=0)
    margin = np.where(high > low, 0.06 * (high - low), 1.0)
    (left, bottom), (right, top) = low - margin, high + margin
    axis.set(xlim=(left, right), ylim=(bottom, top))
    shares = []
    for label, (a, b, c) in panel.lines.items():
        x, y = (-c * part / (a * a + b * b) for part in (a, b))  # the line's nearest point to 0
        dash = DASHES[panel.labels.index(label)]
        look: dict[str, Any] = {"color": "0.15", "linewidth": 1.6, "linestyle": dash, "zorder": 3}
        axis.axline((x, y), (x - b, y + a), **look)
        correct = panel.side(label, panel.points) == panel.points[label].astype(bool)
        shares.append(f"{style.symbol(label)} {correct.mean():.2f} right")
    if len(panel.lines) == 2:
        across, upwards = np.meshgrid(
            *(np.linspace(*f, 200) for f in (axis.get_xlim(), axis.get_ylim()))
        )
        at = pd.DataFrame({"x": across.ravel(), "y": upwards.ravel()})
        sides = np.stack([panel.side(label, at) for label in panel.labels], axis=1).astype(int)
        ground = np.array([CLUSTERS.index((p, o)) for p, o in sides.tolist()])
        look = {"vmin": 0, "vmax": 3, "alpha": 0.12, "zorder": 0}
        look |= {"cmap": ListedColormap(style.COLOURS[:4]), "rasterized": True}
        axis.pcolormesh(across, upwards, ground.reshape(across.shape), **look)
    first, second = map(style.symbol, panel.labels)
    axis.set_xlabel(f"along θ of the {first} probe")
    axis.set_ylabel(f"along θ of the {second} probe, part ⊥ θ of {first}")
    axis.set_title(f"{panel.title}\nshown: {', '.join(shares) or 'no probe has weights'}")
