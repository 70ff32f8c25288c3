"""``sally-anne transfer RUN RUN ...``: what is fitted on one run, tested on another.

Each measure is a matrix, rows fitted on and columns tested on. The source is taken as it was
fitted; what is drawn anew for an interval are the target's clusters (maps). Heads are chosen on the
source's validation samples, and stories that the source has seen are left out of the target's test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from rich.markup import escape
from scipy.stats import hypergeom, rankdata
from sklearn.base import clone

from sally_anne.core.bootstrap import (
    draw_groups,
    estimate_mean,
    estimate_shares,
    percentile_interval,
)
from sally_anne.core.console import Bars, Console, stage
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_json
from sally_anne.core.folder import RESULTS, claims, save_config
from sally_anne.core.run import Head
from sally_anne.data.pairs import ContrastPair
from sally_anne.experiments.config import TransferConfig
from sally_anne.figures import style
from sally_anne.figures.comparison import PANELS, transfer_figure
from sally_anne.harness.report import print_table
from sally_anne.hooks.identity import ModelIdentity
from sally_anne.probing.config import Kind
from sally_anne.probing.interchange import read_pair
from sally_anne.probing.patching import FOLDER, kept_effects
from sally_anne.probing.probes import Activations, HeadProbes
from sally_anne.probing.solver import REFIT, fit_heads, shuffled
from sally_anne.probing.sources import Reopened, reopen

# Shuffles of a ranking or of test labels, and draws of an interval without fits.
DRAWS = 1000
ALL_SEEN = "the source has seen all test stories of the target"
# By what heads are ranked, besides probes: effects within pairs of a kind.
KINDS: tuple[str, ...] = get_args(Kind)
# Options by which runs are named, where they differ; the first ones by their values alone.
PLAIN = ("model", "samples", "task", "setting", "contrast", "site")
NAMED_BY = (*PLAIN, "order", "split_seed", "data_seed", "data", "stories", "c")
# What every cell has.
NUMBERS = ("value", "low", "high", "control", "control_high", "clusters", "n", "p")
EMPTY = dict.fromkeys(NUMBERS, float("nan")) | {"above": False, "why": "", "note": "", "heads": ""}
Cell = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Effects:
    """What `sally-anne patch` found of all heads, layer by layer, within pairs of one kind.

    Attributes:
        validation: mean normalised effect on validation pairs, ``[L H]``.
        gap: logit difference within each of P test pairs, ``[P]``.
        carried: of it what goes along with each head, ``[P, L H]``.
        items: a row a test pair, ``content`` and ``cluster`` as of :class:`Part`.
    """

    validation: np.ndarray
    gap: np.ndarray
    carried: np.ndarray
    items: pd.DataFrame

    @property
    def ranked(self) -> list[int]:
        """Heads as numbers layer by layer, those that carry most on validation first."""
        return (-self.validation).argsort(kind="stable").tolist()


@dataclass(frozen=True, eq=False)
class Part:
    """Samples of one run: all, or those with one value of a tag.

    Attributes:
        x: activations; the items' columns ``content`` and ``cluster`` say which story it is,
            whatever a run calls it, and what is drawn anew for intervals.
        label: what is read.
        blank: probes with the run's settings.
        effects: by kind of pairs, or why there are none.
    """

    name: str
    x: Activations = field(repr=False)
    label: str
    blank: HeadProbes = field(default_factory=HeadProbes, repr=False)
    identity: ModelIdentity = field(default_factory=ModelIdentity, repr=False)
    effects: Mapping[str, Effects | str] = field(default_factory=dict, repr=False)

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

    def unseen(self, items: pd.DataFrame) -> np.ndarray:
        """Of which items ``[N]`` no story trained, or chose heads."""
        own = self.x.items
        seen = own.loc[own["split"].isin(("train", "validation")), "content"]
        return ~items["content"].isin(seen).to_numpy()

    def scores(self, x: Activations) -> tuple[np.ndarray, np.ndarray]:
        """Of the own probes on samples: right or not, and log-loss in nats, ``[N, L H]`` each."""
        odds, y = self.probes.predict_proba(x.x), x.values(self.label)
        right = self.probes.classes_[odds.argmax(-1)] == y[:, None, None]
        likely = (odds * (y[:, None] == self.probes.classes_)[:, None, None]).sum(-1)
        loss = -np.log(np.maximum(likely, np.finfo(float).tiny))
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


@claims("a transfer")
def run(config: TransferConfig, console: Console | None = None) -> pd.DataFrame:
    """Measure, print, draw and write the matrices.

    Returns:
        A row a cell: ``measure`` (of :data:`sally_anne.figures.comparison.PANELS`), ``fitted_on``,
        ``tested_on``, ``value, low, high`` (95 % over the target's ``clusters``), ``control`` and
        ``control_high`` (mean and 97.5 % quantile), ``above`` (whether it is above its control),
        ``n`` (samples or pairs), ``p``, ``heads``, ``note``; of an empty cell ``why``.

    Raises:
        ProbingError: fewer than two parts, or one that cannot be fitted.
        RunFolderError: a folder is not that of a finished run.
        ModelError: a model is not the one that was probed.
    """
    console = console or Console()
    if len({folder.resolve() for folder in config.runs}) < len(config.runs):
        raise ProbingError("a run is given twice; --by TAG parts the samples of one")
    opened = [reopen(folder, config.device, config.device_map) for folder in config.runs]
    parted = [parts_of(*one, config) for one in zip(opened, names_of(opened), strict=True)]
    parts = sum(parted, [])
    if len(parts) < 2:
        raise ProbingError("there is one part alone: give two runs, or a tag with two values, --by")
    for part in parts:
        if config.k > (heads := part.shape[0] * part.shape[1]):
            raise ProbingError(f"--K {config.k}: {part.name} has {heads} heads")
    found = []
    with stage(console, "comparing heads and directions"):
        for a, b in product(parts, parts):
            cells = {"accuracy": accuracy(a, b, config), "cosine": cosine(a, b, config)}
            for kind in ("", *KINDS):
                cells |= agreement(a, b, config, kind)
            found += [{**about(name, a, b), **cell} for name, cell in cells.items()]
    for one, targets in zip(opened, parted, strict=True):
        found += shares(one, targets, parts, config, console)
    row = {part.name: i for i, part in enumerate(parts)}
    places: dict[Any, dict[str, int]] = {"measure": {name: i for i, name in enumerate(PANELS)}}
    places |= {"fitted_on": row, "tested_on": row}
    table = pd.DataFrame([EMPTY | cell for cell in found]).sort_values(
        list(places), key=lambda column: column.map(places[column.name]), ignore_index=True
    )
    print_matrices(console, table)
    save_config(config.folder, asdict(config), parts=list(row))
    with style.look():
        titles = [one.run.title for one in opened]
        alike = [part for part in titles[0] if all(part in title for title in titles)]
        label = style.symbol(parts[0].label)
        figure = transfer_figure(table, [*alike, label, f"K {config.k}"])
        paths = style.save(figure, config.folder, "transfer", table)
    cells = table.astype(object).where(table.notna(), None).to_dict("records")
    write_json(config.folder / RESULTS, {"config": asdict(config), "cells": cells})
    console.print(f"matrices: {escape(str(paths[-1]))}", soft_wrap=True)
    return table


def names_of(opened: Sequence[Reopened]) -> list[str]:
    """What tells runs apart: options in which they differ, or their folders."""
    options = [vars(one.probing) for one in opened]
    differ = [name for name in NAMED_BY if len({str(each[name]) for each in options}) > 1]

    def word(name: str, value: Any) -> str:
        value = Path(value).name if isinstance(value, Path) or name == "model" else value
        return str(value) if name in PLAIN else f"{name.replace('_', ' ')} {value}"

    names = [
        ", ".join(word(name, each[name]) for name in differ if each[name] is not None)
        for each in options
    ]
    alike = len(set(names)) < len(names) or (len(names) > 1 and "" in names)
    return [str(one.run.folder) for one in opened] if alike else names


def parts_of(opened: Reopened, name: str, config: TransferConfig) -> list[Part]:
    """All samples of a run, or with ``--by`` those of each value of a tag."""
    saved, probing, items = opened.run, opened.probing, opened.run.samples
    label = config.label or saved.labels[0]
    if config.by is not None and config.by not in items:
        tags = ", ".join(sorted({tag for sample in opened.data.samples for tag in sample.tags}))
        raise ProbingError(f"--by {config.by}: the samples of {saved.folder} have the tags {tags}")
    items["content"] = items["group"].map(opened.data.identities)
    items["cluster"] = items["group"].map(opened.clusters)
    part = Part(
        name,
        Activations(saved.activations(), items, saved.labels, probing.site),
        label,
        HeadProbes(probing.c, probing.max_iter, probing.solver, probing.normalise),
        ModelIdentity.of_run(saved.saved["model"]),
        effects_of(opened)
        if config.by is None
        else dict.fromkeys(KINDS, "causal heads are of whole runs, not of one tag"),
    )
    if config.by is None:
        return [part]
    first = [name] if len(config.runs) > 1 else []
    return [
        replace(part, name=", ".join([*first, str(value)]), x=part.x.at(rows))
        for value in sorted(items[config.by].dropna().unique(), key=str)
        if len(rows := np.flatnonzero(items[config.by] == value))
    ]


def effects_of(opened: Reopened) -> dict[str, Effects | str]:
    """What `sally-anne patch` found of a run's heads, by kind of pairs, or why that is lacking.

    Raises:
        RunFolderError: what it kept is damaged.
    """
    folder, found = opened.run.folder, dict[str, Effects | str]()
    heads = opened.run.heads.sort_values(["layer", "head"])
    for kind in KINDS:
        pair_set, facts = opened.pair_sets.get(kind), opened.run.patching.get(kind, {})
        column = f"{kind}_effect_validation"
        if pair_set is None:
            found[kind] = f"the samples of {folder} have no {kind} pairs"
        elif column not in heads or facts.get("pair_set") != pair_set.fingerprint:
            found[kind] = f"`sally-anne patch {folder}` has not been run"
        else:
            gap, carried = kept_effects(folder / FOLDER, facts)
            stories = stories_of(opened, pair_set.choose("test", facts["scan"]["pairs"]))
            validation = heads[column].to_numpy()
            found[kind] = Effects(validation, gap, carried.reshape(len(gap), -1), stories)
    return found


def stories_of(opened: Reopened, pairs: Sequence[ContrastPair]) -> pd.DataFrame:
    """Of each pair which story it is, ``content``, and its ``cluster``."""
    content = [opened.data.identities[pair.samples[0].group] for pair in pairs]
    return pd.DataFrame({"content": content, "cluster": [pair.cluster for pair in pairs]})


def about(measure: str, source: Part, target: Part) -> Cell:
    """Which cell of which matrix."""
    return {"measure": measure, "fitted_on": source.name, "tested_on": target.name}


def cell(
    value: float, ends: Sequence[float], control: Sequence[float], clusters: int, **more: Any
) -> Cell:
    """One cell: with its 95 % interval, and mean and 97.5 % quantile of its control.

    It is ``above`` its control if its value is above the quantile, and its interval above the mean.
    """
    numbers = (float(each) for each in (value, *ends, *control))
    found: Cell = dict(zip(NUMBERS, numbers, strict=False))
    above = found["value"] > found["control_high"] and found["low"] > found["control"]
    return {**found, "above": above, "clusters": clusters, **more}


def control_of(null: np.ndarray) -> tuple[float, float]:
    """Mean and 97.5 % quantile of what a control gives."""
    return float(null.mean()), percentile_interval(null)[1]


def codes(values: Sequence[Any]) -> tuple[np.ndarray, int]:
    """A number for each value ``[N]``, from 0, and how many there are."""
    names, number = np.unique(list(map(str, values)), return_inverse=True)
    return number, len(names)


def note_on(gap: np.ndarray) -> str:
    """That logit differences ``[P]`` have both signs, whose sum is no answer."""
    right = (gap > 0).mean()
    return "" if right >= 0.75 else f"only {right:.0%} of pairs answered rightly"


def accuracy(source: Part, target: Part, config: TransferConfig) -> Cell:
    """Test accuracy of the source's best head; the control: labels shuffled within stories.

    Of two models, or sites, the head at the same place is fitted anew on the target.
    """
    if not source.top:
        return {"why": "no probe of the source has weights"}
    (layer, head), fitted, note = source.top[0], source, ""
    if why := source.unlike(target):
        if source.shape != target.shape:
            return {"why": why}
        fitted, note = target, f"refitted: {why}"
    test = target.x.test.at(source.unseen(target.x.test.items))
    if not len(test):
        return {"why": ALL_SEEN}
    predicted = fitted.probes.predict(test.x)[:, layer, head]
    right = (predicted == test.values(target.label)).astype(float)
    number, count = codes(test.items["cluster"])
    found = estimate_mean(right, number, draw_groups(count, seed=config.seed))
    null = (predicted == _shuffled(test, target.label, DRAWS, config.seed)).mean(1)
    more = {"n": len(test), "note": note, "heads": f"{layer}.{head}"}
    return cell(found.value, (found.low, found.high), control_of(null), count, **more)


def cosine(source: Part, target: Part, config: TransferConfig) -> Cell:
    """Mean ``|cos|`` of the directions of both in the source's K best heads.

    The interval is of refits on the target's training clusters drawn anew; on the diagonal value
    and interval are of two halves of them. Control: refits on labels shuffled within stories.
    """
    if why := source.unlike(target):
        return {"why": f"directions have no common axes: {why}"}
    if source.probes.classes_.tolist() != target.probes.classes_.tolist():
        return {"why": f"{source.label} has other classes"}
    heads = source.top[: config.k]
    if len(heads) < config.k:
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
        random = np.random.default_rng(config.seed)
        half = random.random((config.draws, count)).argsort(-1) < count // 2
        sides = (_refits(target, heads, side[:, number].astype(float)) for side in (half, ~half))
        drawn = _cosines(*sides)
        value = float(np.abs(drawn).mean())
    else:
        times = draw_groups(count, config.draws, config.seed)[:, number]
        drawn = _cosines(mine, _refits(target, heads, times))
        value = float(np.abs(_cosines(mine, theirs)).mean())
    y = _shuffled(train, target.label, config.draws, config.seed)
    null = np.abs(_cosines(mine, _refits(target, heads, labels=y))).mean(1)
    turned = source is not target and float(_cosines(mine, theirs).mean()) < 0
    more = {"n": len(train), "note": "turned round" if turned else ""}
    ends = percentile_interval(np.abs(drawn).mean(1))
    return cell(value, ends, control_of(null), count, **more)


def _shuffled(x: Activations, label: str, count: int, seed: int) -> np.ndarray:
    """Labels ``[count, N]`` shuffled within groups, or among them where each has one label."""
    y = x.values(label)
    if len(np.unique(y)) < 2:
        return np.broadcast_to(y, (count, len(y)))
    return shuffled(y, x.items["group"].to_numpy(), count, seed)


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
    y = np.searchsorted(
        part.probes.classes_, train.values(part.label)[None] if labels is None else labels
    )
    if times is not None:
        y = np.broadcast_to(y, times.shape)
    x = np.stack([train.x[:, layer, head] for layer, head in heads], axis=1)[:, None]
    fits = fit_heads(
        torch.from_numpy(x),
        torch.from_numpy(np.ascontiguousarray(y)),
        len(part.probes.classes_),
        part.blank.c,
        None if times is None else torch.from_numpy(np.ascontiguousarray(times)),
        REFIT,
        part.blank.max_iter,
        normalise=part.blank.normalise,
    )
    return torch.stack([fit.coef.flatten(1) for fit in fits], 1).numpy()


def agreement(
    source: Part, target: Part, config: TransferConfig, kind: str = ""
) -> dict[str, Cell]:
    """Do the source's heads rank as the target's, by probes or by effects within pairs of a kind?

    ``spearman``: rank correlation of the source's validation with the target's test scores.
    Control: the source's heads shuffled within their layers: what the layers alone explain. On the
    diagonal it says how well a ranking holds at all. ``overlap``: share of the source's K best
    heads (validation) among the target's K best (test); chance is hypergeometric, ``p`` that of as
    many or more.
    """
    names = [f"{kind}_{name}".strip("_") for name in ("spearman", "overlap")]
    mine, theirs = (part.effects.get(kind, "not measured") for part in (source, target))
    if source.shape != target.shape:
        why = "{} x {} heads against {} x {}".format(*source.shape, *target.shape)
        return dict.fromkeys(names, {"why": why})
    if not kind:
        test = target.x.test.at(source.unseen(target.x.test.items))
        items, seen, note = test.items, ALL_SEEN, ""
        right, loss = target.scores(test) if len(test) else (np.empty(0), np.empty(0))
        own = source.scores(source.x.validation)[0].mean(0)
        first = [layer * source.shape[1] + head for layer, head in source.probes.ranked_]
    else:
        for lacking in (mine, theirs):
            if isinstance(lacking, str):
                return dict.fromkeys(names, {"why": lacking})
        assert isinstance(mine, Effects) and isinstance(theirs, Effects)
        kept = source.unseen(theirs.items)
        items, seen = theirs.items[kept], "the source has seen all test pairs of the target"
        # In logits, not as shares: where a model has pairs the wrong way round, heads keep their
        # order.
        right, loss = theirs.carried[kept], np.zeros_like(theirs.carried[kept])
        own, first = mine.validation, mine.ranked
        note = note_on(theirs.gap[kept]) if kept.any() else ""
    if not len(items):
        return dict.fromkeys(names, {"why": seen})
    number, count = codes(items["cluster"])
    # How often each is drawn, at first once.
    drawn = draw_groups(count, DRAWS, config.seed)
    times = np.concatenate([np.ones((1, count)), drawn])[:, number]
    scores, ties = (times @ each / times.sum(1)[:, None] for each in (right, loss))
    more = {"n": len(items), "note": note}
    within = np.random.default_rng(config.seed).random((DRAWS, *source.shape)).argsort(-1)
    mixed = np.take_along_axis(np.broadcast_to(own.reshape(source.shape), within.shape), within, -1)
    value, *others = rank_correlation(own[None], scores)
    control = control_of(rank_correlation(mixed.reshape(DRAWS, -1), scores[:1]))
    ends = percentile_interval(np.array(others))
    alike = cell(value, ends, control, count, **more)
    if not np.isfinite(value):
        alike = {"why": "all heads score the same"}
    best = np.lexsort((ties, -scores), axis=-1)[:, : config.k]
    shared = np.isin(best, first[: config.k]).sum(1)
    chance, k = hypergeom(len(own), config.k, config.k), config.k
    more["p"] = float(chance.sf(shared[0] - 1))
    control = chance.mean() / k, chance.ppf(0.975) / k
    ends = percentile_interval(shared[1:] / k)
    common = cell(shared[0] / k, ends, control, count, **more)
    return dict(zip(names, (alike, common), strict=True))


def rank_correlation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Spearman's of rows ``[A, n]`` and ``[B, n]``, where A or B is 1; NaN of a constant row."""
    a, b = (rankdata(values.round(12), axis=1) for values in (one, other))
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    size = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    with np.errstate(invalid="ignore"):
        return (a * b).sum(1) / np.where(size > 0, size, np.nan)


def shares(
    opened: Reopened,
    targets: Sequence[Part],
    sources: Sequence[Part],
    config: TransferConfig,
    console: Console,
) -> list[Cell]:
    """Shares of the answers to a run's questions that the sources' K heads carry, by its model."""
    pair_set = opened.pair_sets.get("question")
    pairs = pair_set.choose("test", config.pairs) if pair_set else []
    items = stories_of(opened, pairs)
    cells: list[Cell] = []
    asked: list[tuple[Cell, np.ndarray, Sequence[int]]] = []
    for source, target in product(sources, targets):
        effects, rows, why = source.effects["question"], source.unseen(items), ""
        if not pairs:
            why = "the target has no test pairs of questions"
        elif config.by is not None:
            why = "pairs of questions join the parts of one run"
        elif two := source.unlike(target):
            why = f"heads are of one model and site: {two}"
        elif isinstance(effects, str):
            why = effects
        elif not rows.any():
            why = "the source has seen all test pairs of the target"
        else:
            asked.append((about("share", source, target), rows, effects.ranked[: config.k]))
        if why:
            cells.append({**about("share", source, target), "why": why})
    if not asked or pair_set is None:
        return cells
    loaded, shape = opened.model(), targets[0].shape
    count, random = shape[0] * shape[1], np.random.default_rng(config.seed)
    sets = [heads for _, _, heads in asked]
    sets += [
        random.choice(count, config.k, replace=False).tolist() for _ in range(config.random_sets)
    ]
    chosen = torch.zeros(len(sets), count, dtype=torch.bool)
    for row, heads in zip(chosen, sets, strict=True):
        row[heads] = True
    swapped, gap, along = chosen.unflatten(1, shape), [], []
    with Bars(console) as bar:
        for pair in bar.track(pairs, description=f"exchanging heads ({targets[0].name})"):
            a, b = read_pair(loaded, pair, pair_set.reply, opened.probing.site)
            gap.append(a.logit_diff - b.logit_diff)
            to_b, to_a = a.replaced(b.heads, swapped), b.replaced(a.heads, swapped)
            along.append((a.logit_diff - to_b + to_a - b.logit_diff) / 2)
    own, drawn = np.split(np.stack(along), [len(asked)], axis=1)
    for (where, rows, _), column in zip(asked, own.T, strict=True):
        clusters = items["cluster"][rows].tolist()
        found = carried(np.array(gap)[rows], column[rows], drawn[rows], clusters, config.seed)
        cells.append(where | found)
    return cells


def carried(
    gap: np.ndarray, own: np.ndarray, random: np.ndarray, clusters: Sequence[str], seed: int = 0
) -> Cell:
    """Share of the logit differences ``gap [P]`` of pairs that goes along with a set of heads.

    That share is ``own [P]``, with random sets, the control, ``random [P, R]``.
    """
    if gap.mean() <= 0:
        return {"why": "the model does not tell the target's pairs apart: no gap to be carried"}
    number, count = codes(clusters)
    times = draw_groups(count, seed=seed)
    share, *ends = (float(each) for each in estimate_shares(own, gap, number, times))
    control = control_of(random.sum(0) / gap.sum())
    return cell(share, ends, control, count, n=len(gap), note=note_on(gap))


def print_matrices(console: Console, table: pd.DataFrame) -> None:
    """A table a measure: value, interval and control of each cell, and why others are empty."""
    names = table["fitted_on"].unique()
    table = table.assign(text=[in_words(each) for each in table.to_dict("records")])
    for measure, part in table.groupby("measure", sort=False):
        square = part.pivot(index="fitted_on", columns="tested_on", values="text")
        print_table(
            console,
            f"{PANELS[str(measure)][0]} (97.5 % of its control)",
            ["fitted on", *(f"tested on {name}" for name in names)],
            square.loc[names, names].itertuples(name=None),
        )
        for why, rows in part[part["why"] != ""].groupby("why", sort=False):
            console.print(escape(f"  empty ({len(rows)} of {len(part)}): {why}"), soft_wrap=True)


def in_words(cell: Mapping[Any, Any]) -> str:
    """A cell as it is printed."""
    if cell["why"]:
        return "-"
    text = "{value:.2f} [{low:.2f}, {high:.2f}] ({control_high:.2f})".format(**cell)
    notes = [str(cell["note"]).partition(":")[0], "" if cell["above"] else "not specific"]
    return "\n".join([text, *filter(None, notes)])
