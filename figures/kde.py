"""Activations of one head in a plane: figures 5 (B), the density, and 5 (C, D), the clusters.

Directions come from training samples alone; the origin is their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

from sally_anne.core.run import Head, Run, select, symbol
from sally_anne.figures import style

PARALLEL = 1e-6  # sine of the angle below which two weights count as one direction
AXIS_TEXT = {
    "probe": ("projection on θ (probe direction)", "projection on θ′ (main direction ⊥ θ)"),
    "pca": ("projection on principal component 1", "projection on principal component 2"),
}
# (Y_p, Y_o), or a run's first two labels, in the order of the palette.
CLUSTERS = ((True, True), (False, False), (True, False), (False, True))


@dataclass(frozen=True)
class Plane:
    """Origin and two orthonormal directions, each ``[D]``; zero where there is none."""

    origin: np.ndarray
    u: np.ndarray
    v: np.ndarray

    def table(self, z: np.ndarray, samples: pd.DataFrame, *labels: str) -> pd.DataFrame:
        """Labels, ``_x`` and ``_y`` of ``samples [N]`` with activations ``z [N, D]``."""
        # No label's name begins with a line.
        names = dict.fromkeys(("item_id", "split", "condition", *labels))
        table = samples[[name for name in names if name in samples]].reset_index(drop=True)
        table[["_x", "_y"]] = (z - self.origin) @ np.stack([self.u, self.v], axis=1)
        return table

    def line(self, coef: np.ndarray, intercept: float) -> tuple[float, float, float]:
        """Where a probe says 0.5, as ``a x + b y + c = 0``; exact if its weight lies in it."""
        return float(coef @ self.u), float(coef @ self.v), float(coef @ self.origin + intercept)


def density_plane(
    train: np.ndarray, coef: np.ndarray | None, intercept: float = 0.0
) -> tuple[Plane, float | None]:
    """The plane of a head's density, and the x at which its probe says 0.5.

    Across stands theta, the unit weight of the probe, upwards theta', the main direction orthogonal
    to it among training activations ``[N, D]``. Without a weight ``[D]`` they are principal
    components.
    """
    u = main_direction(train, np.zeros(train.shape[1])) if coef is None else unit(coef)
    plane = Plane(train.mean(axis=0), u, main_direction(train, u))
    if coef is None:
        return plane, None
    slope, _, offset = plane.line(coef, intercept)
    return plane, -offset / slope if slope else np.nan


def unit(vector: np.ndarray) -> np.ndarray:
    """``vector`` divided by its length; a zero vector stays zero."""
    return vector / (np.linalg.norm(vector) or 1.0)


def main_direction(z: np.ndarray, off: np.ndarray) -> np.ndarray:
    """First principal component of ``z [N, D]`` without its part along ``off``; zero if none."""
    rest = z - z.mean(axis=0)
    rest = rest - np.outer(rest @ off, off)
    if np.abs(rest).max() <= 1e-9 * max(1.0, np.abs(z).max()):
        return np.zeros(z.shape[1])
    return PCA(1, svd_solver="full").fit(rest).components_[0]


def classes_of(values: pd.Series) -> list[Any]:
    """The values of a label, ordered; the second of two is what its probe calls true."""
    return [False, True] if values.dtype == bool else sorted(values.unique())


def class_name(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)


def logits_of(run: Run, label: str, head: Head, z: np.ndarray) -> np.ndarray:
    """What a head's probe gives each class of ``z [N, D]``: ``[N, C]`` as :func:`classes_of`."""
    scores = z @ run.probes[f"{label}.coef"][head].astype("float64").T
    scores += run.probes[f"{label}.intercept"][head].astype("float64")
    if scores.ndim == 1:
        return np.stack([-scores, scores], axis=1)
    order = list(run.saved["labels"][label])
    return scores[:, [order.index(value) for value in classes_of(run.samples[label])]]


def density(
    run: Run, label: str, head: Head, split: str, subject: str, along_probe: bool = True
) -> tuple[Figure, pd.DataFrame]:
    """The density of a head of a run, and the numbers shown."""
    train, samples = select(run.samples, "train"), select(run.samples, split)
    z, values = run.head_activations(*head), run.samples[label]
    classes = classes_of(values)
    logits = logits_of(run, label, head, z)[samples]
    right = np.array([classes.index(value) for value in values[samples]])
    scores = f"accuracy {(logits.argmax(axis=1) == right).mean():.3f}"
    if len(classes) == 2 == len(set(right)):
        scores += f", AUC {roc_auc_score(right, logits[:, 1]):.3f}"
    binary = along_probe and run.probes[f"{label}.coef"].ndim == 3
    weights = run.probe(label, *head) if binary else (None, 0.0)
    plane, boundary = density_plane(z[train], *weights)
    table = plane.table(z[samples], run.samples[samples], label)
    title = [scores, *run.title]
    return kde_figure(table, label, f"{head} ({subject})", title, boundary), table


def kde_figure(
    table: pd.DataFrame,
    label: str,
    subject: str,
    title: Sequence[str],
    boundary: float | None = None,
) -> Figure:
    """Joint density of `Plane.table`, with marginals; without a boundary, of components."""
    figure = style.new_figure(5.2, 5.6)
    ratios: dict[str, Any] = {"width_ratios": [4.2, 1], "height_ratios": [1, 4.2]}
    panels = figure.subplot_mosaic([["top", "."], ["joint", "right"]], **ratios)
    joint, top, right = panels["joint"], panels["top"], panels["right"]
    classes = classes_of(table[label])[:: -1 if table[label].dtype == bool else 1]
    names = {
        value: f"{symbol(label)} {class_name(value)} (n = {(table[label] == value).sum()})"
        for value in classes
    }
    table = table.assign(_label=table[label].map(names)).dropna(subset="_label")
    hue: dict[str, Any] = {"hue": "_label", "hue_order": [*names.values()]}
    kinds = len(style.COLOURS)
    hue["palette"] = [style.COLOURS[i % kinds] for i in range(len(names))]
    # A colour that comes again has another marker.
    marks = {name: style.MARKERS[(i + i // kinds) % kinds] for i, name in enumerate(names.values())}
    dots: dict[str, Any] = {"s": 14, "alpha": 0.4, "linewidth": 0, "zorder": 2, **hue}
    sns.scatterplot(table, x="_x", y="_y", ax=joint, style="_label", markers=marks, **dots)
    hue |= {"legend": False, "bw_adjust": 0.8, "common_norm": False, "warn_singular": False}
    shape = hue | {"gridsize": 80, "levels": 6, "thresh": 0.08, "zorder": 1.5, "ax": joint}
    sns.kdeplot(table, x="_x", y="_y", fill=True, alpha=0.35, **shape)
    sns.kdeplot(table, x="_x", y="_y", linewidths=1.0, **shape)
    sns.kdeplot(table, x="_x", ax=top, fill=True, alpha=0.3, linewidth=1.2, **hue)
    sns.kdeplot(table, y="_y", ax=right, fill=True, alpha=0.3, linewidth=1.2, **hue)
    handles, _ = joint.get_legend_handles_labels()
    joint.get_legend().remove()
    across, upwards = AXIS_TEXT["pca" if boundary is None else "probe"]
    joint.set(xlabel=across, ylabel=upwards)
    left, end = joint.get_xlim()
    if boundary is not None and left < boundary < end:
        for panel in (top, joint):
            line = panel.axvline(boundary, color="0.25", lw=1, ls=(0, (4, 3)), zorder=2.5)
        line.set_label("probe at 0.5")
        handles.append(line)
    bare = {"xticks": [], "yticks": [], "xlabel": "", "ylabel": ""}
    top.set(xlim=(left, end), ylim=(0, None), **bare)
    right.set(ylim=joint.get_ylim(), xlim=(0, None), **bare)
    top.spines[["top", "right", "left"]].set_visible(False)
    right.spines[["top", "right", "bottom"]].set_visible(False)
    joint.spines[["top", "right"]].set_visible(False)
    style.legend(figure, handles, 3)
    style.heading(figure, title, subject)
    return figure


def cluster_table(
    head: Head,
    probes: Mapping[str, tuple[np.ndarray, float]],
    train: np.ndarray,
    z: np.ndarray,
    samples: pd.DataFrame,
) -> pd.DataFrame:
    """Where samples ``[N]`` with activations ``z [N, D]`` lie in the plane of two probes' weights.

    ``probes`` holds weight ``[D]`` and intercept by label. Where the weights are parallel, or one
    is zero, the plane has the main direction of ``train [M, D]`` off the first. Of each label that
    has a weight, ``a x + b y + c = 0`` is the boundary: ``_LABEL_a`` and so on.
    """
    (first, _), (second, _) = probes.values()
    u = unit(first) if first.any() else unit(second)
    rest = unit(second) - (unit(second) @ u) * u
    rest -= (rest @ u) * u
    distinct = np.linalg.norm(rest) > PARALLEL
    plane = Plane(train.mean(axis=0), u, unit(rest) if distinct else main_direction(train, u))
    table = plane.table(z, samples, *probes).assign(layer=head.layer, head=head.head)
    for label, (coef, intercept) in probes.items():
        if coef.any():
            table[[f"_{label}_{n}" for n in "abc"]] = plane.line(coef, intercept)
    return table


def clusters_figure(
    panels: Mapping[str, pd.DataFrame], labels: Sequence[str], split: str, title: Sequence[str]
) -> Figure:
    """Panels of :func:`cluster_table` by their titles."""
    figure = style.new_figure(4.1 * len(panels) + 0.4, 5.0)
    first, second = map(symbol, labels)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (heading, table) in zip(axes, panels.items(), strict=True):
        for values, colour, marker in zip(CLUSTERS, style.COLOURS, style.MARKERS, strict=False):
            points = table[(table[list(labels)] == list(values)).all(axis=1)]
            name = f"{first} {class_name(values[0])}, {second} {class_name(values[1])}"
            dots: dict[str, Any] = {"color": colour, "marker": marker, "s": 20, "alpha": 0.85}
            dots |= {"edgecolor": "white", "linewidth": 0.4, "zorder": 2}
            axis.scatter(points["_x"], points["_y"], label=f"{name} (n = {len(points)})", **dots)
        for label, dash in zip(labels, ("-", "--"), strict=True):
            if f"_{label}_a" in table:
                a, b, c = table[[f"_{label}_{n}" for n in "abc"]].iloc[0]
                x, y = (-c * part / (a * a + b * b) for part in (a, b))  # its point nearest to 0
                words = f"{symbol(label)} probe at 0.5"
                look: dict[str, Any] = {"color": "0.15", "lw": 1.6, "ls": dash, "label": words}
                axis.axline((x, y), (x - b, y + a), zorder=3, **look)
        axis.set_xlabel(f"along θ of the {first} probe")
        axis.set_ylabel(f"along θ of the {second} probe, part ⊥ θ of {first}")
        axis.set_title(heading)
    style.legend(figure, axes[0].get_legend_handles_labels()[0], 1 + len(panels))
    style.heading(figure, title, f"{split} samples (N = {len(table)})")
    return figure
