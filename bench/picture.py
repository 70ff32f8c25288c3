"""The figure of a comparison: every contender over the bare forwards, a row of panels a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.clock import ratios
from bench.contenders import BARE, CAPTURE, OURS, SHARED
from bench.tables import peak, per_sample

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

PANELS = {
    "whole": "time, whole procedure",
    "model": "time, model's part",
    "memory": "peak memory, model's part",
}
COLOURS = {OURS: "#009E73", SHARED: "#009E73", CAPTURE: "#0072B2", BARE: "#7F7F7F"}
OTHER = "#E69F00"
# Ratios further apart than this are drawn over powers of ten.
WIDE = 4.0


def points(found: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """What is drawn, a row a turn: ``model, panel, contender, turn, ratio``.

    Ratios are to the bare forwards of the same turn; of memory, to their median peak.
    """
    import pandas as pd

    rows: list[tuple[str, str, str, int, float]] = []
    for model, entry in found.items():
        contenders = entry.get("contenders", {})
        bare = contenders.get(BARE, {})
        for name, each in contenders.items():
            for panel in ("whole", "model"):
                own, base = per_sample(each, panel), per_sample(bare, panel)
                if own is not None and base is not None and len(own) == len(base):
                    rows += [
                        (model, panel, name, turn, ratio)
                        for turn, ratio in enumerate(ratios(own, base))
                    ]
            middle = peak(bare, "model")
            for turn, size in enumerate(each.get("memory", {}).get("model", ())):
                if middle:
                    rows.append((model, "memory", name, turn, size / middle))
    return pd.DataFrame(rows, columns=["model", "panel", "contender", "turn", "ratio"])


def draw(found: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    """Write ``extraction.png``, ``.pdf`` and ``.parquet``; nothing if there is no ratio to show."""
    from sally_anne.figures import style

    table = points(found)
    if table.empty:
        return []
    models = [m for m in found if (table["model"] == m).any()]
    panels = [p for p in PANELS if (table["panel"] == p).any()]
    most = max(table.loc[table["model"] == m, "contender"].nunique() for m in models)
    with style.look():
        figure = style.new_figure(2.6 * len(panels) + 1.6, len(models) * (0.25 * most + 0.9) + 0.5)
        axes = figure.subplots(len(models), len(panels), squeeze=False)
        for row, model in enumerate(models):
            for column, panel in enumerate(panels):
                own = table[(table["model"] == model) & (table["panel"] == panel)]
                axis = axes[row][column]
                _panel(axis, own, list(found[model]["contenders"]), column == 0)
                axis.set_title(PANELS[panel] if row == 0 else "")
                if row + 1 == len(models):
                    axis.set_xlabel("times the bare forwards")
            axes[row][0].set_ylabel(model)
        style.heading(
            figure, ["line: bare forwards", "bars: from there to the median", "dots: single turns"]
        )
        return style.save(figure, folder, "extraction", table)


def _panel(axis: Axes, table: pd.DataFrame, names: list[str], labelled: bool) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    for place, name in enumerate(names):
        values = table.loc[table["contender"] == name, "ratio"]
        if values.empty:
            continue
        colour = COLOURS.get(name, OTHER)
        # From 1, so that a bar means the same on either kind of axis.
        width = values.median() - 1.0
        axis.barh(place, width, left=1.0, height=0.7, color=colour, alpha=0.45, linewidth=0)
        axis.scatter(values, [place] * len(values), s=7, color=colour, zorder=3)
    axis.axvline(1.0, color="black", linewidth=0.8, zorder=2)
    axis.set_yticks(range(len(names)), labels=names if labelled else [""] * len(names))
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.tick_params(length=2.5)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    low, high = (1.0, 1.0) if table.empty else (table["ratio"].min(), table["ratio"].max())
    if max(high, 1.0) / min(low, 1.0) >= WIDE and low > 0:
        axis.set_xscale("log")
        axis.set_xlim(0.8 * min(low, 1.0), 1.25 * max(high, 1.0))
        ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if 0.8 * low <= t <= 1.25 * high]
        axis.xaxis.set_major_locator(FixedLocator([*ticks] or [1.0]))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axis.set_xlim(0, 1.1 * max(high, 1.0))
