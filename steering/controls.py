"""Controls of a chosen vector: random directions and heads, one head left out, stories made worse.

A random control changes one thing, the directions or the heads. Its i-th head's step is as long as
that of the vector's i-th head, so that none is weak by its length alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from sally_anne.core.bootstrap import Estimate, draw_groups, estimate_mean
from sally_anne.core.head import Head
from sally_anne.data.items import Question
from sally_anne.data.pairs import in_turn
from sally_anne.harness.report import BELIEF, percent
from sally_anne.harness.score import belief_metrics, over, paired_difference, scores
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.config import ControlTask
from sally_anne.steering.fit import CONTROLS
from sally_anne.steering.points import BASELINE, SweepPoint, Vectors, paired_scores, task_gain

CONTROL_LABELS = {"random": "random directions", "random_heads": "random heads"}
TASK_LABELS: dict[ControlTask, str] = {"initial": "initial belief", "reality": "reality"}
NOT_SPECIFIC = "not specific"
# The largest p at which a vector beats its controls.
LEVEL = 0.05
_SEEDS = 2**32


def random_controls(chosen: SweepPoint, count: int, seed: int) -> list[SweepPoint]:
    """Controls of a point: ``count`` of each kind, with seeds from ``seed`` on."""
    seeds = [(seed + number) % _SEEDS for number in range(count)]
    return [replace(chosen, direction=kind, seed=each) for kind in CONTROLS for each in seeds]


def without_a_head(chosen: SweepPoint, vector: SteeringVector, most: int) -> Vectors:
    """The vector without each of its best ``most`` heads in turn; none of a single head."""
    rests: dict[SweepPoint, SteeringVector | None] = {}
    for number, head in enumerate(vector.heads[:most] if vector.k > 1 else ()):
        rest = [i for i in range(vector.k) if i != number]
        point = replace(chosen, direction=f"{chosen.direction} without {head}", k=chosen.k - 1)
        rests[point] = replace(
            vector,
            heads=tuple(vector.heads[i] for i in rest),
            theta=vector.theta[rest],
            sigma=vector.sigma[rest],
        )
    return rests


def spread(items: Sequence[Question], stories: int) -> list[Question]:
    """The items of so many stories at most, of all maps in turn, always the same, in order."""
    maps = {item.group: item.map for item in items}
    kept = set(in_turn(maps, maps.__getitem__, str)[:stories])
    return [item for item in items if item.group in kept]


def control_rank(
    table: pd.DataFrame, chosen: SweepPoint, randoms: Sequence[SweepPoint], parser: str
) -> dict[str, Any]:
    """Rank of a vector among its random controls, by Both on the stories that these were asked.

    Args:
        table: answers of baseline, chosen point and controls, which may be asked fewer stories.

    Returns:
        ``gain`` of the vector and of each control (``controls``, by name), as shares of pairs of TB
        and FB above the baseline; ``kinds``: mean, lowest, highest and number of each kind's gains;
        ``rank`` (1 is best; ties count against the vector) ``of`` so many; ``p``: the larger of the
        two empirical p-values (random directions, random heads); ``beats_controls``: rank 1, p at
        most 0.05 and a gain above the baseline; ``stories``; ``worse``: as ``kinds``, of the share
        of stories made worse.
    """
    asked = table[table["point"] == randoms[0].name]["item_id"]
    table = table[table["item_id"].isin(asked)]
    right = {
        point: belief_metrics(scores(table[table["point"] == point.name], parser), bootstrap=1).Both
        for point in (BASELINE, chosen, *randoms)
    }
    gains = {point: each.value - right[BASELINE].value for point, each in right.items()}

    def as_good(points: Sequence[SweepPoint]) -> int:
        # Shares of few pairs are not exact in binary.
        return sum(gains[point] >= gains[chosen] - 1e-9 for point in points)

    kinds, worse, p = {}, {}, 0.0
    for kind, points in _by_kind(randoms).items():
        kinds[kind] = _range([gains[point] for point in points])
        p = max(p, (1 + as_good(points)) / (1 + len(points)))
        pairs = [paired_scores(table, point, parser) for point in points]
        worse[kind] = _range([made_worse(*pair, 1).value for pair in pairs])
    rank = 1 + as_good(randoms)
    return {
        "gain": gains[chosen],
        "controls": {point.name: gains[point] for point in randoms},
        "kinds": kinds,
        "rank": rank,
        "of": 1 + len(randoms),
        "p": p,
        "beats_controls": p <= LEVEL and rank == 1 and gains[chosen] > 1e-9,
        "stories": int(table["story"].nunique()),
        "worse": worse,
    }


def ranges(
    value: Callable[[str, str], float],
    randoms: Sequence[SweepPoint],
    measures: Sequence[str] = BELIEF,
) -> dict[str, dict[str, dict[str, float]]]:
    """Mean, lowest, highest and number of random controls, ``[kind][measure]["value"]``.

    ``value(name, measure)`` gives that of one control.
    """
    return {
        kind: {m: _range([value(point.name, m) for point in points]) for m in measures}
        for kind, points in _by_kind(randoms).items()
    }


def task_range(
    table: pd.DataFrame, randoms: Sequence[SweepPoint], parser: str
) -> dict[str, dict[str, float]]:
    """Changes of accuracy on control questions, of each kind of control, as of :func:`ranges`."""
    asked = [point for point in randoms if (table["point"] == point.name).any()]
    return {
        kind: _range([task_gain(table, point, parser).value for point in points])
        for kind, points in _by_kind(asked).items()
    }


def _by_kind(randoms: Sequence[SweepPoint]) -> dict[str, list[SweepPoint]]:
    kinds = dict.fromkeys(point.direction for point in randoms)
    return {kind: [point for point in randoms if point.direction == kind] for kind in kinds}


def _range(values: Sequence[float]) -> dict[str, float]:
    mean = float(np.mean(values))
    return {"value": mean, "low": min(values), "high": max(values), "n": len(values)}


def made_worse(before: pd.DataFrame, after: pd.DataFrame, bootstrap: int = 2000) -> Estimate:
    """Share of stories of which an answer was right before and is wrong after.

    Both are scores of the same items; the interval is over maps, or over stories where there are
    few maps.
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
    table: pd.DataFrame, chosen: SweepPoint, rests: Vectors, heads: Sequence[Head], parser: str
) -> list[dict[str, Any]]:
    """Loss of Both without each head: ``layer, head, value, low, high, n``, best first.

    Intervals are over maps, of paired differences on the stories that were asked without the head.
    """
    losses = []
    for (layer, head), point in zip(heads, rests, strict=False):
        rest = table[table["point"] == point.name]
        whole = table[(table["point"] == chosen.name) & table["item_id"].isin(rest["item_id"])]
        loss = paired_difference(scores(rest, parser), scores(whole, parser))["Both"]
        losses.append({"layer": layer, "head": head, **asdict(loss)})
    return losses


def describe_rank(found: Mapping[str, Any]) -> list[str]:
    """Rank and conclusion, then the gains of the controls, as rich's markup."""
    if found["beats_controls"]:
        conclusion = "above all its controls"
    elif found["rank"] > 1:
        why = "random controls with steps of the same length do as well"
        conclusion = f"[bold]{NOT_SPECIFIC}[/bold]: {why}"
    elif found["gain"] <= 1e-9:
        conclusion = f"[bold]{NOT_SPECIFIC}[/bold]: the baseline does as well"
    else:
        why = "too few random controls (--random-controls 20)"
        conclusion = f"[bold]{NOT_SPECIFIC}[/bold]: {why}"
    kinds = [
        f"{kind['n']} {CONTROL_LABELS[name]}: {percent(kind)}, mean and lowest to highest"
        for name, kind in found["kinds"].items()
    ]
    return [
        f"rank {found['rank']} of {found['of']}, {conclusion}",
        f"Both minus baseline on {found['stories']} test stories: {100 * found['gain']:.1f} points",
        *kinds,
    ]


def needed_heads(losses: Sequence[Mapping[str, Any]], k: int) -> str:
    """Which of the chosen heads are needed."""
    needed = [str(Head(row["layer"], row["head"])) for row in losses if row["low"] > 0]
    tried = "all" if len(losses) == k else f"the best {len(losses)}"
    result = f"Both falls without {', '.join(needed)}" if needed else "no single one is needed"
    return f"left out one at a time ({tried} of {k} heads), {result}"
