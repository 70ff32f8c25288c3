"""The options of the commands that draw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sally_anne.core.options import Natural, Seed

Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
Kind = Literal["heatmap", "kde", "clusters", "patching", "sweep", "correlations"]


@dataclass(frozen=True)
class FiguresConfig:
    """Draw the figures of a finished run, each as PNG, PDF and the numbers that it shows."""

    run: Run
    """Run folder, as probe, sweep or evaluate leaves it."""
    kind: tuple[Kind, ...] = ()
    """What to draw; by default all that the run has."""
    label: str | None = None
    """Label that the probes read; by default all (heatmap, kde), or the run's first (patching)."""
    split: Literal["held-out", "validation", "test", "train", "all"] = "held-out"
    """Samples shown: held-out is validation and test. A heatmap is drawn for each split."""
    condition: str | None = None
    """Of a heatmap: accuracy in one condition, as TB or FB, or in the worst of them."""
    layer: Natural | None = None
    """Layer of the head of kde and clusters; by default heads are chosen on validation samples."""
    head: Natural | None = None
    """Head in that layer."""
    directions: Literal["probe", "pca"] = "probe"
    """Of kde: the probe's weight and the main direction off it, or two main directions."""
    out: Path | None = None
    """Folder to write to; RUN/figures if not given."""


@dataclass(frozen=True)
class ReportConfig:
    """Write a finished run as one page to look at and share; it needs no network."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders; of several also an index is written, which compares them."""
    out: Path | None = None
    """File to write; RUN/report.html, or that of the folder that several share, if not given."""


@dataclass(frozen=True)
class TableConfig:
    """Print the table of a finished run, to be put into a paper or a spreadsheet."""

    run: Run
    """Run folder of probe, sweep, evaluate, table1, transfer or localisation."""
    format: Literal["csv", "latex", "markdown"] = "markdown"
    """What is printed; csv has all digits."""
    columns: tuple[str, ...] = ()
    """Columns to print, in this order; all by default."""
    rows: int | None = None
    """Only the first so many rows; heads stand best first."""


@dataclass(frozen=True)
class StoryConfig:
    """Draw a GridToM story: its frames from each perspective, who believes what, the question."""

    index: Natural = 0
    """Number of the story; those of generated stories in which the participant returns are 648
    above those of their counterparts."""
    order: Literal[1, 2] = 1
    """1: where does the protagonist believe the participant is? 2: what does the participant think
    that the protagonist believes?"""
    first: Literal["TB", "FB"] = "FB"
    """Whether the protagonist's belief is true (TB) or false (FB)."""
    second: Literal["TB", "FB"] = "FB"
    """The same of what the participant thinks that it believes; of order 2 alone."""
    gif: bool = False
    """Write the whole film, too, as an animated GIF."""
    maps: bool = False
    """Draw the first frame of one story of each map instead."""
    data: Path | None = None
    """Folder in GridToM's release layout; stories are generated if none is given."""
    seed: Seed = 2025
    """Of generated stories."""
    out: Path = Path("runs") / "story"
    """Folder to write to."""
