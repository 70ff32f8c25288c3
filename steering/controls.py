"""What a chosen vector is measured against: random draws, the same without a head, what it harms.

A draw changes one thing, the directions or the heads. The i-th head's step is as long as that of
the vector's i-th head, so that none is weak by its length alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from sally_anne.core.bootstrap import Estimate, draw_groups, estimate_mean
from sally_anne.core.head import Head
from sally_anne.data.twins import in_turn
from sally_anne.harness.items import Item
from sally_anne.harness.report import BELIEF, percent
from sally_anne.harness.score import belief_metrics, over, paired_difference, scores
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.cells import BASELINE, Cell, Vectors, before_and_in, side_gain
from sally_anne.steering.fit import CONTROLS
from sally_anne.steering.sweep import Side

CONTROL_LABELS = {"random": "random directions", "random_heads": "random heads"}
SIDE_LABELS: dict[Side, str] = {"initial": "initial belief", "reality": "reality"}
NOT_SPECIFIC = "not specific"
# Share of draws above which a vector is not called specific.
LEVEL = 0.05
_SEEDS = 2**32


def draws_of(chosen: Cell, count: int, seed: int) -> list[Cell]:
    """Controls of a setting: ``count`` of each kind, with seeds from ``seed`` on."""
    seeds = [(seed + number) % _SEEDS for number in range(count)]
    return [replace(chosen, direction=kind, seed=each) for kind in CONTROLS for each in seeds]


def without_a_head(chosen: Cell, vector: SteeringVector, most: int) -> Vectors:
    """The vector without each of its best ``most`` heads in turn; a single head has no rest."""
    found: dict[Cell, SteeringVector | None] = {}
    for number, (layer, head) in enumerate(vector.heads[:most] if vector.k > 1 else ()):
        rest = [i for i in range(vector.k) if i != number]
        cell = replace(
            chosen, direction=f"{chosen.direction} without {Head(layer, head)}", k=chosen.k - 1
        )
        found[cell] = replace(
            vector,
            heads=tuple(vector.heads[i] for i in rest),
            theta=vector.theta[rest],
            sigma=vector.sigma[rest],
        )
    return found


def spread(items: Sequence[Item], stories: int) -> list[Item]:
    """The items of so many stories at most, of all maps in turn, always the same, in order."""
    maps = {item.story: item.map for item in items}
    kept = set(in_turn(maps, maps.__getitem__, str)[:stories])
    return [item for item in items if item.story in kept]


def specificity(
    table: pd.DataFrame, chosen: Cell, draws: Sequence[Cell], parser: str
) -> dict[str, Any]:
    """Where a vector stands among its controls, by Both on the stories that the draws were asked.

    Args:
        table: answers of baseline, chosen setting and draws; draws may be asked fewer stories.
        chosen: the setting.
        draws: its controls.
        parser: who reads the answers.

    Returns:
        ``gain`` of the vector and of each draw (``draws``, by name), as shares of pairs of TB and
        FB beyond the model as it is; ``kinds``: mean, lowest, highest and number of each kind's
        gains; ``rank`` (1 is the best; an equal draw stands before the vector) ``of`` so many,
        ``p`` among the draws of the kind in which it stands worse; ``specific``: whether the vector
        is above all draws, so many that p is at most 0.05, and above the model as it is;
        ``stories``; ``worse``: as ``kinds``, of the share of stories made worse.
    """
    asked = table[table["cell"] == draws[0].name]["item_id"]
    table = table[table["item_id"].isin(asked)]
    right = {
        cell: belief_metrics(scores(table[table["cell"] == cell.name], parser), bootstrap=1).Both
        for cell in (BASELINE, chosen, *draws)
    }
    gains = {cell: found.value - right[BASELINE].value for cell, found in right.items()}
    # Shares of few pairs are not exact in binary.
    rank = 1 + sum(gains[cell] >= gains[chosen] - 1e-9 for cell in draws)
    kinds, worse, p = {}, {}, 0.0
    for kind in dict.fromkeys(cell.direction for cell in draws):
        own = [cell for cell in draws if cell.direction == kind]
        kinds[kind] = _range([gains[cell] for cell in own])
        above = sum(gains[cell] >= gains[chosen] - 1e-9 for cell in own)
        p = max(p, (1 + above) / (1 + len(own)))
        worse[kind] = _range(
            [made_worse(*before_and_in(table, cell, parser), 1).value for cell in own]
        )
    return {
        "gain": gains[chosen],
        "draws": {cell.name: gains[cell] for cell in draws},
        "kinds": kinds,
        "rank": rank,
        "of": 1 + len(draws),
        "p": p,
        "specific": p <= LEVEL and rank == 1 and gains[chosen] > 1e-9,
        "stories": int(table["story"].nunique()),
        "worse": worse,
    }


def ranges(
    value: Callable[[str, str], float], draws: Sequence[Cell], measures: Sequence[str] = BELIEF
) -> dict[str, dict[str, dict[str, float]]]:
    """Of each kind of control and each measure mean, lowest, highest and number of draws.

    ``value(cell, measure)`` is a cell's by its name; the result is ``[kind][measure]["value"]``.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for kind in dict.fromkeys(cell.direction for cell in draws):
        own = [cell.name for cell in draws if cell.direction == kind]
        found[kind] = {m: _range([value(name, m) for name in own]) for m in measures}
    return found


def _range(values: Sequence[float]) -> dict[str, float]:
    """Mean, lowest, highest and number of a kind's draws."""
    return {
        "value": float(np.mean(values)),
        "low": min(values),
        "high": max(values),
        "n": len(values),
    }


def side_range(
    table: pd.DataFrame, draws: Sequence[Cell], parser: str
) -> dict[str, dict[str, float]]:
    """Of each kind of control the changes of accuracy on side questions, as of :func:`ranges`."""
    asked = [cell for cell in draws if (table["cell"] == cell.name).any()]
    gains = {cell.name: side_gain(table, cell, parser).value for cell in asked}
    found = ranges(lambda name, _: gains[name], asked, [""])
    return {kind: measures[""] for kind, measures in found.items()}


def made_worse(before: pd.DataFrame, after: pd.DataFrame, bootstrap: int = 2000) -> Estimate:
    """Share of stories of which an answer was right before and is wrong after.

    Both are scores as of :mod:`sally_anne.harness.score` of the same items; the interval is over
    maps, or over stories where those are few.
    """
    unit = over(before)
    both = before.merge(
        after[["item_id", "correct", "invalid"]], on="item_id", suffixes=("", "_after")
    )
    lost = both["correct"] & ~both["invalid"] & ~(both["correct_after"] & ~both["invalid_after"])
    stories = both.assign(lost=lost).groupby("story").agg({"lost": "any", unit: "first"})
    group = pd.factorize(stories[unit], sort=True)[0]
    times = draw_groups(int(group.max()) + 1, bootstrap)
    return estimate_mean(stories["lost"].to_numpy(float), group, times)


def left_out(
    table: pd.DataFrame, chosen: Cell, rests: Vectors, heads: Sequence[Head], parser: str
) -> list[dict[str, Any]]:
    """How much Both loses without each head: ``layer, head, value, low, high, n``, best first.

    Intervals are over maps, of paired differences on the stories that were asked without the head.
    """
    found = []
    for (layer, head), cell in zip(heads, rests, strict=False):
        rest = table[table["cell"] == cell.name]
        whole = table[(table["cell"] == chosen.name) & table["item_id"].isin(rest["item_id"])]
        loss = paired_difference(scores(rest, parser), scores(whole, parser))["Both"]
        found.append({"layer": layer, "head": head, **asdict(loss)})
    return found


def in_words(found: Mapping[str, Any]) -> list[str]:
    """The headline of a report, as rich's markup: rank and verdict, then what the draws gained."""
    verdict = "above all its controls" if found["specific"] else f"[bold]{NOT_SPECIFIC}[/bold]"
    if not found["specific"]:
        if found["rank"] > 1:
            verdict += ": random draws with steps of the same length do as well"
        elif found["gain"] <= 1e-9:
            verdict += ": the model as it is does as well"
        else:
            verdict += ": so few draws cannot say so (--draws 20)"
    ranges = [
        f"{kind['n']} {CONTROL_LABELS[name]}: {percent(kind)}, mean and lowest to highest"
        for name, kind in found["kinds"].items()
    ]
    gain = f"{100 * found['gain']:.1f} points"
    return [
        f"rank {found['rank']} of {found['of']}, {verdict}",
        f"Both minus as it is on {found['stories']} test stories: {gain}",
        *ranges,
    ]


def of_heads(found: Sequence[Mapping[str, Any]], k: int) -> str:
    """How many of the chosen heads are needed."""
    needed = [str(Head(row["layer"], row["head"])) for row in found if row["low"] > 0]
    tried = "all" if len(found) == k else f"the best {len(found)}"
    return (
        f"left out one at a time ({tried} of {k} heads), Both falls without {', '.join(needed)}"
        if needed
        else f"left out one at a time ({tried} of {k} heads), no single one is needed"
    )
