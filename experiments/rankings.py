"""Do the same heads stand first? Rankings of a source's heads beside the target's scores of them.

Heads are ranked by their probes (accuracy), or by what they carry between twins (causal effects).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np
from scipy.stats import hypergeom, rankdata

from sally_anne.core.bootstrap import draw_groups, percentile_interval
from sally_anne.experiments.between import (
    ALL_SEEN,
    DRAWS,
    Part,
    Plan,
    accuracy,
    beside,
    cell,
    codes,
    cosine,
    note_on,
)
from sally_anne.probing.patching import Kind

# How heads are ranked: by probes, or by effects between a kind of twins.
PROBES, KINDS = "probes", get_args(Kind)


@dataclass(frozen=True, eq=False)
class Rankings:
    """Two rankings of all heads, numbered layer by layer.

    Attributes:
        own: the source's scores on its validation samples or twins, ``[L H]``.
        first: its heads, best first.
        theirs: the target's scores on test samples or twins that the source has not seen,
            ``[1 + DRAWS, L H]``, the first of all clusters once, the others of clusters drawn.
        ties: what breaks ties of these, the lower the better.
        clusters: that were drawn.
        n: samples or pairs.
        note: on them.
    """

    own: np.ndarray
    first: Sequence[int]
    theirs: np.ndarray
    ties: np.ndarray
    clusters: int
    n: int
    note: str = ""


def rankings(source: Part, target: Part, plan: Plan, by: str) -> Rankings | str:
    """Both rankings ``by`` probes or by effects between a kind of twins, or why there are none."""
    if source.shape != target.shape:
        return "{} x {} heads against {} x {}".format(*source.shape, *target.shape)
    if by == PROBES:
        test = plan.test(source, target)
        if not len(test):
            return ALL_SEEN
        times, count = _times(test.items["cluster"], plan)
        right, loss = (times @ each / times.sum(1)[:, None] for each in target.scores(test))
        own = source.scores(source.x.validation)[0].mean(0)
        first = [layer * source.shape[1] + head for layer, head in source.probes.ranked_]
        return Rankings(own, first, right, loss, count, len(test))
    if why := source.lacks(by) or target.lacks(by):
        return why
    mine, theirs = source.causes[by], target.causes[by]
    kept = plan.unseen(source, theirs.items)
    if not kept.any():
        return "the source has seen all test twins of the target"
    times, count = _times(theirs.items["cluster"][kept], plan)
    # In logits, not as shares: where a model has twins the wrong way round, heads keep their order.
    effects = times @ theirs.carried[kept] / times.sum(1)[:, None]
    note = note_on(theirs.gap[kept])
    ties = np.zeros_like(effects)
    return Rankings(mine.validation, mine.ranked, effects, ties, count, int(kept.sum()), note)


def spearman(source: Part, target: Part, plan: Plan, by: str = PROBES) -> dict[str, Any]:
    """Rank correlation over heads of the source's validation with the target's test scores.

    Beside it the source's heads shuffled within their layers: what the layers alone explain. On
    the diagonal it says how well a ranking holds at all.
    """
    found = rankings(source, target, plan, by)
    if isinstance(found, str):
        return {"why": found}
    within = np.random.default_rng(plan.seed).random((DRAWS, *source.shape)).argsort(-1)
    own = np.broadcast_to(found.own.reshape(source.shape), within.shape)
    mixed = np.take_along_axis(own, within, -1).reshape(DRAWS, -1)
    value, *drawn = rank_correlation(found.own[None], found.theirs)
    if not np.isfinite(value):
        return {"why": "all heads score the same"}
    control = beside(rank_correlation(mixed, found.theirs[:1]))
    ends = percentile_interval(np.array(drawn))
    return cell(value, ends, control, found.clusters, n=found.n, note=found.note)


def overlap(source: Part, target: Part, plan: Plan, by: str = PROBES) -> dict[str, Any]:
    """Share of the source's K best heads (validation) among the target's K best (test).

    Beside chance, which is hypergeometric; ``p`` is that of as many or more.
    """
    found = rankings(source, target, plan, by)
    if isinstance(found, str):
        return {"why": found}
    best = np.lexsort((found.ties, -found.theirs), axis=-1)[:, : plan.k]
    shared = np.isin(best, found.first[: plan.k]).sum(1)
    chance = hypergeom(len(found.own), plan.k, plan.k)
    more = {"n": found.n, "note": found.note, "p": float(chance.sf(shared[0] - 1))}
    ends = percentile_interval(shared[1:] / plan.k)
    control = chance.mean() / plan.k, chance.ppf(0.975) / plan.k
    return cell(shared[0] / plan.k, ends, control, found.clusters, **more)


def rank_correlation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Spearman's of rows ``[A, n]`` and ``[B, n]``, where A or B is 1; NaN of a constant row."""
    a, b = (rankdata(values.round(12), axis=1) for values in (one, other))
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    size = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    with np.errstate(invalid="ignore"):
        return (a * b).sum(1) / np.where(size > 0, size, np.nan)


def _times(clusters: Sequence[str], plan: Plan) -> tuple[np.ndarray, int]:
    """How often each of N is drawn ``[1 + DRAWS, N]``, at first once, and how many clusters."""
    number, count = codes(clusters)
    drawn = draw_groups(count, DRAWS, plan.seed)
    return np.concatenate([np.ones((1, count)), drawn])[:, number], count


# Each cell of a matrix: of a source and a target.
MEASURES: dict[str, Callable[[Part, Part, Plan], dict[str, Any]]] = {
    "accuracy": accuracy,
    "spearman": spearman,
    "overlap": overlap,
    "cosine": cosine,
    **{f"{kind}_spearman": partial(spearman, by=kind) for kind in KINDS},
    **{f"{kind}_overlap": partial(overlap, by=kind) for kind in KINDS},
}
