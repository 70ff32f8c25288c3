"""A sweep whose every reply is made up, and what is then printed."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

from sally_anne.data.items import Question
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.points import SweepPoint

STORIES = 10
CHOSEN, BEST = "logistic/K3/alpha1", "logistic/K2/alpha1"
DRAWS = tuple(f"{kind}/seed{n}/K3/alpha1" for kind in ("random", "random_heads") for n in (0, 1))
CONTROLS = DRAWS[::2]
# How many of the ten stories' TB and FB questions are answered rightly, from the first on; that
# Both is then the less of them is the point. Of the others so many replies choose nothing.
BELIEFS = {
    "validation": {
        "baseline": (3, 9, 0),
        # The best of all, but see below.
        BEST: (9, 10, 0),
        # Equally good: fewer heads before more, the smaller alpha before the larger one.
        CHOSEN: (7, 9, 0),
        "logistic/K4/alpha1": (7, 9, 0),
        "logistic/K2/alpha2": (7, 8, 0),
        "logistic/K3/alpha2": (6, 9, 0),
        "logistic/K4/alpha2": (0, 1, 19),
        CONTROLS[0]: (4, 9, 0),
        CONTROLS[1]: (5, 9, 1),
    },
    "test": {
        "baseline": (2, 10, 0),
        CHOSEN: (7, 8, 1),
        DRAWS[0]: (3, 10, 0),
        DRAWS[1]: (2, 10, 0),
        DRAWS[2]: (1, 10, 0),
        DRAWS[3]: (6, 10, 0),
    },
}
# How many of the thirty initial-belief questions are answered rightly.
INITIAL = {
    "validation": {"baseline": 24, BEST: 21, CHOSEN: 27},
    "test": {"baseline": 30, CHOSEN: 24, DRAWS[1]: 18},
}
# And of the twenty about reality.
REALITY = {
    "validation": {"baseline": 16, BEST: 16, CHOSEN: 18},
    "test": {"baseline": 20, CHOSEN: 17, DRAWS[3]: 6},
}
# In any other point.
OTHERS = {"initial": 12, "reality": 10}


def vector(direction: str, k: int, seed: int, heads: str = "probe_accuracy") -> SteeringVector:
    """Large enough that an untrained model says something else."""
    draw = torch.Generator().manual_seed(seed + len(direction))
    chosen = tuple((h // 8, h % 8) for h in torch.randperm(48, generator=draw)[:k].tolist())
    theta = torch.randn(k, 16, generator=draw, dtype=torch.float64)
    theta, sigma = theta / theta.norm(dim=1, keepdim=True), torch.ones(k, dtype=torch.float64)
    return SteeringVector(chosen, theta, sigma, n_layers=6, n_heads=8, direction=direction)


def without(head: int) -> int:
    """How many stories are answered rightly without a head: a plan for any head."""
    return 1 + head % 5


def said(item: Question, right: bool) -> str:
    """A reply that the robust parser takes for the answer, or for another option."""
    if right:
        return " and ".join(item.key)
    return next(option.text for option in item.options if option.label not in item.key)


def replies(point: SweepPoint, items: Iterable[Question]) -> dict[str, str]:
    """What is answered in a point, by item."""
    found: dict[str, str] = {}
    counts: dict[str, int] = {}
    for item in items:
        kind = item.item_id.split("/")[1]
        n = counts[kind] = counts.get(kind, 0) + 1
        if kind in OTHERS:
            plans = INITIAL if kind == "initial" else REALITY
            right = n <= plans[item.split].get(point.name, OTHERS[kind])
            found[item.item_id] = said(item, right)
            continue
        plan = BELIEFS[item.split].get(point.name, (0, 0, 0))
        if head := re.search(r" without L\d+H(\d+)/K2/", point.name):
            plan = (without(int(head[1])), 9, 0)
        right = n <= plan[0 if item.condition == "TB" else 1]
        mute = not right and sum(reply == "Hm." for reply in found.values()) < plan[2]
        found[item.item_id] = "Hm." if mute else said(item, right)
    return found


def percent(split: str, point: str) -> list[float]:
    """TB, FB, Both and invalid of the plan."""
    true_belief, false_belief, mute = BELIEFS[split][point]
    both = min(true_belief, false_belief)
    return [10.0 * true_belief, 10.0 * false_belief, 10.0 * both, 5.0 * mute]
