"""Accuracy, or a logit difference, against alpha, a panel for each K.

For GridToM they are figures 15 to 18 of its paper. Strengths stand evenly, as grids reach over
powers of ten; at alpha 0 all curves meet in the model without steering. Of random controls the main
measure is drawn alone: Both, or of pairs the logit difference towards the value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from sally_anne.core.errors import RunFolderError
from sally_anne.core.run import symbol
from sally_anne.figures import page, style

SPLIT = "validation"
MEASURES = ("TB", "FB", "Both", "invalid")
CONTROLS = {"random": "random directions", "random_heads": "random heads"}
SIDES = {"initial": "initial belief", "reality": "reality"}
SIDES |= {"text": "plain text", "other": "another task"}
# Of pairs, in logits; of what they are no share they are not drawn with.
LOGITS = ("towards", "apart")
# Factor, digits and unit of what is no share in %.
UNITS = {"text": (1, 3, "nats a token"), "worse": (100, 1, "%")}
UNITS |= dict.fromkeys(LOGITS, (1, 2, "logits"))
COLOURS = dict(zip(MEASURES, (*style.COLOURS[:3], "#7F7F7F"), strict=True))
COLOURS |= {"initial": "#56B4E9", "reality": "#8C510A"}
COLOURS |= {"random": "#CC79A7", "random_heads": "#D55E00"}
MARKERS = {"TB": "o", "FB": "^", "Both": "s", "invalid": "x", "initial": "v", "reality": "D"}
# What was asked at a few strengths alone has no line between them.
DASHES: dict[str, Any] = dict.fromkeys(SIDES, "none")
DASHES |= {"random": (0, (5, 2)), "random_heads": (0, (1.5, 1.5)), "TB": (0, (4, 1.5))}
COLOURS |= {"towards": COLOURS["Both"], "apart": COLOURS["TB"]}
MARKERS |= {"towards": "s", "apart": "o"}
TEXTS = {"invalid": "invalid (share of answers)", **SIDES}
TEXTS |= {"towards": "towards the value", "apart": "told apart (one input less the other)"}
TEXTS |= {name: f"Both, {text}" for name, text in CONTROLS.items()}
STAR: dict[str, Any] = {"ms": 13, "mec": "white", "zorder": 7, "label": "chosen"}
ENDS = ("value", "low", "high", "n")
# Shares of few questions are not exact in binary.
ROUNDING = 1e-9
# What one panel shows: how theta was found, by what heads are ranked, and their number.
KEYS = ["panel", "rank_by", "k"]


def amount(one: Mapping[str, Any], measure: str) -> str:
    """A change of a measure with its interval and its unit."""
    scale, digits, unit = UNITS.get(measure, (100, 1, "points"))
    signed = dict(one) | ({"signed": True} if measure in ("text", *LOGITS) else {})
    return f"{page.percent(signed, scale=scale, digits=digits)} {unit}"


def aim(results: Mapping[str, Any]) -> list[str]:
    """The label that was steered, and of pairs the value, as parts of a title."""
    label = symbol(str(results["config"].get("label")))
    value = results["about"].get("towards") if "about" in results else None
    return [f"label {label}" if value is None else f"towards {label} {value}"]


def main_of(table: pd.DataFrame) -> str:
    """The measure that settings are chosen by."""
    return "towards" if "towards" in set(table["measure"]) else "Both"


def curves(table: pd.DataFrame, results: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Of ``sweep.parquet`` the numbers shown, a row a point; that at alpha 0 is in every curve.

    Columns are ``panel`` (the direction steered), ``rank_by, k, direction`` (that of the panel, or
    a control), ``measure, alpha, value, low, high, n, split``; shares, not percent, or logits.
    """
    split = (results or {}).get("config", {}).get("curves", SPLIT)
    best = main_of(table)
    shares = (*MEASURES, "initial", "reality") if best == "Both" else LOGITS
    if split != SPLIT:  # which has points of its own besides
        table = table[table["point"].isin(table.loc[table["split"] == SPLIT, "point"])]
    table = table[(table["split"] == split) & table["measure"].isin(shares)]
    baseline = table[table["k"] == 0]
    steered = table[(table["k"] > 0) & (table["alpha"] != 0)]
    if baseline.empty or steered.empty:
        raise RunFolderError("the sweep has no points with, or none without steering")
    there = list(dict.fromkeys(steered["direction"]))
    # A sweep of nothing but controls shows them as what they are: directions.
    shown = [name for name in there if name not in CONTROLS] or there
    controls = [name for name in CONTROLS if name in there and name not in shown]
    ways = itertools.product(shown, dict.fromkeys(steered["rank_by"]), sorted(set(steered["k"])))
    parts = []
    for main, rank_by, k in ways:
        own = steered[(steered["rank_by"] == rank_by) & (steered["k"] == k)]
        every = [(main, measure) for measure in shares] + [(name, best) for name in controls]
        for direction, measure in every if (own["direction"] == main).any() else ():
            curve = own[(own["direction"] == direction) & (own["measure"] == measure)]
            if len(curve):
                curve = pd.concat([curve, baseline[baseline["measure"] == measure]])
                place = {"panel": main, "rank_by": rank_by, "k": int(k), "direction": direction}
                parts.append(curve.sort_values("alpha").assign(**place))
    columns = [*KEYS, "direction", "measure", "alpha", "value", "low", "high", "n", "split"]
    return pd.concat(parts, ignore_index=True)[columns]


def tested(table: pd.DataFrame, chosen: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """What was found on test items, by measure: baseline, chosen, mean and ends of controls."""
    test = table[table["split"] == "test"]
    if test.empty or not chosen:
        return {}
    rows = {
        name: test[test["point"] == point].groupby("measure", sort=False)[list(ENDS)].first()
        for name, point in (("baseline", "baseline"), ("chosen", chosen["name"]))
    }
    same = ["k", "alpha", "rank_by"]
    test = test[(test[same] == [chosen[name] for name in same]).all(axis=1)]
    for control, words in CONTROLS.items():
        randoms = test[test["direction"] == control]
        if len(randoms) and control != chosen["direction"]:
            values = randoms.groupby("measure", sort=False)["value"]
            ends = values.agg(["mean", "min", "max", "count"]).set_axis(list(ENDS), axis=1)
            rows[f"{randoms['point'].nunique()} {words}"] = ends
    return {name: one.to_dict("index") for name, one in rows.items()}


def lost(side: str, split: str, gain: Mapping[str, Any], noun: str) -> str:
    """What is lost of a side question, and on what."""
    where = f"{gain['n']} lines" if side == "text" else f"{split} {noun}"
    loss = {"value": -gain["value"], "low": -gain["high"], "high": -gain["low"]}
    return f"{SIDES[side]} {amount(loss, side)} on {where}"


def limits(results: Mapping[str, Any]) -> Iterator[tuple[str, float, float, bool]]:
    """Each side question, what the choice costs of it, may, and whether it is but guessed."""
    for side in SIDES:
        gain, most = results.get(side, {}).get(SPLIT), results["config"].get(f"max_{side}_drop")
        if gain and most is not None:
            yield side, 0.0 - gain["value"], most, side in results.get("guessed", {})


def cautions(results: Mapping[str, Any]) -> list[str]:
    """Side questions that are but guessed, and whether the choice costs more than it may."""
    over = any(loss > most + ROUNDING and not free for _, loss, most, free in limits(results))
    return [
        f"The model can but guess the {SIDES[side]} ({page.percent(right)} %, chance "
        f"{100 * right['chance']:.1f} %): it put no condition on the choice."
        for side, right in results.get("guessed", {}).items()
    ] + ["No K and alpha keeps to the limits of cost: this one is nearest to them."] * over


def chosen_words(results: Mapping[str, Any]) -> list[str]:
    """What was chosen, its rank among controls, and what it costs of side questions, and may."""
    if not (chosen := results.get("chosen")):
        return []
    words = [f"chosen: K = {chosen['k']}, α = {chosen['alpha']:g}"]
    if rank := results.get("control_rank"):
        noun = "pairs" if "pairs" in rank else "stories"
        words.append(f"rank {rank['rank']} of {rank['of']} on test {noun}")
    for side, value, most, guessed in limits(results):
        limit = f"at most {UNITS.get(side, (100,))[0] * most:g}"
        limit = "guessed, no condition" if guessed else limit
        words.append(f"cost of {SIDES[side]}: {amount({'value': value}, side)} ({limit})")
    return words


def sweep_figure(table: pd.DataFrame, title: Sequence[str], results: Mapping[str, Any]) -> Figure:
    """A panel for each K, direction and ranking of `curves`."""
    panels = list(table[KEYS].drop_duplicates().itertuples(index=False))
    several = [key for key in KEYS[:2] if table[key].nunique() > 1]
    columns = min(4, table["k"].nunique())
    rows = -(-len(panels) // columns)
    alphas = sorted(map(float, table["alpha"].unique()))
    figure = style.new_figure(max(2.4 * columns + 0.6, 5.2), 2.4 * rows + 1.2)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    main, chosen = main_of(table), results.get("chosen") or {}
    best = [main, *(chosen.get(name) for name in ("direction", "alpha"))]
    handles: dict[str, Any] = {}
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis, panel in zip(axes, panels, strict=False):
        own = table[(table[KEYS] == list(panel)).all(axis=1)]
        _draw_panel(axis, own, alphas)
        if chosen and list(panel) == [chosen[name] for name in ("direction", "rank_by", "k")]:
            star = own[(own[["measure", "direction", "alpha"]] == best).all(axis=1)]
            axis.plot(star["alpha"].map(alphas.index), star["value"], "k*", **STAR)
        axis.set_title(", ".join([f"K = {panel.k}", *(getattr(panel, key) for key in several)]))
        handles |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    noun, words = "pairs", "logit difference"
    if main == "Both":
        noun, words = "stories", "accuracy (%)"
        axes[0].set_ylim(-0.03, 1.03)
        axes[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=None))
    step = -(-len(alphas) // 25)
    axes[0].set_xticks(range(0, len(alphas), step), labels=[f"{a:g}" for a in alphas[::step]])
    figure.supylabel(words, fontsize=9.0)
    style.legend(figure, list(handles.values()), 4 if figure.bbox.width / figure.dpi > 7 else 3)
    sizes = table.loc[table["measure"] == main, "n"].astype(int)
    count = " to ".join(map(str, dict.fromkeys((sizes.min(), sizes.max()))))
    count += " pairs" if main == "Both" else ""
    same = f"direction {panels[0].panel}, heads by {panels[0].rank_by}"
    there = aim(results) if main != "Both" else []
    parts = [*title, *there, *([] if several else [same]), *chosen_words(results)]
    split = table["split"].iloc[0]
    style.heading(figure, parts, f"{split} {noun} (N = {count}), bands: 95 % intervals")
    return figure


def _draw_panel(axis: Axes, table: pd.DataFrame, alphas: Sequence[float]) -> None:
    # TB and FB lie over Both, on which they often stand; controls over all.
    main = main_of(table)
    for (direction, measure), points in table.groupby(["direction", "measure"], sort=False):
        control = direction != table["panel"].iloc[0]
        name = direction if control else measure
        places = [alphas.index(alpha) for alpha in points["alpha"]]
        line: dict[str, Any] = {"color": COLOURS[name], "ls": DASHES.get(name, "-"), "ms": 4.5}
        line |= {"lw": 3.0 if name == main else 1.2, "marker": MARKERS.get(name)}
        line |= {"label": TEXTS.get(name, name).replace("Both", TEXTS.get(main, main))}
        line |= {"zorder": 5 if control else 3 if name == main else 4}
        axis.plot(places, points["value"], **line)
        if not control:
            band: dict[str, Any] = {"color": COLOURS[name], "alpha": 0.16, "linewidth": 0}
            axis.fill_between(places, points["low"], points["high"], zorder=1, **band)
    baseline = table[(table["measure"] == main) & (table["alpha"] == 0)]["value"].iloc[0]
    label = f"{TEXTS.get(main, main)}, without steering"
    axis.axhline(baseline, color="black", linewidth=0.7, zorder=2, label=label)
    axis.tick_params(length=2.5, labelbottom=True, labelsize=7.5)
    axis.tick_params(axis="x", labelrotation=90 if len(alphas) > 7 else 0)
    axis.set_xlabel("α (standard deviations)")
    axis.spines[["top", "right"]].set_visible(False)
