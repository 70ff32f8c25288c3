"""Which heads are used beside which are readable: `sally-anne causal`'s columns as a picture.

    sally-anne causal-figure RUN [--label NAME]

For each kind of twins the share of the gap that each head carries when it is exchanged, as a
heatmap, and beside it the same shares against the accuracy of the head's probe. A head is readable
right of the dashed line, which the best of all heads passes in one of twenty permutations of the
labels; it is used if its whole bar is above the dotted one, its equal part of what all heads carry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sally_anne.figures import style
from sally_anne.figures.choose import best, label_of
from sally_anne.figures.command import FigureConfig, figure_command, file_name
from sally_anne.hooks.geometry import Head
from sally_anne.hooks.saved_run import Run, require_columns, verdicts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = {"question": "answer to the belief question", "verdict": "verdict on the statement"}
UNSAID = "not shown"
COLOURS = {
    "readable and used": style.CLASS_COLOURS[0],
    "used, not readable": style.CLASS_COLOURS[2],
    "readable, not used": style.CLASS_COLOURS[1],
    "neither readable nor used": style.MISSING,
    UNSAID: style.MISSING,
}
# Heads that are written beside their points, of each kind of twins.
WRITTEN = 5


@dataclass(frozen=True)
class CausalFigureConfig(FigureConfig):
    """Draw which heads of a run are used, beside which are readable."""

    label: str | None = None
    """Label whose probes are compared; the run's first by default."""


def draw(config: CausalFigureConfig) -> list[Path]:
    """Draw and save the figure; return the paths written.

    Raises:
        FigureError: the run has no causal scan; names the command that makes one.
    """
    run = Run.open(config.run)
    label = label_of(run, config.label)
    table = causal_table(run.heads, label)
    with style.look():
        figure = causal_figure(table, label, best(run.heads, label), run.title)
        name = file_name("causal", (config.label, None))
        return style.save(figure, config.folder, name, table)


def kinds_of(heads: pd.DataFrame) -> list[str]:
    """The kinds of twins between which each head of a table was exchanged."""
    return [kind for kind in KINDS if heads.get(f"{kind}_patch", pd.Series(dtype=float)).any()]


def causal_table(heads: pd.DataFrame, label: str) -> pd.DataFrame:
    """The numbers shown: a row a kind of twins and head.

    Columns ``kind, layer, head, share, low, high, accuracy, threshold, verdict``; share of the gap
    on test twins, accuracy of the label's probe on validation samples.

    Raises:
        RunFolderError: the table of heads has no columns of a causal scan.
    """
    kinds = kinds_of(heads)
    wanted = [f"{label}_threshold", f"{label}_p_family", *([] if kinds else ["question_patch"])]
    require_columns(heads, wanted, "heads.parquet, to which `sally-anne causal RUN` adds them,")
    parts = []
    for kind in kinds:
        part = heads[["layer", "head"]].astype("int64")
        part.insert(0, "kind", kind)
        for name, column in (
            ("share", f"{kind}_patch"),
            ("low", f"{kind}_patch_low"),
            ("high", f"{kind}_patch_high"),
            ("accuracy", f"{label}_validation_accuracy"),
            ("threshold", f"{label}_threshold"),
        ):
            part[name] = heads[column].to_numpy(dtype="float64")
        # The scan leaves it empty where it cannot say what is used.
        said = heads[f"{kind}_verdict"] != ""
        part["verdict"] = np.where(said, verdicts(heads, kind, label), UNSAID)
        parts.append(part.sort_values(["layer", "head"]))
    return pd.concat(parts, ignore_index=True)


def causal_figure(table: pd.DataFrame, label: str, probed: Head, title: list[str]) -> Figure:
    """A row of two panels a kind of twins. ``table`` is from `causal_table`."""
    kinds = list(dict.fromkeys(table["kind"]))
    figure = style.new_figure(8.2, 3.5 * len(kinds) + 0.7)
    panels = figure.subplots(len(kinds), 2, squeeze=False)
    for (left, right), kind in zip(panels, kinds, strict=True):
        rows = table[table["kind"] == kind]
        _draw_map(left, rows, kind, probed)
        _draw_scatter(right, rows, label)
    signs = [
        style.sign(words, colour, marker="o", linestyle="none")
        for words, colour in COLOURS.items()
        if (table["verdict"] == words).any()
    ]
    style.legend(figure, signs, len(signs))
    style.heading(figure, title)
    return figure


def _draw_map(panel: Axes, rows: pd.DataFrame, kind: str, probed: Head) -> None:
    cells = rows.pivot(index="layer", columns="head", values="share").to_numpy()
    reach = max(0.1, float(np.nanmax(np.abs(cells))))
    mesh = style.cells(
        panel, cells, style.DIVERGING, (-reach, reach), 0.5 if cells.size < 200 else 0.1
    )
    panel.set_xlabel("head")
    panel.set_ylabel("layer (0 at the top)")
    if max(cells.shape) <= 12:
        panel.set_xticks(range(cells.shape[1]))
        panel.set_yticks(range(cells.shape[0]))
        for (layer, head), value in np.ndenumerate(cells):
            if abs(value) >= 0.005:
                colour = "white" if abs(value) > 0.7 * reach else "black"
                # Of a number below 1 the leading zero is left out.
                text = re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")
                style.write(panel, head, layer, text, 7.0, colour)
    ring = {"marker": "o", "markersize": 15, "markerfacecolor": "none", "linestyle": "none"}
    panel.plot([probed.head], [probed.layer], markeredgecolor=style.RING, **ring)  # type: ignore[arg-type]
    panel.set_title(f"{KINDS[kind]}\nring: best probe, {probed}")
    bar = panel.figure.colorbar(mesh, ax=panel, fraction=0.05)
    bar.set_label("share of the gap carried")


def _draw_scatter(panel: Axes, rows: pd.DataFrame, label: str) -> None:
    colours = rows["verdict"].map(COLOURS)
    panel.vlines(rows["accuracy"], rows["low"], rows["high"], colors=colours, linewidth=0.8)
    panel.scatter(rows["accuracy"], rows["share"], c=colours, s=18, linewidths=0, zorder=3)
    threshold = float(rows["threshold"].iloc[0])
    if np.isfinite(threshold):
        panel.axvline(threshold, color="0.3", linestyle="--", linewidth=0.9)
    panel.axhline(1 / len(rows), color="0.3", linestyle=":", linewidth=0.9)
    for _, row in rows.sort_values("share", ascending=False).head(WRITTEN).iterrows():
        name = f"{int(row['layer'])}.{int(row['head'])}"
        place = {"xytext": (4, 2), "textcoords": "offset points", "fontsize": 7.0}
        panel.annotate(name, (row["accuracy"], row["share"]), **place)  # type: ignore[arg-type]
    panel.set_xlabel(f"validation accuracy of {style.symbol(label)}: readable")
    panel.set_ylabel("share of the gap carried: used")
    panel.set_title("used against readable\n(bars: 95 % over clusters)")


main = figure_command("causal-figure", CausalFigureConfig, draw)
