"""Localisers and steering on known heads in three panels: found, moved, found when weaker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sally_anne.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#999999", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "x", "P", "*")
# Of the kinds of models: how their marks are filled, and how far they stand to the right.
KINDS = {"causal": ("none", -0.2), "decoy": ("full", 0.0), "hidden": ("bottom", 0.2)}


def localisation_figure(results: dict[str, Any]) -> Figure:
    """Of what ``results.json`` holds: ``rows``, and if there are ``steering`` and ``recovery``.

    Left: recall@K* of each localiser, open where there are no decoys, half filled where the heads
    hide the belief. Middle: share of answers moved against share of side answers kept, along class
    means, a line from the weakest step to the strongest. Right: recall where the planted heads
    write ever less. Both without models that hide it, unless all do.
    """
    results = results | {
        part: [row for row in results[part] if not row["hidden"]] or results[part]
        for part in ("steering", "recovery")
        if part in results
    }
    names = list(dict.fromkeys(row["localiser"] for row in results["rows"]))
    panels = 1 + ("steering" in results) + ("recovery" in results)
    figure = style.new_figure(0.6 + 3.0 * panels, 3.6)
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _draw_recall(axes[0], results["rows"], names)
    if "steering" in results:
        _draw_frontier(axes[1], results["steering"], names)
    if "recovery" in results:
        _draw_recovery(axes[-1], results["recovery"], names)
    style.heading(figure, [_counted(results["rows"]), "95 % over models"])
    handles = [
        style.sign(name.rpartition(":")[2], COLOURS[i % 8], marker=MARKERS[i % 8], linestyle="none")
        for i, name in enumerate(names)
    ]
    if "steering" in results:
        handles += [style.sign("planted heads", "black"), style.sign("decoys", "0.6")]
    handles.append(style.sign("open: without decoys", "0.3", marker="o", mfc="none", ls="none"))
    if any(row["kind"] == "hidden" for row in results["rows"]):
        handles.append(style.sign("half: hidden", "0.3", marker="o", fillstyle="bottom", ls="none"))
    style.legend(figure, handles, columns=5)
    return figure


def _counted(rows: list[dict[str, Any]]) -> str:
    hidden = max((row["models"] for row in rows if row["kind"] == "hidden"), default=0)
    models = hidden + max((row["models"] for row in rows if row["kind"] != "hidden"), default=0)
    said = f"{models} model{'s' if models > 1 else ''} whose heads are known"
    return said + (f", {hidden} of them hiding the belief" if hidden else "")


def _draw_recall(panel: Axes, rows: list[dict[str, Any]], names: list[str]) -> None:
    for row in rows:
        i = names.index(row["localiser"])
        found = row["recall"]
        filled, shift = KINDS[row["kind"]]
        ends = None
        # Of two models an interval is but their two values.
        if row["models"] > 2:
            ends = [[found["value"] - found["low"]], [found["high"] - found["value"]]]
        look: Any = {"marker": MARKERS[i % 8], "color": COLOURS[i % 8], "fillstyle": filled}
        panel.errorbar([i + shift], [found["value"]], yerr=ends, linestyle="none", **look)
    short = [name.rpartition(":")[2] for name in names]
    panel.set_xticks(range(len(names)), short, rotation=40, ha="right", rotation_mode="anchor")
    panel.set(ylim=(-0.04, 1.04), ylabel="recall@K*", title="planted heads among the K* best")


def _draw_frontier(panel: Axes, rows: list[dict[str, Any]], names: list[str]) -> None:
    lines: dict[str, Any] = {"planted": {"color": "black", "zorder": 3}}
    lines["decoys"] = {"color": "0.6", "zorder": 2}
    for i, name in enumerate(names):
        look = {"color": COLOURS[i % 8], "marker": MARKERS[i % 8], "linestyle": ":"}
        lines[name] = {**look, "markersize": 4, "linewidth": 1}
    for name, look in lines.items():
        own = [r for r in rows if r["heads"] == name and r["direction"] == "mass_mean"]
        own.sort(key=lambda row: row["alpha"])
        if own:
            x = [1.0, *(row["kept"]["value"] for row in own)]
            panel.plot(x, [0.0, *(row["moved"]["value"] for row in own)], **look)
    panel.set(ylim=(-0.04, 1.04), xlabel="side answers kept", ylabel="answers moved")
    panel.set_title("steering at the heads found")


def _draw_recovery(panel: Axes, rows: list[dict[str, Any]], names: list[str]) -> None:
    for i, name in enumerate(names):
        own = sorted((r for r in rows if r["localiser"] == name), key=lambda r: r["strength"])
        x, found = [row["strength"] for row in own], [row["recall"] for row in own]
        look: Any = {"color": COLOURS[i % 8], "marker": MARKERS[i % 8], "markersize": 4}
        panel.plot(x, [one["value"] for one in found], linewidth=1, **look)
    panel.set_xscale("log")
    ticks = sorted({row["strength"] for row in rows})
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()
    panel.set(ylim=(-0.04, 1.04), xlabel="strength of the planted heads", ylabel="recall@K*")
    panel.set_title("the same as they write less")
