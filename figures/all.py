"""All figures of one run, as `sally-anne probe` draws them at its end.

sally-anne figures RUN
"""

from __future__ import annotations

from pathlib import Path

from sally_anne.figures import causal, clusters, heatmap, kde
from sally_anne.figures.command import FigureConfig, figure_command
from sally_anne.hooks.saved_run import Run


def draw_all(run: Path | str, out: Path | None = None) -> list[Path]:
    """Draw every figure of a finished run into RUN/figures, or ``out``; return the paths written.

    Heatmaps of validation and (if the run has test samples) test accuracy, the densities of
    the best head of each label, the clusters of the first two labels, and which heads are used.
    """
    folder, opened = Path(run), Run.open(run)
    paths = heatmap.draw(heatmap.HeatmapConfig(folder, out=out))
    if (opened.samples["split"] == "test").any():
        paths += heatmap.draw(heatmap.HeatmapConfig(folder, split="test", out=out))
    for number, label in enumerate(opened.labels):
        paths += kde.draw(kde.KdeConfig(folder, label=label if number else None, out=out))
    if clusters.pair_of(opened):
        paths += clusters.draw(clusters.ClustersConfig(folder, out=out))
    if causal.kinds_of(opened.heads) and f"{opened.labels[0]}_threshold" in opened.heads:
        paths += causal.draw(causal.CausalFigureConfig(folder, out=out))
    return paths


def draw(config: FigureConfig) -> list[Path]:
    """Draw all figures of a finished run."""
    return draw_all(config.run, config.out)


main = figure_command("figures", FigureConfig, draw)
