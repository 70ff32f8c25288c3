"""Figures from what a notebook holds; the commands of ``figures`` draw them from run folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sally_anne.core.errors import ProbingError
from sally_anne.core.head import Head
from sally_anne.figures import kde as density
from sally_anne.figures import style
from sally_anne.figures.heatmap import accuracy_table, heatmap_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from sally_anne.probing.probes import Activations, HeadProbes


def heatmap(
    heads: pd.DataFrame,
    label: str | Sequence[str] = "y_p",
    split: str = "validation",
    title: Sequence[str] = (),
    chance: float | None = None,
) -> Figure:
    """Accuracy of every head's probe, layers by heads (GridToM paper, figure 5 A).

    Args:
        heads: the table of ``HeadProbes.rank``, or of a run (``Run.heads``).
        label: one label or several, a panel each.
        split: validation, test or train.
        title: what stands above, joined by dots.
        chance: accuracy at which colours part, of all labels; by default each one's own, by the
            table, or a half where it does not say.

    Returns:
        A figure that looks the same wherever it is saved or shown.

    Raises:
        RunFolderError: the table has no accuracy of this label and split.
    """
    labels = (label,) if isinstance(label, str) else tuple(label)
    with style.look():
        return heatmap_figure(accuracy_table(heads, labels, split, chance), split, None, title)


def kde(
    activations: Activations,
    probes: HeadProbes,
    layer: int | None = None,
    head: int | None = None,
    title: Sequence[str] = (),
) -> Figure:
    """Density of one head's activations along its probe and off it (GridToM paper, figure 5 B).

    Args:
        activations: what is shown, e.g. ``x.validation``.
        probes: fitted on training activations, from which the plane is taken.
        layer: of the head; with ``head``. By default the best head, once the probes are ranked.
        head: number in its layer.
        title: what stands above, joined by dots.

    Raises:
        ProbingError: the probes were not fitted on activations, or no head is named or ranked.
    """
    if layer is None or head is None:
        if not hasattr(probes, "ranked_"):
            raise ProbingError("name layer and head, or rank the heads: probes.rank(x.validation)")
        layer, head = probes.ranked_[0]
    train, label = probes.fitted_on(), probes.label_
    x = train.x[:, layer, head].astype(np.float64)
    truth = train.values(label) == probes.classes_[-1]
    boundary = None
    if probes.binary:
        coef, intercept = probes.coef_[layer, head], float(probes.intercept_[layer, head])
        plane = density.probe_plane(coef, x, truth)
        slope, _, offset = plane.line(coef, intercept)
        boundary = -offset / slope if slope else np.nan
    else:
        plane = density.pca_plane(x, truth)
    shown = activations.x[:, layer, head].astype(np.float64)
    table = plane.table(shown, activations.items, label)
    with style.look():
        return density.kde_figure(
            table,
            label,
            str(Head(layer, head)),
            title,
            boundary,
        )
