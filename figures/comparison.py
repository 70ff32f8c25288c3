"""Finished evaluations beside each other: accuracy by category, and how far each run is from the
first, as in figures 3 and 4 of the MoMentS paper.

On the left is how often each run is right, on the right the paired difference to the first run,
both with 95 % intervals. A difference whose interval leaves out zero is filled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sally_anne.figures import style
from sally_anne.figures.correlations import READERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "comparison"
# Of a category's height, how far the outermost runs are from its middle.
SPREAD = 0.3


def draw_comparison(table: pd.DataFrame, title: Sequence[str], folder: Path) -> list[Path]:
    """Draw and save the figure of a comparison into ``folder/figures``; return the paths written.

    ``table`` is of :func:`sally_anne.harness.compare.paired.compare`, without readers who could
    read nothing.
    """
    reader, shown = points(table)
    with style.look():
        figure = comparison_figure(shown, [*title, f"answers read by {reader}"])
        return style.save(figure, folder / "figures", NAME, shown)


def points(table: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """Whose reading is shown, and the numbers shown, a row a category and run, the first run first.

    Returns:
        Columns ``items, run, n, value, low, high`` and ``difference, difference_low,
        difference_high``, which the first run has not.
    """
    there = table["reader"].unique()
    reader = next((r for r in READERS if r in there), there[0])
    own = table[(table["reader"] == reader) & (table["measure"] != "invalid") & (table["n"] > 0)]
    rows: list[dict[str, Any]] = []
    for items, found in own.groupby("items", sort=False):
        rows.append({"items": items, "run": found["against"].iloc[0], **_numbers(found, "first")})
        for at in range(len(found)):
            row = found.iloc[at : at + 1]
            gains = {name: row[name].iloc[0] for name in row if str(name).startswith("difference")}
            rows.append(
                {"items": items, "run": row["run"].iloc[0], **_numbers(row, "second"), **gains}
            )
    return str(reader), pd.DataFrame(rows)


def _numbers(found: pd.DataFrame, which: str) -> dict[str, float]:
    ends = {"value": which, "low": f"{which}_low", "high": f"{which}_high", "n": "n"}
    return {name: found[column].iloc[0] for name, column in ends.items()}


def comparison_figure(table: pd.DataFrame, title: Sequence[str]) -> Figure:
    """The two panels, a line a category. ``table`` is from :func:`points`."""
    names = list(dict.fromkeys(table["items"]))
    runs = list(dict.fromkeys(table["run"]))
    longest = max(style.text_width(f"{name} (0000)", 8.0) for name in names) / 72
    width = longest + 5.6
    lines = len(style.heading_lines(title, width)) + len(runs) // 3 + 1
    height = 0.2 * len(names) * max(1.0, 0.45 * len(runs)) + 0.18 * lines + 1.0
    figure = style.new_figure(width, height)
    right, gain = figure.subplots(1, 2, sharey=True)
    for number, run in enumerate(runs):
        own = table[table["run"] == run]
        place = SPREAD * (2 * number / (len(runs) - 1) - 1)
        y = np.array([names.index(name) for name in own["items"]]) + place
        look = {
            "color": style.CLASS_COLOURS[number % len(style.CLASS_COLOURS)],
            "marker": style.CLASS_MARKERS[number % len(style.CLASS_MARKERS)],
        }
        _draw(right, own[["value", "low", "high"]].to_numpy(), y, look)
        if number:
            ends = ["difference", "difference_low", "difference_high"]
            _draw(gain, own[ends].to_numpy(), y, look, hollow=True)
    counts = table.drop_duplicates("items").set_index("items")["n"]
    right.set_yticks(range(len(names)), labels=[f"{name} ({counts[name]})" for name in names])
    right.set_ylim(len(names) - 0.5, -0.5)
    right.set_xlim(-3, 103)
    right.set_xlabel("right (%)")
    gain.axvline(0.0, color="black", linewidth=0.7, zorder=1)
    gain.set_xlabel(f"difference to {runs[0]} (points)")
    for axis in (right, gain):
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(length=2.5)
        axis.grid(axis="x", color="0.9", linewidth=0.6)
        axis.set_axisbelow(True)
    style.legend(figure, list(_signs(runs)), min(len(runs), 3))
    style.heading(figure, title, "Runs on the same items, with 95 % intervals")
    return figure


def _draw(
    axis: Axes, numbers: np.ndarray, y: np.ndarray, look: dict[str, Any], hollow: bool = False
) -> None:
    """Values with intervals, in percent; where ``hollow``, what may be zero is not filled."""
    value, low, high = 100 * numbers.T
    axis.hlines(y, low, high, color=look["color"], linewidth=1.2, zorder=2)
    filled = (low > 0) | (high < 0) | (not hollow)
    face = [look["color"] if full else "white" for full in filled]
    axis.scatter(value, y, s=18, c=face, edgecolors=look["color"], marker=look["marker"], zorder=3)


def _signs(runs: Sequence[str]) -> Iterator[Any]:
    for number, run in enumerate(runs):
        colour = style.CLASS_COLOURS[number % len(style.CLASS_COLOURS)]
        marker = style.CLASS_MARKERS[number % len(style.CLASS_MARKERS)]
        yield style.sign(run, colour, marker=marker, linestyle="", markersize=5)
