"""All figures of one run, as `python -m probing.run` draws them at its end."""

from __future__ import annotations

from pathlib import Path

from figures import clusters, heatmap, kde
from figures.runs import Run
from sally_anne.core.commands import no_command


def draw_all(run: Path | str) -> list[Path]:
    """Draw every figure of a finished run into RUN/figures; return the paths written.

    Heatmaps of validation and (if the run has test samples) test accuracy, the densities of
    the best Y_p and the best Y_o head, and the clusters.

    Raises:
        FigureError: the run folder lacks what a figure needs.
    """
    run = Path(run)
    paths = heatmap.draw(heatmap.HeatmapConfig(run))
    if (Run.open(run).items["split"] == "test").any():
        paths += heatmap.draw(heatmap.HeatmapConfig(run, split="test"))
    paths += kde.draw(kde.KdeConfig(run))
    paths += kde.draw(kde.KdeConfig(run, label="y_o"))
    paths += clusters.draw(clusters.ClustersConfig(run))
    return paths


if __name__ == "__main__":
    no_command("figures.heatmap, figures.kde or figures.clusters; probing.run draws all")
