"""The figures of the scaling study: a panel an axis, time in one figure and memory in another."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.scaling import axis_values, exponent, lines_of

if TYPE_CHECKING:
    import pandas as pd

COLOURS = {"ours": "#009E73", "bare": "#7F7F7F", "batched": "#009E73", "loop": "#E69F00"}
MARKERS = {"ours": "o", "bare": "s", "batched": "o", "loop": "^"}
PANELS_IN_A_ROW = 4
LABELS = {"seconds": "seconds", "peak": "peak memory (MiB)"}


def shown(points: Sequence[dict[str, Any]], measure: str) -> pd.DataFrame:
    """What is drawn: ``study, axis, contender, value, result, exponent``, of axes with a slope."""
    import pandas as pd

    rows = []
    for (study, axis, contender), line in lines_of(points).items():
        values = axis_values(line)
        if measure == "seconds":
            results = [statistics.median(p["seconds"]) for p in line]
        else:
            results = [p["peak"] / 2**20 for p in line if p["peak"]]
        if len(results) != len(values) or len(set(values)) < 2:
            continue
        name = "tokens of a prompt" if axis == "times the context" else axis
        slope = exponent(values, results)
        rows += [
            (study, name, contender, float(v), r, slope)
            for v, r in zip(values, results, strict=True)
        ]
    columns = ["study", "axis", "contender", "value", "result", "exponent"]
    return pd.DataFrame(rows, columns=columns)


def draw(points: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Write ``scaling-seconds`` and ``scaling-peak`` as PNG, PDF and Parquet."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    from sally_anne.figures import style

    paths: list[Path] = []
    for measure, label in LABELS.items():
        data = shown(points, measure)
        if data.empty:
            continue
        panels = list(data[["study", "axis"]].drop_duplicates().itertuples(index=False))
        columns = min(PANELS_IN_A_ROW, len(panels))
        rows = -(-len(panels) // columns)
        with style.look():
            figure = style.new_figure(2.5 * columns + 0.4, 2.4 * rows + 0.5)
            axes = figure.subplots(rows, columns, squeeze=False).ravel()
            for axis, (study, name) in zip(axes, panels, strict=False):
                own = data[(data["study"] == study) & (data["axis"] == name)]
                for contender, line in own.groupby("contender", sort=False):
                    slope = line["exponent"].iloc[0]
                    axis.plot(
                        line["value"],
                        line["result"],
                        color=COLOURS.get(str(contender), "#0072B2"),
                        marker=MARKERS.get(str(contender), "D"),
                        markersize=4,
                        label=f"{contender}: exponent {slope:.2f}",
                    )
                axis.set_xscale("log")
                axis.set_yscale("log")
                ticks = sorted(own["value"].unique())
                axis.xaxis.set_major_locator(FixedLocator(ticks))
                axis.xaxis.set_minor_locator(NullLocator())
                axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.set_xlabel(f"{study}: {name}")
                axis.set_ylabel(label)
                # Above the panel, where it covers no point.
                axis.legend(frameon=False, fontsize=7, loc="lower left", bbox_to_anchor=(0.0, 1.0))
                axis.tick_params(length=2.5)
                for side in ("top", "right"):
                    axis.spines[side].set_visible(False)
            for axis in axes[len(panels) :]:
                axis.remove()
            style.heading(figure, ["both axes logarithmic", "exponent 1: proportional"])
            paths += style.save(figure, folder, f"scaling-{measure}", data)
    return paths
