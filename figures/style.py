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
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sally_anne.core.files import write_atomic

DPI = 200
# Okabe and Ito's palette: apart in hue and in lightness also for colour-blind readers.
COLOURS = ("#009E73", "#E69F00", "#0072B2", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
RING = "#D55E00"
MISSING = "#BDBDBD"
SEQUENTIAL = "Greens"
DIVERGING = "PuOr"  # orange below the middle, purple above
SYMBOLS = {"y_p": "$Y_p$", "y_o": "$Y_o$"}
PERSPECTIVES = {"y_p": "protagonist", "y_o": "omniscient"}
NUMBERS_UP_TO = 12  # values are written in the cells up to this many rows and columns
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
    "mathtext.fontset": "dejavusans",
    "axes.linewidth": 0.8,
    "pdf.fonttype": 42,
    "savefig.facecolor": "white",
}


def symbol(label: str) -> str:
    """A label's name in a figure: Y_p and Y_o as in the paper, others as they are."""
    return SYMBOLS.get(label, label.replace("$", r"\$"))


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
        return render(self, "png", {})


def new_figure(width: float, height: float, arrange: bool = True) -> Figure:
    """An empty figure in inches; ``arrange`` lets matplotlib make room for labels and legends."""
    layout: Any = "constrained" if arrange else None
    figure = Picture(figsize=(width, height), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def heading(figure: Figure, parts: Sequence[str], subject: str | None = None) -> None:
    """Write ``subject`` and, below it, ``parts`` joined by dots; lines break between parts."""
    joined = "\u00a0· ".join(part.replace(" ", "\u00a0") for part in parts)
    text = "\n".join(filter(None, (subject, joined)))
    top = 1.0 - 0.07 / figure.get_figheight()
    # Constrained layout makes room for a heading only as long as its place is left to it.
    place = {"y": top} if figure.get_layout_engine() is None else {}
    figure.suptitle(text, va="top", fontsize=9.0, color="0.25", wrap=True, **place)


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
    texts: np.ndarray | None = None,
    **more: Any,
) -> QuadMesh:
    """Coloured cells ``[rows, columns]``, row 0 at the top, NaN in grey; see `seaborn.heatmap`.

    ``texts`` stand in the cells; without them the values do, where there are few cells.
    """
    values = np.asarray(cells, dtype=float)
    large = max(values.shape) > NUMBERS_UP_TO
    if texts is None and not large:
        texts = np.vectorize(number)(values)
    options: dict[str, Any] = {"annot_kws": {"fontsize": 7.5}, "fmt": "", "cbar": False}
    options |= {"annot": False if texts is None else texts}
    options |= {"linewidths": 0.2 if large else 0.8, "linecolor": "white"}
    if not isinstance(
        cells, pd.DataFrame
    ):  # rows and columns that are named: all, or every 4th ...
        steps = [next(n for n in (1, 4, 8, 16, 32, 64) if size <= 12 * n) for size in values.shape]
        options |= {"yticklabels": steps[0], "xticklabels": steps[1]}
    sns.heatmap(cells, vmin=limits[0], vmax=limits[1], cmap=colours, ax=axis, **(options | more))
    axis.set_facecolor(MISSING)
    axis.tick_params(length=2.5, rotation=0)
    axis.set(xlabel="", ylabel="")
    return axis.collections[0]  # type: ignore[return-value]


def number(value: float) -> str:
    """Two decimals without the leading zero, with a true minus sign; nothing of NaN."""
    if not np.isfinite(value):
        return ""
    text = f"{abs(value):.2f}"
    sign = "\N{MINUS SIGN}" if value < 0 and float(text) else ""
    return "0" if not float(text) else sign + text.removeprefix("0")


def sides(marked: np.ndarray) -> list[list[tuple[int, int]]]:
    """The sides ``(x, y), (x, y)`` round the cells of ``marked [rows, columns]`` that are true."""
    padded = np.pad(marked.astype(bool), 1)
    # A side stands where a cell differs from the one above it, or from the one to its left.
    level = np.argwhere(padded[1:, 1:-1] != padded[:-1, 1:-1]).tolist()
    upright = np.argwhere(padded[1:-1, 1:] != padded[1:-1, :-1]).tolist()
    return [[(x, y), (x + 1, y)] for y, x in level] + [[(x, y), (x, y + 1)] for y, x in upright]


def outline(axis: Axes, marked: np.ndarray, linewidth: float = 1.8) -> None:
    """Draw a line round the cells of ``marked [rows, columns]`` that are true."""
    look: dict[str, Any] = {"linewidths": linewidth, "capstyle": "projecting"}
    lines = LineCollection(sides(marked), colors="black", **look)
    lines.set_clip_on(False)
    axis.add_collection(lines, autolim=False)


def ring(axis: Axes, layer: int, head: int, size: float = 22) -> None:
    """A ring round one cell."""
    look: dict[str, Any] = {
        "markerfacecolor": "none",
        "markeredgecolor": RING,
        "markeredgewidth": 1.8,
    }
    axis.plot([head + 0.5], [layer + 0.5], "o", markersize=size, clip_on=False, zorder=5, **look)


def save(figure: Figure, folder: Path, name: str, data: pd.DataFrame) -> list[Path]:
    """Write NAME.png, NAME.pdf and the numbers shown, NAME.parquet; return the three paths.

    All are made in memory first. Neither picture holds a date or a version.
    """
    png = render(figure, "png", {"Software": None})
    pdf = render(figure, "pdf", {"Creator": None, "Producer": None, "CreationDate": None})
    contents = {"png": png, "pdf": pdf, "parquet": data.to_parquet(None, index=False)}
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, content in contents.items():
        write_atomic(folder / f"{name}.{suffix}", content)
    return [folder / f"{name}.{suffix}" for suffix in contents]


def render(figure: Figure, kind: str, metadata: dict[str, str | None]) -> bytes:
    """The figure as a file of this kind."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    return buffer.getvalue()
