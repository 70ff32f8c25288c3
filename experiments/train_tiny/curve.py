"""The loss curve of a training run as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

_SMOOTH = 15


def draw(stages: Mapping[str, Path], path: Path) -> None:
    """One panel a stage: target loss against step, a colour a level.

    Args:
        stages: name of the stage -> its ``loss.csv``.
        path: PNG to write.
    """
    figure = Figure(figsize=(4.6 * len(stages), 3.6), layout="constrained")
    for axes, (stage, source) in zip(figure.subplots(1, len(stages)), stages.items(), strict=True):
        table = pd.read_csv(source)
        for level, rows in table.groupby("level", sort=False):
            smooth = rows["target_loss"].rolling(_SMOOTH, min_periods=1).mean()
            axes.plot(rows["step"], smooth, label=level, linewidth=1.2)
        minutes = table["seconds"].iloc[-1] / 60
        axes.set(title=f"{stage} ({minutes:.0f} min)", xlabel="step", ylabel="target loss (nats)")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=120)
