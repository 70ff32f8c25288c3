"""What is fitted on one set of samples, tested on another: each measure is a cell of a matrix.

The source is taken as it was fitted; what is drawn anew for an interval are the target's clusters
(maps). Heads are chosen on the source's validation samples, and stories that the source has seen
are left out of the target's test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from scipy.stats import hypergeom, rankdata
from sklearn.base import clone

from sally_anne.core.bootstrap import draw_groups, estimate_mean, percentile_interval
from sally_anne.core.errors import ProbingError
from sally_anne.core.head import Head
from sally_anne.data.samples import SPLITS
from sally_anne.hooks.identity import ModelIdentity
from sally_anne.probing.config import Kind
from sally_anne.probing.probes import Activations, HeadProbes
from sally_anne.probing.solver import REFIT, fit_heads, shuffled

# Shuffles of a ranking or of test labels, and draws of an interval without fits.
DRAWS = 1000
ALL_SEEN = "the source has seen all test stories of the target"


@dataclass(frozen=True, eq=False)
class Causes:
    """What each head of a run carries within pairs of one kind.

    Attributes:
        validation: share of the gap between validation pairs, ``[L H]`` layer by layer.
        gap: between the P test pairs, ``[P]``, in logits.
        carried: of it what goes along with each head, ``[P, L H]``.
        items: of the test pairs, a row each, ``content`` and ``cluster`` as of :class:`Part`.
    """

    validation: np.ndarray
    gap: np.ndarray
    carried: np.ndarray
    items: pd.DataFrame

    @property
    def ranked(self) -> list[int]:
        """All heads as numbers layer by layer, those that carry most on validation first."""
        return (-self.validation).argsort(kind="stable").tolist()


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
        causes: what `sally-anne patch` found of the run, by kind of pairs.
        why: of other kinds, why it is not known.
    """

    name: str
    x: Activations = field(repr=False)
    label: str
    blank: HeadProbes = field(default_factory=HeadProbes, repr=False)
    identity: ModelIdentity = field(default_factory=ModelIdentity, repr=False)
    causes: Mapping[str, Causes] = field(default_factory=dict, repr=False)
    why: Mapping[str, str] = field(default_factory=dict, repr=False)

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
    def top(self) -> list[Head]:
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
        likely = (odds * (y[:, None] == self.probes.classes_)[:, None, None]).sum(-1)
        loss = -np.log(np.maximum(likely, np.finfo(float).tiny))
        return right.reshape(len(y), -1).astype(float), loss.reshape(len(y), -1)

    def lacks(self, kind: str) -> str:
        """Why it is not known what heads carry within pairs of a kind; empty if it is."""
        if kind in self.causes:
            return ""
        return self.why.get(kind, f"{self.name}: heads have not been exchanged within pairs")

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


def cell(
    value: float, ends: Sequence[float], control: Sequence[float], clusters: int, **more: Any
) -> dict[str, Any]:
    """One cell: with its 95 % interval, and its control as of :func:`control_of`.

    It is ``above`` its control if its value is above the quantile, and its interval above the mean.
    """
    (low, top), (mean, high) = ends, control
    above = bool(value > high and low > mean)
    return {
        **{"value": float(value), "low": float(low), "high": float(top), "control": float(mean)},
        **{"control_high": float(high), "above": above, "clusters": clusters, **more},
    }


def control_of(null: np.ndarray) -> tuple[float, float]:
    """Mean and 97.5 % quantile of what a control gives."""
    return float(null.mean()), percentile_interval(null)[1]


def note_on(gap: np.ndarray) -> str:
    """Sums of gaps ``[P]`` of both signs are no answer that could be carried: that is noted."""
    right = (gap > 0).mean()
    return "" if right >= 0.75 else f"only {right:.0%} of pairs answered rightly"


def accuracy(source: Part, target: Part, plan: Plan) -> dict[str, Any]:
    """Test accuracy of the source's best head; the control: labels shuffled within stories.

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
    predicted = one.predict(test.x[head])[:, 0, 0]
    number, count = codes(test.items["cluster"])
    found = estimate_mean(
        (predicted == y).astype(float), number, draw_groups(count, seed=plan.seed)
    )
    null = (predicted == _shuffled(test, target.label, DRAWS, plan.seed)).mean(1)
    more = {"n": len(test), "note": note, "heads": f"{best[0]}.{best[1]}"}
    return cell(found.value, (found.low, found.high), control_of(null), count, **more)


def cosine(source: Part, target: Part, plan: Plan) -> dict[str, Any]:
    """Mean ``|cos|`` of the directions of both in the source's K best heads.

    The interval is of refits on the target's training clusters drawn anew; on the diagonal value
    and interval are of two halves of them. Control: refits on labels shuffled within stories.
    """
    if why := source.unlike(target):
        return {"why": f"directions have no common axes: {why}"}
    if source.probes.classes_.tolist() != target.probes.classes_.tolist():
        return {"why": f"{source.label} has other classes"}
    heads = source.top[: plan.k]
    if len(heads) < plan.k:
        return {"why": f"only {len(heads)} heads of the source have a direction"}
    train = target.x.train
    number, count = codes(train.items["cluster"])
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
    return cell(value, ends, control_of(null), count, **more)


def codes(values: Sequence[Any]) -> tuple[np.ndarray, int]:
    """A number for each value ``[N]``, from 0, and how many there are."""
    names, number = np.unique(list(map(str, values)), return_inverse=True)
    return number, len(names)


def _shuffled(x: Activations, label: str, count: int, seed: int) -> np.ndarray:
    """Labels ``[count, N]`` shuffled within groups, or over all where each group has one label."""
    y, groups = x.values(label), x.items["group"].to_numpy()
    mixed = x.items.groupby("group")[label].nunique().max() > 1
    if len(np.unique(y)) < 2:
        return np.broadcast_to(y, (count, len(y)))
    return shuffled(y, groups if mixed else np.zeros(len(y)), count, seed)


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of weights ``[A, K, M]`` and ``[B, K, M]``, ``[max(A, B), K]``; 0 where either is zero."""
    size = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    dot = (one * other).sum(-1)
    return np.divide(dot, size, out=np.zeros_like(dot), where=size > 0)


def _refits(
    part: Part,
    heads: Sequence[Head],
    times: np.ndarray | None = None,
    labels: np.ndarray | None = None,
) -> np.ndarray:
    """Weights ``[P, K, M]`` of K heads, with samples weighted ``[P, N]`` or other labels."""
    train = part.x.train
    y = train.values(part.label)[None] if labels is None else labels
    codes = np.searchsorted(part.probes.classes_, y)
    if times is not None:
        codes = np.broadcast_to(codes, times.shape)
    x = np.stack([train.x[:, layer, head] for layer, head in heads], axis=1)[:, None]
    fits = fit_heads(
        torch.from_numpy(x),
        torch.from_numpy(np.ascontiguousarray(codes)),
        len(part.probes.classes_),
        part.blank.c,
        None if times is None else torch.from_numpy(np.ascontiguousarray(times)),
        REFIT,
        part.blank.max_iter,
    )
    return torch.stack([fit.coef.flatten(1) for fit in fits], 1).numpy()


# How heads are ranked: by probes, or by effects within pairs of a kind.
PROBES, KINDS = "probes", get_args(Kind)


@dataclass(frozen=True, eq=False)
class Rankings:
    """Two rankings of all heads, numbered layer by layer.

    Attributes:
        own: the source's scores on its validation samples or pairs, ``[L H]``.
        first: its heads, best first.
        theirs: the target's scores on test samples or pairs that the source has not seen,
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
    """Both rankings ``by`` probes or by effects within pairs of a kind, or why there are none."""
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
        return "the source has seen all test pairs of the target"
    times, count = _times(theirs.items["cluster"][kept], plan)
    # In logits, not as shares: where a model has pairs the wrong way round, heads keep their order.
    effects = times @ theirs.carried[kept] / times.sum(1)[:, None]
    note = note_on(theirs.gap[kept])
    ties = np.zeros_like(effects)
    return Rankings(mine.validation, mine.ranked, effects, ties, count, int(kept.sum()), note)


def spearman(source: Part, target: Part, plan: Plan, by: str = PROBES) -> dict[str, Any]:
    """Rank correlation over heads of the source's validation with the target's test scores.

    Control: the source's heads shuffled within their layers: what the layers alone explain. On
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
    control = control_of(rank_correlation(mixed, found.theirs[:1]))
    ends = percentile_interval(np.array(drawn))
    return cell(value, ends, control, found.clusters, n=found.n, note=found.note)


def overlap(source: Part, target: Part, plan: Plan, by: str = PROBES) -> dict[str, Any]:
    """Share of the source's K best heads (validation) among the target's K best (test).

    Control: chance, which is hypergeometric; ``p`` is that of as many or more.
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
