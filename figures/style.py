"""The look that all figures share, and how they are saved. Nothing here uses pyplot's state.

The font is the one that matplotlib ships, so the same numbers give the same bytes on any machine
with the same versions.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sally_anne.core.files import write_atomic
from sally_anne.core.head import Head

DPI = 200
# Okabe and Ito's palette: apart in hue and in lightness also for colour-blind readers.
COLOURS = ("#009E73", "#E69F00", "#0072B2", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
RING = "#D55E00"
MISSING = "#BDBDBD"
SEQUENTIAL = "Greens"
DIVERGING = "PuOr"  # orange below the middle, purple above
# How a label is written, and the perspective that it is taken from.
SYMBOLS = {"y_p": "Y\u209a", "y_o": "Y\u2092"}  # with the letters p and o as subscripts
PERSPECTIVES = {"y_p": "protagonist", "y_o": "omniscient"}
NUMBERS_UP_TO = 12  # values are written in the cells up to this many rows and columns
# Of each kind of file what matplotlib would write into it of its own.
METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
SETTINGS = {
    **sns.axes_style("ticks"),
    **sns.plotting_context("paper"),
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "text.parse_math": False,  # a label of any name is written as it is
    "axes.linewidth": 0.8,
    "pdf.fonttype": 42,
    "savefig.facecolor": "white",
}


def symbol(label: str) -> str:
    """A label's name: Y_p and Y_o as in the paper, others as they are."""
    return SYMBOLS.get(label, label)


def named(label: str) -> str:
    """A label with the perspective that it is taken from, where it has one."""
    return symbol(label) + (f" ({PERSPECTIVES[label]})" if label in PERSPECTIVES else "")


@contextmanager
def look() -> Iterator[None]:
    """Settings for drawing and saving; the user's own hold again on leaving."""
    with matplotlib.rc_context(SETTINGS):
        yield


class Picture(Figure):
    """A figure that has the shared look wherever it is saved or displayed."""

    def savefig(self, *args: Any, **options: Any) -> None:
        with look():
            self.draw_without_rendering()
            self.set_layout_engine("none")  # what is saved again keeps the places of now
            super().savefig(*args, **options)

    def _repr_png_(self) -> bytes:
        return render(self)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches, in which matplotlib makes room for labels and legends."""
    figure = Picture(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def heading(figure: Figure, parts: Sequence[str], subject: str | None = None) -> None:
    """Write ``subject`` and, below it, ``parts`` joined by dots; lines break between parts."""
    joined = "\u00a0· ".join(part.replace(" ", "\u00a0") for part in parts)
    text = "\n".join(filter(None, (subject, joined)))
    figure.suptitle(text, fontsize=9.0, color="0.25", wrap=True)


def sign(label: str, color: str, **line: Any) -> Line2D:
    """What a legend shows for ``label``: a marker, or the line that ``line`` describes."""
    return Line2D([], [], color=color, label=label, **line)


def legend(figure: Figure, handles: Sequence[Any], columns: int) -> None:
    """One legend below all panels, without a frame."""
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns}
    figure.legend(handles=handles, frameon=False, columnspacing=1.4, **place)


def heat(
    axis: Axes,
    cells: np.ndarray | pd.DataFrame,
    colours: str,
    limits: tuple[float, float],
    **more: Any,
) -> QuadMesh:
    """Coloured cells ``[rows, columns]``, row 0 at the top, NaN in grey; see `seaborn.heatmap`.

    Few cells have their values in them.
    """
    few = max(cells.shape) <= NUMBERS_UP_TO
    values = np.where(np.abs(cells) < 0.005, 0.0, cells)  # never -0.00
    options: dict[str, Any] = {"annot": values if few else False, "fmt": ".2f"}
    options["annot_kws"] = {"fontsize": 7.0}
    options |= {"linewidths": 0.8 if few else 0.2, "linecolor": "white", "cbar": False}
    if isinstance(cells, np.ndarray):  # rows and columns by number: at most twelve of them
        rows, columns = (-(-size // 12) for size in cells.shape)
        options |= {"yticklabels": rows, "xticklabels": columns}
    sns.heatmap(cells, vmin=limits[0], vmax=limits[1], cmap=colours, ax=axis, **(options | more))
    axis.set_facecolor(MISSING)
    axis.tick_params(length=2.5, rotation=0)
    axis.set(xlabel="", ylabel="")
    return axis.collections[0]  # type: ignore[return-value]


def dots(axis: Axes, marked: np.ndarray) -> None:
    """A dot in the corner of the cells of ``marked [rows, columns]`` that are true."""
    rows, columns = np.nonzero(marked)
    axis.scatter(columns + 0.84, rows + 0.16, s=9, color="black", edgecolors="white", zorder=4)


def ring(axis: Axes, head: Head, size: float = 22) -> None:
    """A ring round the cell of a head."""
    look: dict[str, Any] = {"markeredgecolor": RING, "markeredgewidth": 1.8, "mfc": "none"}
    x, y = [head.head + 0.5], [head.layer + 0.5]
    axis.plot(x, y, "o", markersize=size, clip_on=False, zorder=5, **look)


def save(figure: Figure, folder: Path, name: str, data: pd.DataFrame) -> list[Path]:
    """Write NAME.png, NAME.pdf and the numbers shown, NAME.parquet; return the three paths.

    All are made in memory first. Neither picture holds a date or a version.
    """
    contents = {kind: render(figure, kind) for kind in METADATA}
    contents["parquet"] = data.to_parquet(None, index=False)
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, content in contents.items():
        write_atomic(folder / f"{name}.{suffix}", content)
    return [folder / f"{name}.{suffix}" for suffix in contents]


def render(figure: Figure, kind: str = "png", dpi: int = DPI) -> bytes:
    """The figure as a file of this kind."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=METADATA[kind])
    return buffer.getvalue()
