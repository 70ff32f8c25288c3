"""``sa.plot``: the figures of the commands, from what a notebook holds.

They look the same wherever they are saved or shown. With ``ax``, an axis of ``plt.subplots(...,
layout="constrained")``, each is drawn in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sally_anne.api import Answered
from sally_anne.core.errors import ProbingError
from sally_anne.core.run import Head, best, labels_of
from sally_anne.figures import heatmap as maps
from sally_anne.figures import kde as planes
from sally_anne.figures import style
from sally_anne.figures.draw import SWEEP, results_in, table_in, title_of
from sally_anne.figures.sweep import curves, sweep_figure
from sally_anne.probing.activations import Activations
from sally_anne.probing.patching import MEASURES, PatchingResult
from sally_anne.probing.probes import HeadProbes

__all__ = ["clusters", "heatmap", "kde", "patching", "sweep"]


def __dir__() -> list[str]:
    return __all__


def heatmap(
    heads: pd.DataFrame,
    label: str | Sequence[str] | None = None,
    split: str = "validation",
    ax: Axes | None = None,
) -> Figure:
    """Accuracy of every head's probe, layers by heads (GridToM paper, figure 5 A).

    Args:
        heads: the table of ``sa.probe`` or ``HeadProbes.rank``, or of a run (``Run.heads``).
        label: one label or several, a panel each; by default all by which heads are ranked.
        split: validation, test or train.

    Raises:
        ProbingError, RunFolderError: no such table; it has no accuracy of this label and split.
    """
    ranked = labels_of(heads) if isinstance(heads, pd.DataFrame) else ()
    labels = (label,) if isinstance(label, str) else tuple(label or ranked)
    if not (labels and isinstance(heads, pd.DataFrame) and {"layer", "head"} <= set(heads)):
        raise ProbingError("give the table of heads: probes.rank(x.validation), or run.heads")
    with style.look(ax):
        return maps.heatmap_figure(maps.accuracy_table(heads, labels, split), split, None, ())


def kde(
    activations: Activations,
    probes: HeadProbes,
    layer: int | None = None,
    head: int | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Density of one head's activations along its probe and off it (GridToM paper, figure 5 B).

    Args:
        activations: what is shown, e.g. ``x.validation``.
        probes: fitted on training activations, from which the plane is taken.
        layer, head: by default the best head of probes that are ranked.

    Raises:
        ProbingError: the probes were not fitted on activations, or no head is named or ranked.
    """
    at, train, shown = _at_head(probes, activations, layer, head)
    label, weights = probes.label_, (None, 0.0)
    if probes.binary:
        weights = probes.coef_[at], float(probes.intercept_[at])
    plane, boundary = planes.density_plane(train, *weights)
    with style.look(ax):
        table = plane.table(shown, activations.items, label)
        return planes.kde_figure(table, label, str(at), (), boundary)


def clusters(
    activations: Activations,
    probes: Mapping[str, HeadProbes],
    layer: int | None = None,
    head: int | None = None,
    ax: Axes | None = None,
) -> Figure:
    """One head's activations in the plane of the probes of two labels (figure 5 C and D).

    ``probes`` are of two labels that are true or false, by name, as ``sa.probe(...).probes``; all
    else is as of :func:`kde`, with the first label's best head.
    """
    pair = list(probes.values())[:2] if isinstance(probes, Mapping) else []
    if len(pair) < 2 or not all(
        isinstance(p, HeadProbes) and p.classes_.dtype == bool for p in pair
    ):
        raise ProbingError("give probes of two labels that are true or false, by their names")
    at, train, shown = _at_head(pair[0], activations, layer, head)
    weights = {p.label_: (p.coef_[at], float(p.intercept_[at])) for p in pair}
    table = planes.cluster_table(at, weights, train, shown, activations.items)
    split = "/".join(activations.items["split"].unique())
    with style.look(ax):
        return planes.clusters_figure({str(at): table}, list(weights), split, ())


def patching(
    heads: pd.DataFrame,
    found: PatchingResult | None = None,
    label: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """What each head carries of the answer, as a map and against its probe's accuracy.

    Args:
        heads: a run's table (``Run.heads``); or that of ``sa.probe``, with ``found``.
        found: what ``sa.patching`` gave on the same samples.
        label: whose probes are shown; by default the first.

    Raises:
        ProbingError: no such table, or nothing was patched.
    """
    labels = labels_of(heads) if isinstance(heads, pd.DataFrame) else ()
    if found is not None and labels:
        own = found.heads.rename(columns={name: f"question_{name}" for name in MEASURES})
        heads = heads.merge(own, on=["layer", "head"])
    if (label := label or next(iter(labels), "")) not in labels or not maps.kinds_of(heads):
        raise ProbingError(
            "give the table of heads of a run that was patched, or that of sa.probe and what "
            f"sa.patching gave, and one of its labels ({', '.join(labels) or 'it has none'})"
        )
    null = {f"{label}_p_fwer": np.nan, f"{label}_threshold": np.nan}  # if nothing was permuted
    heads = heads.assign(**{name: heads.get(name, value) for name, value in null.items()})
    with style.look(ax):
        table, top = maps.patching_table(heads, label), best(heads, label)
        asks = lambda kind: found.facts["asks"] if found else kind  # noqa: E731
        return maps.patching_figure(table, label, top, (), asks)


def sweep(found: Answered | Path | str, ax: Axes | None = None) -> Figure:
    """Accuracy against alpha, a panel for each K (GridToM paper, figures 15 to 18).

    Takes what ``sa.sweep`` gave, or the folder of a sweep; a RunFolderError if it has none.
    """
    if isinstance(found, Answered):
        table, results = found.scores, found.results
    else:
        table, results = table_in(Path(found), SWEEP), results_in(Path(found))
    with style.look(ax):
        return sweep_figure(curves(table, results), title_of(results), results)


def _at_head(
    probes: HeadProbes, activations: Activations, layer: int | None, head: int | None
) -> tuple[Head, np.ndarray, np.ndarray]:
    """The head that is named, or the best, and what it gives of training samples and of others."""
    if not isinstance(probes, HeadProbes):
        raise ProbingError(f"give activations, then the probes of a label, not {probes!r:.60}")
    train = probes.fitted_on()
    if (layer is None) != (head is None):
        raise ProbingError("name layer and head, or neither for the best head")
    if layer is None or head is None:
        if not hasattr(probes, "ranked_"):
            raise ProbingError("name layer and head, or rank the heads: probes.rank(...)")
        layer, head = probes.ranked_[0]
    if not (isinstance(activations, Activations) and len(activations)):
        raise ProbingError("give activations of some samples, such as x.validation")
    activations.values(probes.label_)
    layers, count = probes.coef_.shape[:2]
    if layer not in range(layers) or head not in range(count):
        raise ProbingError(f"there is no {Head(layer, head)} in {layers} layers of {count} heads")
    here, shown = (one.x[:, layer, head].astype(np.float64) for one in (train, activations))
    return Head(layer, head), here, shown
