"""The look that all figures share, and how they are saved. Nothing here uses pyplot's state.

The font is the one that matplotlib ships, so the same numbers give the same bytes on any machine
with the same versions. Chinese and the like is drawn in a usual font of the machine, else written
as escapes.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from sally_anne.core.errors import FigureError
from sally_anne.core.files import write_atomic
from sally_anne.core.run import Head

DPI = 200
FONT = "DejaVu Sans"
MORE_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "SimHei")
FONTS = [FONT, *(name for name in MORE_FONTS if name in fontManager.get_font_names())]
# Okabe and Ito's palette: apart in hue and in lightness also for colour-blind readers.
COLOURS = ("#009E73", "#E69F00", "#0072B2", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
RING = "#D55E00"
MISSING = "#BDBDBD"
SEQUENTIAL = "Greens"
DIVERGING = "PuOr"  # orange below the middle, purple above
NUMBERS_UP_TO = 12  # values are written in the cells up to this many rows and columns
# Of each kind of file what matplotlib would write into it of its own.
METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
SETTINGS = {
    **sns.axes_style("ticks"),
    **sns.plotting_context("paper"),
    "font.family": FONTS,
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "text.parse_math": False,  # a label of any name is written as it is
    "text.usetex": False,
    "axes.linewidth": 0.8,
    "pdf.fonttype": 42,
    "savefig.facecolor": "white",
}


_place: ContextVar[Axes | None] = ContextVar("place", default=None)


@contextmanager
def look(place: Axes | None = None) -> Iterator[None]:
    """Settings for drawing and saving; what is drawn takes the ``place`` of an axis, if given."""
    before = _place.set(place)
    try:
        with matplotlib.rc_context(SETTINGS):
            yield
    finally:
        _place.reset(before)


@lru_cache
def known_characters() -> frozenset[str]:
    """What the fonts can draw."""
    return frozenset(chr(n) for name in FONTS for n in FT2Font(findfont(name)).get_charmap())


def readable(text: str) -> str:
    """A text with escapes, such as ``\\u4fe1``, for what no font can draw."""
    return "".join(
        one if one in known_characters() or one == "\n" else one.encode("unicode_escape").decode()
        for one in text
    )


class Picture(Figure):
    """A figure that has the shared look wherever it is saved or displayed."""

    def draw(self, renderer: Any) -> None:
        for axis in (axis for panel in self.axes for axis in (panel.xaxis, panel.yaxis)):
            labels = [text.get_text() for text in axis.get_ticklabels()]
            if (shown := list(map(readable, labels))) != labels:
                axis.set_ticks(axis.get_ticklocs(), labels=shown)
        for text in self.findobj(Text):
            text.set_text(readable(text.get_text()))
        super().draw(renderer)

    def savefig(self, *args: Any, **options: Any) -> None:
        with look():
            if isinstance(self.get_layout_engine(), ConstrainedLayoutEngine):
                self.draw_without_rendering()
                self.set_layout_engine("none")  # what is saved again keeps the places of now
            self._fit()
            super().savefig(*args, **options)

    def _fit(self) -> None:
        """Make titles smaller that are wider than their panel's part of the figure."""
        specs = [(panel.title, panel.get_subplotspec()) for panel in self.axes]
        rooms = [(title, spec.get_position(self).width) for title, spec in specs if spec]
        top: Text | None = getattr(self, "_suptitle", None)
        for title, share in [*rooms, *([(top, 1.0)] if top else [])]:
            if wide := title.get_window_extent().width:
                room = 0.98 * self.bbox.width * share
                title.set_fontsize(float(title.get_fontsize()) * min(1.0, room / wide))

    def _repr_png_(self) -> bytes:
        return render(self)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches, or the place of :func:`look`; FigureError if that is none."""
    if (axis := _place.get()) is not None:
        part = axis.get_subplotspec() if isinstance(axis, Axes) else None
        if part is None:
            raise FigureError(f"ax must be an axis of plt.subplots, not {axis!r:.60}")
        inside: Any = axis.figure.add_subfigure(part)
        axis.remove()
        return inside
    # Without a canvas of Agg: seaborn would draw the whole figure for each of its heatmaps.
    return Picture(figsize=(width, height), dpi=DPI, layout="constrained")


def heading(figure: Figure, parts: Sequence[str], subject: str | None = None) -> None:
    """Write ``subject`` and, below it, ``parts`` joined by dots."""
    joined = " · ".join(p if len(p) > 50 else p.replace(" ", "\u00a0") for p in parts)
    text = "\n".join(filter(None, (subject, joined)))
    figure.suptitle(text, fontsize=9.0, color="0.25", wrap=True)


def sign(label: str, color: str, **line: Any) -> Line2D:
    """What a legend shows for ``label``."""
    return Line2D([], [], color=color, label=label, **line)


def legend(figure: Figure, handles: Sequence[Any], columns: int) -> None:
    """One legend below all panels, in fewer columns where these are too wide."""
    # In bytes, as letters of several are wide.
    inches = [0.4 + 0.06 * len(readable(str(one.get_label())).encode()) for one in handles]
    while columns > 1 and figure.bbox.width / figure.dpi < sum(
        max(column, default=0.0) for column in np.array_split(inches, columns)
    ):
        columns -= 1
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns}
    figure.legend(handles=handles, frameon=False, columnspacing=1.4, **place)


def heat(
    axis: Axes,
    cells: np.ndarray | pd.DataFrame,
    colours: str,
    limits: tuple[float, float],
    **more: Any,
) -> QuadMesh:
    """Coloured cells ``[rows, columns]``, NaN in grey; few have their values in them."""
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


def ring(axis: Axes, head: Head, size: float = 22) -> None:
    """A ring round the cell of a head."""
    look: dict[str, Any] = {"markeredgecolor": RING, "markeredgewidth": 1.8, "mfc": "none"}
    x, y = [head.head + 0.5], [head.layer + 0.5]
    axis.plot(x, y, "o", markersize=size, clip_on=False, zorder=5, **look)


def name_points(panel: Axes, at: np.ndarray, names: Sequence[object], points: np.ndarray) -> None:
    """Write names next to their points ``at [n, 2]``, each at the nearest free place.

    Free is what lies inside the frame, and neither on a name nor, if that can be, on one of
    ``points [N, 2]``. The figure must have been laid out.
    """
    pixel, frame = panel.figure.dpi / 72, panel.get_window_extent()
    dots = panel.transData.transform(points)
    taken: list[Bbox] = []
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False) + np.pi / 8
    for point, spot, name in zip(at, panel.transData.transform(at), map(str, names), strict=True):
        size = pixel * np.array([4.9 * len(name), 8.0])  # of letters of 7 points
        boxes, costs = {}, {}
        for away, angle in itertools.product((9, 14, 20, 27, 36), angles):
            offset = 1.5 * away * np.cos(angle), away * np.sin(angle)
            box = Bbox.from_bounds(*(spot + pixel * np.array(offset) - size / 2), *size)
            outside = not (frame.contains(*box.min) and frame.contains(*box.max))
            boxes[offset] = box
            costs[offset] = outside, box.count_overlaps(taken), box.count_contains(dots)
        offset = min(costs, key=costs.__getitem__)
        taken.append(boxes[offset])
        far = {"arrowstyle": "-", "linewidth": 0.5, "color": "0.5", "shrinkB": 2}
        place: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center"}
        place |= {"fontsize": 7.0, "arrowprops": far if np.hypot(*offset) > 14 else None}
        text = panel.annotate(name, point, offset, **place)
        text.set_in_layout(False)


def save(figure: Figure, folder: Path, name: str, data: pd.DataFrame) -> list[Path]:
    """Write NAME.png, NAME.pdf and the numbers shown, NAME.parquet; return the three paths."""
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
