"""What is fitted on one set of samples, tested on another: each measure is a cell of a matrix.

The source is taken as it was fitted; what is drawn anew for an interval are the target's clusters
(maps). Heads are chosen on the source's validation samples, and stories that the source has seen
are left out of the target's test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import hypergeom, rankdata
from sklearn.base import clone

from hooks.identity import ModelIdentity
from probing.activations import Activations
from probing.logistic import Problems, solve
from probing.probes import HeadProbes
from probing.resampling import REFIT, shuffled
from sally_anne.benchmarks.samples import SPLITS
from sally_anne.core.bootstrap import (
    draw_groups,
    estimate_mean,
    percentile_interval,
)
from sally_anne.core.errors import ProbingError

# Shuffles of a ranking or of test labels, and draws of an interval without fits.
DRAWS = 1000
ALL_SEEN = "the source has seen all test stories of the target"


@dataclass(frozen=True, eq=False)
class Part:
    """Samples of one run: all, or those with one value of a tag.

    Attributes:
        name: in tables.
        x: activations; the items' columns ``content`` and ``cluster`` say which story it is,
            whatever a run calls it, and what is drawn anew for intervals.
        label: what is read.
        blank: probes with the run's settings.
        identity: of the model.
        cause: all heads ``[L H]`` as numbers layer by layer, those that carry most between
            validation twins first; empty where that was not asked.
        why: then, why.
    """

    name: str
    x: Activations = field(repr=False)
    label: str
    blank: HeadProbes = field(default_factory=HeadProbes, repr=False)
    identity: ModelIdentity = field(default_factory=ModelIdentity, repr=False)
    cause: tuple[int, ...] = field(default=(), repr=False)
    why: str = ""

    def __post_init__(self) -> None:
        """A ProbingError says which part cannot be fitted or tested, and why."""
        for split in SPLITS:
            part = self.x.part(split)
            if not len(part):
                raise ProbingError(f"{self.name}: there are no {split} samples")
            if split == "train" and len(np.unique(part.values(self.label))) < 2:
                raise ProbingError(
                    f"{self.name}: all training samples have the same {self.label}, so no probe "
                    "can be fitted; choose another --label or --by"
                )

    @cached_property
    def probes(self) -> HeadProbes:
        """Fitted on the training samples, ranked on the validation samples."""
        found = clone(self.blank).fit(self.x.train, label=self.label)
        found.rank(self.x.validation)
        return found

    @cached_property
    def top(self) -> list[tuple[int, int]]:
        """Heads with a direction, best on validation samples first."""
        return [at for at in self.probes.ranked_ if self.probes.coef_[at].any()]

    @property
    def shape(self) -> tuple[int, int]:
        """L and H."""
        return self.x.x.shape[1], self.x.x.shape[2]

    @cached_property
    def seen(self) -> pd.DataFrame:
        """``content`` and ``cluster`` of what trained or chose heads."""
        return self.x.items.loc[self.x.items["split"].isin(("train", "validation"))]

    def scores(self, x: Activations) -> tuple[np.ndarray, np.ndarray]:
        """Of the own probes on samples: right or not, and log-loss in nats, ``[N, L H]`` each."""
        odds, y = self.probes.predict_proba(x.x), x.values(self.label)
        right = self.probes.classes_[odds.argmax(-1)] == y[:, None, None]
        told = (odds * (y[:, None] == self.probes.classes_)[:, None, None]).sum(-1)
        loss = -np.log(np.maximum(told, np.finfo(float).tiny))
        return right.reshape(len(y), -1).astype(float), loss.reshape(len(y), -1)

    def unlike(self, other: Part) -> str:
        """Why this one's directions mean nothing in the other; empty if they do."""
        if two := self.identity.difference(other.identity):
            return f"two models: {two}"
        if self.x.site != other.x.site:
            return f"read at {self.x.site} and at {other.x.site}"
        if self.x.x.shape[1:] != other.x.x.shape[1:]:
            return f"heads [L, H, D] are {self.x.x.shape[1:]} and {other.x.x.shape[1:]}"
        return ""


@dataclass(frozen=True)
class Plan:
    """How cells are measured.

    Attributes:
        k: size of sets of heads.
        draws: refits on drawn maps, and on shuffled labels.
        seed: of all draws.
        clusters: leave out the target's test stories of clusters that the source has seen, not its
            stories alone.
    """

    k: int = 8
    draws: int = 200
    seed: int = 0
    clusters: bool = False

    def unseen(self, source: Part, items: pd.DataFrame) -> np.ndarray:
        """Which of the target's samples the source may be tested on, bool ``[N]``."""
        kept = ~items["content"].isin(source.seen["content"])
        if self.clusters:
            kept &= ~items["cluster"].isin(source.seen["cluster"])
        return kept.to_numpy()

    def test(self, source: Part, target: Part) -> Activations:
        """The target's test samples that the source has not seen, perhaps none."""
        test = target.x.test
        rows = self.unseen(source, test.items)
        return replace(test, x=test.x[rows], items=test.items[rows].reset_index(drop=True))


Measure = Callable[[Part, Part, Plan], dict[str, Any]]


def cell(
    value: float, ends: Sequence[float], control: float, high: float, clusters: int, **more: Any
) -> dict[str, Any]:
    """One cell: with its 95 % interval, and the mean and 97.5 % quantile of its control.

    It is ``above`` its control if its value is above the quantile, and its interval above the mean.
    """
    low, top = ends
    above = bool(value > high and low > control)
    return {
        **{"value": float(value), "low": float(low), "high": float(top), "control": float(control)},
        **{"control_high": float(high), "above": above, "clusters": clusters, **more},
    }


def accuracy(source: Part, target: Part, plan: Plan) -> dict[str, Any]:
    """Test accuracy of the source's best head; beside labels shuffled within stories.

    Of two models, or sites, the head at the same place is fitted anew on the target.
    """
    if not source.top:
        return {"why": "no probe of the source has weights"}
    best, fitted, note = source.top[0], source, ""
    if why := source.unlike(target):
        if source.shape != target.shape:
            return {"why": why}
        fitted, note = target, f"refitted: {why}"
    test = plan.test(source, target)
    if not len(test):
        return {"why": ALL_SEEN}
    y, head = test.values(target.label), np.ix_(range(len(test)), *([at] for at in best))
    one = clone(fitted.blank)
    one.classes_ = fitted.probes.classes_
    one.coef_ = fitted.probes.coef_[best][None, None]
    one.intercept_ = fitted.probes.intercept_[best][None, None]
    said = one.predict(test.x[head])[:, 0, 0]
    number, count = _clusters(test)
    found = estimate_mean((said == y).astype(float), number, draw_groups(count, seed=plan.seed))
    null = (said == _shuffled(test, target.label, DRAWS, plan.seed)).mean(1)
    high = percentile_interval(null)[1]
    more = {"n": len(test), "note": note, "heads": f"{best[0]}.{best[1]}"}
    return cell(found.value, (found.low, found.high), null.mean(), high, count, **more)


def spearman(source: Part, target: Part, plan: Plan) -> dict[str, Any]:
    """Rank correlation of the source's validation with the target's test accuracies over heads.

    Each of probes of its own. Beside it the source's heads shuffled within their layers: what the
    layers alone explain. On the diagonal it says how well a ranking holds at all.
    """
    if source.shape != target.shape:
        return {"why": _shapes(source, target)}
    test = plan.test(source, target)
    if not len(test):
        return {"why": ALL_SEEN}
    own = source.scores(source.x.validation)[0].mean(0)
    right, _, count = _drawn(target, test, plan)
    within = np.random.default_rng(plan.seed).random((DRAWS, *source.shape)).argsort(-1)
    mixed = np.take_along_axis(np.broadcast_to(own.reshape(source.shape), within.shape), within, -1)
    value, *drawn = _rank_correlation(own[None], right)
    null = _rank_correlation(mixed.reshape(DRAWS, -1), right[:1])
    if not np.isfinite(value):
        return {"why": "all heads score the same"}
    ends, high = percentile_interval(np.array(drawn)), percentile_interval(null)[1]
    return cell(value, ends, null.mean(), high, count, n=len(test))


def overlap(source: Part, target: Part, plan: Plan) -> dict[str, Any]:
    """Share of the source's K best heads (validation) among the target's K best (test).

    Beside chance, which is hypergeometric; ``p`` is that of as many or more.
    """
    if source.shape != target.shape:
        return {"why": _shapes(source, target)}
    test = plan.test(source, target)
    if not len(test):
        return {"why": ALL_SEEN}
    right, loss, count = _drawn(target, test, plan)
    theirs = np.lexsort((loss, -right), axis=-1)[:, : plan.k]
    own = [layer * source.shape[1] + head for layer, head in source.probes.ranked_[: plan.k]]
    shared = np.isin(theirs, own).sum(1)
    chance = hypergeom(right.shape[1], plan.k, plan.k)
    more = {"n": len(test), "p": float(chance.sf(shared[0] - 1))}
    ends = percentile_interval(shared[1:] / plan.k)
    high = chance.ppf(0.975) / plan.k
    return cell(shared[0] / plan.k, ends, chance.mean() / plan.k, high, count, **more)


def cosine(source: Part, target: Part, plan: Plan) -> dict[str, Any]:
    """Mean ``|cos|`` of the directions of both in the source's K best heads.

    The interval is of refits on the target's training clusters drawn anew; on the diagonal value
    and interval are of two halves of them. Beside it refits on labels shuffled within stories.
    """
    if why := source.unlike(target):
        return {"why": f"directions have no common axes: {why}"}
    if source.probes.classes_.tolist() != target.probes.classes_.tolist():
        return {"why": f"{source.label} has other classes"}
    heads = source.top[: plan.k]
    if len(heads) < plan.k:
        return {"why": f"only {len(heads)} heads of the source have a direction"}
    train = target.x.train
    number, count = _clusters(train)
    mine, theirs = (
        np.stack([part.probes.coef_[at].ravel() for at in heads])[None] for part in (source, target)
    )
    if source is target:
        number, count = (number, count) if count > 1 else codes(train.items["group"])
        if count < 2:
            return {"why": "there is one training story: nothing to halve"}
        random = np.random.default_rng(plan.seed)
        half = random.random((plan.draws, count)).argsort(-1) < count // 2
        sides = (_refits(target, heads, side[:, number].astype(float)) for side in (half, ~half))
        drawn = _cosines(*sides)
        value = float(np.abs(drawn).mean())
    else:
        times = draw_groups(count, plan.draws, plan.seed)[:, number]
        drawn = _cosines(mine, _refits(target, heads, times))
        value = float(np.abs(_cosines(mine, theirs)).mean())
    y = _shuffled(train, target.label, plan.draws, plan.seed)
    null = np.abs(_cosines(mine, _refits(target, heads, labels=y))).mean(1)
    turned = source is not target and float(_cosines(mine, theirs).mean()) < 0
    more = {"n": len(train), "note": "turned round" if turned else ""}
    ends = percentile_interval(np.abs(drawn).mean(1))
    return cell(value, ends, null.mean(), percentile_interval(null)[1], count, **more)


def _shapes(source: Part, target: Part) -> str:
    return "{} x {} heads against {} x {}".format(*source.shape, *target.shape)


def codes(values: Sequence[Any]) -> tuple[np.ndarray, int]:
    """A number for each value ``[N]``, from 0, and how many there are."""
    names, number = np.unique(list(map(str, values)), return_inverse=True)
    return number, len(names)


def _clusters(x: Activations) -> tuple[np.ndarray, int]:
    return codes(x.items["cluster"])


def _shuffled(x: Activations, label: str, count: int, seed: int) -> np.ndarray:
    """Labels ``[count, N]`` shuffled within groups, or over all where each group has one label."""
    y, groups = x.values(label), x.items["group"].to_numpy()
    mixed = x.items.groupby("group")[label].nunique().max() > 1
    if len(np.unique(y)) < 2:
        return np.broadcast_to(y, (count, len(y)))
    return shuffled(y, groups if mixed else np.zeros(len(y)), count, seed)


def _drawn(target: Part, test: Activations, plan: Plan) -> tuple[np.ndarray, np.ndarray, int]:
    """Accuracy and log-loss of all heads ``[1 + draws, L H]``, the first of all clusters once."""
    number, count = _clusters(test)
    times = np.concatenate([np.ones((1, count)), draw_groups(count, DRAWS, plan.seed)])
    size = np.bincount(number, minlength=count)
    right, loss = (
        times @ (np.eye(count)[number].T @ values) / (times @ size)[:, None]
        for values in target.scores(test)
    )
    return right, loss, count


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Spearman's of rows ``[A, n]`` and ``[B, n]``, where A or B is 1; NaN of a constant row."""
    a, b = (rankdata(values.round(12), axis=1) for values in (one, other))
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    size = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    with np.errstate(invalid="ignore"):
        return (a * b).sum(1) / np.where(size > 0, size, np.nan)


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of weights ``[A, K, M]`` and ``[B, K, M]``, ``[max(A, B), K]``; 0 where either is zero."""
    size = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    dot = (one * other).sum(-1)
    return np.divide(dot, size, out=np.zeros_like(dot), where=size > 0)


def _refits(
    part: Part,
    heads: Sequence[tuple[int, int]],
    times: np.ndarray | None = None,
    labels: np.ndarray | None = None,
) -> np.ndarray:
    """Weights ``[P, K, M]`` of K heads, with samples weighted ``[P, N]`` or other labels."""
    train = part.x.train
    y = train.values(part.label)[None] if labels is None else labels
    codes = np.searchsorted(part.probes.classes_, y)
    if times is not None:
        codes = np.broadcast_to(codes, times.shape)
    x = np.stack([train.x[:, layer, head] for layer, head in heads], axis=1)
    problems = Problems(
        torch.from_numpy(x),
        torch.from_numpy(np.ascontiguousarray(codes)),
        len(part.probes.classes_),
        part.blank.c,
        None if times is None else torch.from_numpy(np.ascontiguousarray(times)),
        lambda index: "layer {} head {}".format(*heads[index]),
    )
    fits = solve(problems, replace(REFIT, max_iter=part.blank.max_iter))
    return fits.coef.flatten(2).transpose(0, 1).numpy()


MEASURES: dict[str, Measure] = {
    "accuracy": accuracy,
    "spearman": spearman,
    "overlap": overlap,
    "cosine": cosine,
}
