"""Matrices of `sally-anne transfer`: what was fitted on the rows, tested on the columns.

One panel a measure. Of each cell the value, its interval over clusters (maps), and the 97.5 %
quantile of its control; in grey letters where it is not above its control. Cells that cannot be
compared are grey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sally_anne.figures import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Of each measure its title, colours and their ends.
PANELS: dict[str, tuple[str, str, tuple[float, float]]] = {
    "accuracy": ("test accuracy of the best head's probe", style.DIVERGING, (0.0, 1.0)),
    "spearman": ("rank correlation of probes' accuracies", style.DIVERGING, (-1.0, 1.0)),
    "overlap": ("share of the best probes' heads in common", style.SEQUENTIAL, (0.0, 1.0)),
    "cosine": ("|cos| of directions", style.SEQUENTIAL, (0.0, 1.0)),
    "question_spearman": (
        "rank correlation of effects on the answer",
        style.DIVERGING,
        (-1.0, 1.0),
    ),
    "question_overlap": ("share of the answer's heads in common", style.SEQUENTIAL, (0.0, 1.0)),
    "share": ("share of the answer's gap carried", style.SEQUENTIAL, (0.0, 1.0)),
    "steered": ("gain of both answers right, steered", style.DIVERGING, (-1.0, 1.0)),
    "verdict_spearman": (
        "rank correlation of effects on the verdict",
        style.DIVERGING,
        (-1.0, 1.0),
    ),
    "verdict_overlap": ("share of the verdict's heads in common", style.SEQUENTIAL, (0.0, 1.0)),
}
# Intervals and controls are written up to so many rows; above, values alone.
WRITTEN_UP_TO = 7
IN_A_ROW = 3


def shown(table: pd.DataFrame) -> list[str]:
    """Measures of which some cell has a value, in the order of the panels."""
    there = set(table.loc[table["value"].notna(), "measure"])
    return [measure for measure in PANELS if measure in there]


def transfer_figure(table: pd.DataFrame, title: list[str]) -> Figure:
    """A panel for each measure that has values.

    Args:
        table: a row a cell: ``measure, fitted_on, tested_on, value, low, high, control_high,
            above``; parts in the order in which they are to stand.
        title: written over the figure.
    """
    names, measures = list(dict.fromkeys(table["fitted_on"])), shown(table)
    columns = min(IN_A_ROW, max(1, len(measures)))
    rows = max(1, -(-len(measures) // columns))
    side = max(2.2, 0.9 * len(names) if len(names) <= WRITTEN_UP_TO else 0.45 * len(names))
    figure = style.new_figure(columns * (side + 0.9) + 1.2, rows * (0.8 * side + 1.3) + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for number, panel in enumerate(panels):
        if number >= len(measures):
            panel.set_axis_off()
            continue
        part = table[table["measure"] == measures[number]].set_index(["fitted_on", "tested_on"])
        _draw_panel(panel, part, names, measures[number])
        if number % columns == 0:
            panel.set_ylabel("fitted on")
            panel.set_yticks(range(len(names)), [name.replace(", ", "\n") for name in names])
        else:
            panel.set_yticks(range(len(names)), [""] * len(names))
    style.heading(
        figure, title, "value, 95 % over clusters, 97.5 % of the control; grey: not above it"
    )
    return figure


def _draw_panel(panel: Axes, part: pd.DataFrame, names: list[str], measure: str) -> None:
    said, colours, limits = PANELS[measure]
    values = part["value"].unstack().reindex(index=names, columns=names).to_numpy(dtype=float)
    mesh = style.cells(panel, values.clip(*limits), colours, limits, 0.8)
    panel.set_facecolor(style.MISSING)
    for (row, column), value in np.ndenumerate(values):
        if not np.isfinite(value):
            continue
        cell = part.loc[(names[row], names[column])]
        place = (value - limits[0]) / (limits[1] - limits[0])
        dark = abs(place - 0.5) > 0.3 if colours == style.DIVERGING else place > 0.6
        ink, pale = ("white", "0.85") if dark else ("black", "0.4")
        colour, weight = (ink, "bold") if cell["above"] else (pale, "normal")
        small = len(names) > WRITTEN_UP_TO
        lift = 0.0 if small else 0.22
        style.write(
            panel, column, row - lift, f"{value:.2f}", 6.5 if small else 8.5, colour, weight
        )
        if not small:
            ends = f"{cell['low']:.2f} to {cell['high']:.2f}"
            style.write(panel, column, row + 0.08, ends, 6.0, ink)
            style.write(panel, column, row + 0.31, f"({cell['control_high']:.2f})", 6.0, pale)
    turned: dict[str, Any] = {} if len(names) <= WRITTEN_UP_TO else {"rotation": 90}
    panel.set_xticks(range(len(names)), [name.replace(", ", "\n") for name in names], **turned)
    panel.tick_params(length=0)
    panel.set_xlabel("tested on")
    panel.set_title(said)
    panel.figure.colorbar(mesh, ax=panel, fraction=0.05)
