"""The loss curve of a training run as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

_SMOOTH = 15
_ACROSS = 4


def draw(stages: Mapping[str, Path], path: Path) -> None:
    """One panel a stage: target loss against step, a colour a level.

    Args:
        stages: name of the stage -> its ``loss.csv``.
        path: PNG to write.
    """
    columns = min(_ACROSS, len(stages))
    lines = -(-len(stages) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).flat
    for (stage, source), axes in zip(stages.items(), panels, strict=False):
        table = pd.read_csv(source)
        for level, rows in table.groupby("level", sort=False):
            smooth = rows["target_loss"].rolling(_SMOOTH, min_periods=1).mean()
            axes.plot(rows["step"], smooth, label=level, linewidth=1.2)
        minutes = table["seconds"].iloc[-1] / 60
        axes.set(title=f"{stage} ({minutes:.0f} min)", xlabel="step", ylabel="target loss (nats)")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7, frameon=False)
    for axes in list(panels):
        axes.remove()
    figure.savefig(path, dpi=120)
