"""The look that all figures share, and how they are saved.

Nothing here touches pyplot's state. The font is the one that matplotlib ships, so the same numbers
give the same bytes on any machine with the same versions.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sally_anne.core.files import write_atomic

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

DPI = 200
HEADING_SIZE = 9.0  # points

# Okabe and Ito's palette: apart in hue and in lightness also for colour-blind readers.
TRUE, FALSE = "#009E73", "#E69F00"
RING = "#D55E00"
CLUSTER_COLOURS = {  # (Y_p, Y_o)
    (1, 1): "#009E73",
    (0, 0): "#E69F00",
    (1, 0): "#0072B2",
    (0, 1): "#CC79A7",
}
CLUSTER_MARKERS = {(1, 1): "o", (0, 0): "^", (1, 0): "s", (0, 1): "D"}
LABEL_TEXT = {"y_p": "$Y_p$", "y_o": "$Y_o$"}
PERSPECTIVE = {"y_p": "protagonist", "y_o": "omniscient"}
CLASS_COLOURS = (TRUE, FALSE, "#0072B2", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
CLASS_MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
SEQUENTIAL = "Greens"
# Orange below the middle, purple above: apart for colour-blind readers, and in print.
DIVERGING = "PuOr"
MISSING = "#BDBDBD"


def symbol(label: str) -> str:
    """A label's name in a figure: Y_p and Y_o as in the paper, others as they are."""
    return LABEL_TEXT.get(label, label.replace("$", r"\$"))


def named(label: str) -> str:
    """A label with the perspective that it is taken from, where it has one."""
    return symbol(label) + (f" ({PERSPECTIVE[label]})" if label in PERSPECTIVE else "")


def shades(colour: str) -> LinearSegmentedColormap:
    """A colour map from white to ``colour``, for filled densities."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(f"shades of {colour}", ["white", colour])


@contextmanager
def look() -> Iterator[None]:
    """Settings for drawing and saving; what was set before holds again on leaving."""
    import matplotlib
    import seaborn

    settings = {
        **seaborn.axes_style("ticks"),
        **seaborn.plotting_context("paper"),
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
    with matplotlib.rc_context(settings):
        yield


def new_figure(width: float, height: float, arrange: bool = True) -> Figure:
    """An empty figure of so many inches, which has the shared look wherever it is saved or shown.

    ``arrange``: matplotlib finds room for labels and legends; else the caller places all.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Picture(Figure):
        def savefig(self, *args: Any, **options: Any) -> None:
            with look():
                super().savefig(*args, **options)

        def _repr_png_(self) -> bytes:
            return _picture(self, "png", {})

    layout: Literal["constrained"] | None = "constrained" if arrange else None
    figure = Picture(figsize=(width, height), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def heading(figure: Figure, parts: Sequence[str], subject: str | None = None) -> None:
    """Write ``subject`` and, below it, ``parts`` joined by dots over the figure."""
    lines = heading_lines(parts, figure.get_figwidth())
    text = "\n".join(lines if subject is None else [subject, *lines])
    # Constrained layout makes room for a heading only as long as its place is left to it.
    place = {"y": 1.0 - 0.07 / figure.get_figheight()} if figure.get_layout_engine() is None else {}
    figure.suptitle(text, va="top", fontsize=HEADING_SIZE, color="0.25", **place)


def heading_lines(parts: Sequence[str], width: float) -> list[str]:
    """The lines that `heading` breaks ``parts`` into in a figure ``width`` inches wide."""
    return wrap(parts, 72.0 * (width - 0.3), HEADING_SIZE)


def sign(label: str, color: str, **line: Any) -> Line2D:
    """What a legend shows for ``label``: a marker, or the line that ``line`` describes."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color, label=label, **line)


def cells(
    axis: Axes, values: np.ndarray, colours: str, limits: tuple[float, float], linewidth: float
) -> QuadMesh:
    """Coloured cells of ``values [rows, columns]``, row 0 at the top, each around its numbers."""
    rows, columns = values.shape
    mesh = axis.pcolormesh(
        np.arange(columns + 1) - 0.5,
        np.arange(rows + 1) - 0.5,
        np.ma.masked_invalid(values),
        cmap=colours,
        vmin=limits[0],
        vmax=limits[1],
        edgecolors="white",
        linewidth=linewidth,
    )
    axis.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    return mesh


def outline(axis: Axes, marked: np.ndarray, linewidth: float) -> None:
    """Draw a line round the cells of ``marked [rows, columns]`` that are true."""
    from matplotlib.collections import LineCollection

    padded = np.pad(marked.astype(bool), 1)
    sides = []
    # A side stands where a cell differs from the one above it, or from the one to its left.
    for row, column in np.argwhere(padded[1:, 1:-1] != padded[:-1, 1:-1]):
        sides.append([(column - 0.5, row - 0.5), (column + 0.5, row - 0.5)])
    for row, column in np.argwhere(padded[1:-1, 1:] != padded[1:-1, :-1]):
        sides.append([(column - 0.5, row - 0.5), (column - 0.5, row + 0.5)])
    lines = LineCollection(sides, colors="black", linewidths=linewidth, capstyle="projecting")
    lines.set_clip_on(False)
    axis.add_collection(lines, autolim=False)


def write(
    axis: Axes, x: float, y: float, text: str, size: float, colour: str, weight: str = "normal"
) -> None:
    """Write ``text`` around a point."""
    font: dict[str, Any] = {"fontsize": size, "color": colour, "fontweight": weight}
    axis.text(x, y, text, ha="center", va="center", **font)


def legend(figure: Figure, handles: Sequence[Any], columns: int, **spaces: Any) -> None:
    """One legend below all panels, without a frame."""
    spaces |= {"loc": "outside lower center", "ncols": columns, "frameon": False}
    figure.legend(handles=handles, **spaces)


def write_notes(axis: Axes, notes: Sequence[str]) -> None:
    """Write ``notes``, one a line, on a white ground in the lower left corner of ``axis``."""
    if not notes:
        return
    axis.text(
        0.015,
        0.015,
        "\n".join(notes),
        transform=axis.transAxes,
        fontsize=7,
        color="0.3",
        va="bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
        zorder=6,
    )


def wrap(parts: Sequence[str], room: float, size: float) -> list[str]:
    """Join ``parts`` by dots into the fewest lines of at most ``room`` points, evenly filled.

    A single part that is wider than ``room`` has a line of its own.
    """
    lines = _fill(parts, room, size)
    fewest = len(lines)
    while fewest > 1:
        room = max(text_width(line, size) for line in lines) - 0.5
        tighter = _fill(parts, room, size)
        if len(tighter) > fewest or tighter == lines:
            break
        lines = tighter
    return lines


def paragraph(text: str, room: float, size: float) -> str:
    """``text`` with line breaks between words, so that no line is wider than ``room`` points."""
    return "\n".join(_fill(text.split(), room, size, " "))


def _fill(parts: Sequence[str], room: float, size: float, joint: str = "  ·  ") -> list[str]:
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]}{joint}{part}" if lines else part
        if lines and text_width(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def text_width(text: str, size: float) -> float:
    """Width of one line of text in points."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family="DejaVu Sans", size=size)
    pixels = RendererAgg(1, 1, DPI).get_text_width_height_descent(text, font, False)[0]
    return float(pixels) * 72.0 / DPI


def save(figure: Figure, folder: Path, name: str, data: pd.DataFrame) -> list[Path]:
    """Write NAME.png, NAME.pdf and the numbers shown, NAME.parquet; return the three paths.

    All are made in memory first. Neither picture holds a date or a version.
    """
    png = _picture(figure, "png", {"Software": None})
    figure.set_layout_engine("none")  # the PDF keeps the places that the PNG found
    pdf = _picture(figure, "pdf", {"Creator": None, "Producer": None, "CreationDate": None})
    contents = {
        f"{name}.png": png,
        f"{name}.pdf": pdf,
        f"{name}.parquet": data.to_parquet(None, index=False),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        write_atomic(folder / file, content)
    return [folder / file for file in contents]


def _picture(figure: Figure, kind: str, metadata: dict[str, str | None]) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    return buffer.getvalue()
