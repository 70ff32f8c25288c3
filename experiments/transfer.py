"""``sally-anne transfer RUN RUN ...``: what is fitted on one run, tested on another.

Each measure is a matrix, rows fitted on and columns tested on. The source is taken as it was
fitted; what is drawn anew for an interval are the target's clusters (maps). Heads are chosen on the
source's validation samples, and stories that the source has seen are left out of the target's test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from sally_anne.core.bootstrap import draw_groups, estimate_shares, percentile_interval
from sally_anne.core.console import Bars, Console, print_lines, print_table, stage
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_json
from sally_anne.core.folder import RESULTS, claims, save_config
from sally_anne.core.run import Head, symbol
from sally_anne.experiments.config import TransferConfig
from sally_anne.figures import style
from sally_anne.figures.comparison import PANELS, transfer_figure
from sally_anne.hooks.identity import ModelIdentity
from sally_anne.probing.activations import Activations, Reopened, reopen
from sally_anne.probing.interchange import read_pair
from sally_anne.probing.probes import HeadProbes
from sally_anne.probing.solver import REFIT, fit_heads, shuffled

# Shuffles of test labels.
DRAWS = 1000
ALL_SEEN = "the source has seen all that tests the target"
# What every cell has.
NUMBERS = ("value", "low", "high", "control", "control_high", "clusters", "n")
EMPTY = dict.fromkeys(NUMBERS, float("nan")) | {"above": False, "why": "", "note": "", "heads": ""}
Cell = dict[str, Any]


class EmptyError(Exception):
    """Why a cell is empty."""


def require(holds: object, why: str) -> None:
    if not holds:
        raise EmptyError(why)


@dataclass(frozen=True, eq=False)
class Part:
    """Samples of one run, all or those with one value of a tag, what is read, and probes.

    ``content`` and ``cluster`` of the items say which story it is, and what is drawn for intervals;
    ``used`` are heads by effect, numbered layer by layer, or why they are not known.
    """

    name: str
    x: Activations = field(repr=False)
    label: str
    blank: HeadProbes = field(default_factory=HeadProbes, repr=False)
    identity: ModelIdentity = field(default_factory=ModelIdentity, repr=False)
    used: list[int] | str = field(default="not measured", repr=False)

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
        return self.x.x.shape[1], self.x.x.shape[2]

    def unseen(self, items: pd.DataFrame) -> np.ndarray:
        """Of which items ``[N]`` no story trained, or chose heads."""
        own = self.x.items
        seen = own.loc[own["split"].isin(("train", "validation")), "_content"]
        return ~items["_content"].isin(seen).to_numpy()

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
    """Measure, print, draw and write the matrices: a row a cell, by measure (:data:`PANELS`).

    A ProbingError says that there are fewer than two parts, or that one cannot be fitted.
    """
    console = console or Console()
    if len({folder.resolve() for folder in config.runs}) < len(config.runs):
        raise ProbingError("a run is given twice; --by TAG parts the samples of one")
    opened = [reopen(folder, config.device, config.device_map) for folder in config.runs]
    if config.label and not any(config.label in one.run.labels for one in opened):
        raise ProbingError(f"--label {config.label}: no run has it")
    parted = [parts_of(*one, config) for one in zip(opened, names_of(opened), strict=True)]
    parts: list[Part] = []
    lines: list[str] = []
    for part in sum(parted, []):
        try:
            _ = part.probes
            parts.append(part)
        except ProbingError as error:  # one class alone
            lines.append(f"left out is {part.name}: {error}")
            continue
        if config.k > (heads := part.shape[0] * part.shape[1]):
            raise ProbingError(f"--K {config.k}: {part.name} has {heads} heads")
    if len(parts) < 2:
        begin = "too few parts: give two runs, or a tag with two values, --by"
        raise ProbingError("; ".join([begin, *lines[:1]]))
    print_lines(console, lines)
    with stage(console, "comparing heads and directions"):
        found = {(a.name, b.name): compare(a, b, config) for a, b in product(parts, parts)}
    for one, own in zip(opened, parted, strict=True):
        targets = [part for part in own if part in parts]
        for both, cell in shares(one, targets, parts, config, console).items():
            found[both]["share"] = cell
    names = [part.name for part in parts]
    table = pd.DataFrame(
        EMPTY | {"measure": measure, "fitted_on": a, "tested_on": b} | found[a, b][measure]
        for measure, a, b in product(PANELS, names, names)
    )
    print_matrices(console, table)
    save_config(config.folder, asdict(config), parts=names)
    with style.look():
        titles = [one.run.title for one in opened]
        alike = [part for part in titles[0] if all(part in title for title in titles)]
        labels = ", ".join(dict.fromkeys(symbol(part.label) for part in parts))
        figure = transfer_figure(table, [*alike, labels, f"K {config.k}"])
        paths = style.save(figure, config.folder, "transfer", table)
    cells = table.astype(object).where(table.notna(), None).to_dict("records")
    write_json(config.folder / RESULTS, {"config": asdict(config), "cells": cells})
    print_lines(console, [f"matrices: {paths[-1]}"])
    return table


def names_of(opened: Sequence[Reopened]) -> list[str]:
    """What tells runs apart: words of their titles, or their folders."""
    titles = [one.run.title for one in opened]
    names = [", ".join(w for w in own if not all(w in t for t in titles)) for own in titles]
    alike = len(set(names)) < len(names) or (len(names) > 1 and "" in names)
    return [str(one.run.folder) for one in opened] if alike else names


def parts_of(opened: Reopened, name: str, config: TransferConfig) -> list[Part]:
    """All samples of a run, or with ``--by`` those of each value of a tag."""
    saved, probing, items, by = opened.run, opened.probing, opened.run.samples, config.by
    label = config.label if config.label in saved.labels else saved.labels[0]
    if by is not None and by not in items:
        tags = ", ".join(sorted({tag for sample in opened.data.samples for tag in sample.tags}))
        raise ProbingError(f"--by {by}: the samples of {saved.folder} have the tags {tags}")
    items["_content"] = items["group"].map(opened.data.identities)
    items["_cluster"] = items["group"].map(opened.clusters)
    x = Activations(saved.activations(), items, saved.labels, probing.site)
    blank = HeadProbes(probing.c, probing.max_iter, probing.solver, probing.normalise)
    identity = ModelIdentity.of_run(saved.saved["model"])
    if by is None:
        return [Part(name, x, label, blank, identity, used_heads(opened))]
    first = [name] if len(config.runs) > 1 else []
    return [
        Part(", ".join([*first, str(value)]), x[rows], label, blank, identity)
        for value in sorted(items[by].dropna().unique(), key=str)
        if len(rows := np.flatnonzero(items[by] == value))
    ]


def used_heads(opened: Reopened) -> list[int] | str:
    """Heads by what they carry of the answer on validation pairs, or why that is not known."""
    heads, facts = opened.run.heads.sort_values(["layer", "head"]), opened.run.patching
    column, pair_set = "question_effect_validation", opened.pair_sets.get("question")
    if pair_set is None:
        return f"the samples of {opened.run.folder} have no question pairs"
    known = facts.get("question", {}).get("pair_set") == pair_set.fingerprint
    if column not in heads or not known:
        return f"`sally-anne patch {opened.run.folder}` has not been run"
    return (-heads[column].to_numpy()).argsort(kind="stable").tolist()


def compare(source: Part, target: Part, config: TransferConfig) -> dict[str, Cell]:
    found: dict[str, Cell] = {}
    for names, measure in ((("accuracy", "centred"), accuracy), (("cosine",), cosine)):
        try:
            found |= zip(names, measure(source, target, config), strict=True)
        except EmptyError as why:
            found |= dict.fromkeys(names, {"why": str(why)})
    return found


def cell(
    value: Any, ends: Sequence[Any], control: Sequence[float], clusters: int, **more: Any
) -> Cell:
    """One cell; it is ``above`` its control by its value (97.5 %) and its interval (mean)."""
    found: Cell = dict(zip(NUMBERS, map(float, (value, *ends, *control)), strict=False))
    above = found["value"] > found["control_high"] and found["low"] > found["control"]
    return {**found, "above": above, "clusters": clusters, **more}


def carried(
    whole: np.ndarray, own: np.ndarray, random: np.ndarray, clusters: Sequence[str], seed: int = 0
) -> Cell:
    """The share ``own [P]`` of ``whole [P]``, of sums; the control are random ones, ``[P, R]``."""
    require(whole.mean() > 0, "the model does not tell the target's pairs apart: no gap to carry")
    number, count = codes(clusters)
    value, low, high = estimate_shares(own, whole, number, draw_groups(count, seed=seed))
    ends = (low, high) if count > 1 else (np.nan, np.nan)
    control = control_of(random.sum(0) / whole.sum())
    # Of logit differences with both signs the sum is no answer.
    right = (whole > 0).mean()
    note = "" if right >= 0.75 else f"only {right:.0%} of pairs answered rightly"
    return cell(value, ends, control, count, n=len(whole), note=note)


def control_of(null: np.ndarray) -> tuple[float, float]:
    return float(null.mean()), percentile_interval(null)[1]


def codes(values: Sequence[Any]) -> tuple[np.ndarray, int]:
    """A number for each value ``[N]``, from 0, and how many there are."""
    numbers, names = pd.factorize(np.asarray(values, dtype=object), sort=True)
    return numbers, len(names)


def accuracy(source: Part, target: Part, config: TransferConfig) -> tuple[Cell, Cell]:
    """Test accuracy of the source's best head; the control: labels shuffled within stories.

    Of two models, or sites, the head at the same place is fitted anew on the target. The second is
    by the sign of a score above its mean over the same story.
    """
    require(source.top, "no probe of the source has weights")
    (layer, head), why = source.top[0], source.unlike(target)
    require(not why or source.shape == target.shape, why)
    test = target.x.test[source.unseen(target.x.test.items)]
    require(len(test), ALL_SEEN)
    probes = (target if why else source).probes
    y, null = test.values(target.label), _shuffled(test, target.label, DRAWS, config.seed)
    require(np.isin(y, probes.classes_).all(), f"{source.label} has other classes")

    def right(predicted: np.ndarray) -> Cell:
        own = (predicted == y).astype(float), (predicted == null).T
        found = carried(np.ones(len(y)), *own, test.items["_cluster"], config.seed)
        return found | {"note": why and f"refitted: {why}", "heads": f"{layer}.{head}"}

    whole = right(probes.predict(test.x)[:, layer, head])
    if len(probes.classes_) > 2:
        return whole, {"why": f"{source.label} has more than two classes"}
    score = pd.Series(test.x[:, layer, head] @ probes.coef_[layer, head])
    above = score - score.groupby(test.items["group"]).transform("mean") > 0
    return whole, right(probes.classes_[above.astype(int)])


def cosine(source: Part, target: Part, config: TransferConfig) -> tuple[Cell]:
    """Mean ``|cos|`` of the directions of both in the source's K best heads.

    Intervals are of refits on drawn clusters, on the diagonal of two halves; control: refits on
    labels shuffled within stories.
    """
    why = source.unlike(target)
    require(not why, f"directions have no common axes: {why}")
    same = source.probes.classes_.tolist() == target.probes.classes_.tolist()
    require(same, f"{source.label} has other classes")
    heads = source.top[: config.k]
    require(len(heads) == config.k, f"only {len(heads)} heads of the source have a direction")
    train = target.x.train
    number, count = codes(train.items["_cluster"])
    at = tuple(np.transpose(heads))
    mine, theirs = (part.probes.coef_[at].reshape(1, config.k, -1) for part in (source, target))
    between = _cosines(mine, theirs)
    if source is target:
        number, count = (number, count) if count > 1 else codes(train.items["group"])
        require(count > 1, "there is one training story: nothing to halve")
        random = np.random.default_rng(config.seed)
        half = (random.random((config.draws, count)).argsort(-1) < count // 2)[:, number]
        half = half[_trains(target, half) & _trains(target, ~half)]
        require(len(half), f"no two halves of the training stories have each {target.label}")
        between = drawn = _cosines(*(_refits(target, heads, times) for times in (half, ~half)))
    else:
        times = draw_groups(count, config.draws, config.seed)[:, number]
        drawn = _cosines(mine, _refits(target, heads, times[_trains(target, times)]))
    y = _shuffled(train, target.label, config.draws, config.seed)
    null = np.abs(_cosines(mine, _refits(target, heads, np.ones(y.shape), y))).mean(1)
    more = {"n": len(train), "note": "" if between.mean() >= 0 else "turned round"}
    ends = percentile_interval(np.abs(drawn).mean(1))
    return (cell(np.abs(between).mean(), ends, control_of(null), count, **more),)


def _shuffled(x: Activations, label: str, count: int, seed: int) -> np.ndarray:
    y = x.values(label)
    if len(np.unique(y)) < 2:
        return np.broadcast_to(y, (count, len(y)))
    return shuffled(y, x.items["group"].to_numpy(), count, seed)


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of weights ``[A, K, M]`` and ``[B, K, M]``, ``[max(A, B), K]``; 0 where either is zero."""
    size = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    dot = (one * other).sum(-1)
    return np.divide(dot, size, out=np.zeros_like(dot), where=size > 0)


def _trains(part: Part, times: np.ndarray) -> np.ndarray:
    """Whether each draw of a part's training samples, ``times [P, N]``, has all its classes."""
    y = part.x.train.values(part.label)
    return np.all([(times[:, y == c] > 0).any(1) for c in part.probes.classes_], axis=0)


def _refits(
    part: Part, heads: Sequence[Head], times: np.ndarray, labels: np.ndarray | None = None
) -> np.ndarray:
    """Weights ``[P, K, M]`` of K heads; samples count ``times [P, N]``, perhaps by other labels."""
    train, blank, classes = part.x.train, part.blank, part.probes.classes_
    codes = np.searchsorted(classes, train.values(part.label) if labels is None else labels)
    x = train.x[:, *np.transpose(heads)][:, None]
    at, y, weights = map(torch.tensor, (x, np.broadcast_to(codes, times.shape), times))
    own = at, y, len(classes), blank.c, weights, REFIT, blank.max_iter
    fits = fit_heads(*own, normalise=blank.normalise)
    return torch.stack([fit.coef.flatten(1) for fit in fits], 1).numpy()


def shares(
    opened: Reopened,
    targets: Sequence[Part],
    sources: Sequence[Part],
    config: TransferConfig,
    console: Console,
) -> dict[tuple[str, str], Cell]:
    """Shares of the answers to a run's questions that the sources' K heads carry, by its model."""
    pair_set = opened.pair_sets.get("question")
    pairs = pair_set.choose("test", config.pairs) if pair_set else []
    content = [opened.data.identities[pair.samples[0].group] for pair in pairs]
    items = pd.DataFrame({"_content": content, "_cluster": [pair.cluster for pair in pairs]})
    cells: dict[tuple[str, str], Cell] = {}
    asked: dict[tuple[str, str], tuple[np.ndarray, list[int]]] = {}
    for source, target in product(sources, targets):
        rows, two, names = source.unseen(items), source.unlike(target), (source.name, target.name)
        try:
            require(pairs, "the target has no test pairs of questions")
            require(config.by is None, "pairs of questions join the parts of one run")
            require(not two, f"heads are of one model and site: {two}")
            if isinstance(source.used, str):
                raise EmptyError(source.used)
            require(rows.any(), ALL_SEEN)
            asked[names] = rows, source.used[: config.k]
        except EmptyError as why:
            cells[names] = {"why": str(why)}
    if not asked or pair_set is None:
        return cells
    loaded, shape = opened.model(), targets[0].shape
    count, random = shape[0] * shape[1], np.random.default_rng(config.seed)
    sets = [heads for _, heads in asked.values()]
    draws = range(config.random_sets)
    sets += [random.choice(count, config.k, replace=False).tolist() for _ in draws]
    swapped = torch.zeros(len(sets), count, dtype=torch.bool)
    swapped = swapped.scatter(1, torch.tensor(sets), True).unflatten(1, shape)
    gap, along = [], []
    with Bars(console) as bar:
        for pair in bar.track(pairs, description=f"exchanging heads ({targets[0].name})"):
            a, b = read_pair(loaded, pair, pair_set.reply, opened.probing.site)
            gap.append((a.logit_diff - b.logit_diff)[0])
            to_b, to_a = a.replaced(b.heads, swapped)[0], b.replaced(a.heads, swapped)[0]
            along.append((a.logit_diff - to_b + to_a - b.logit_diff) / 2)
    own, drawn = np.split(np.stack(along), [len(asked)], axis=1)
    for (names, (rows, _)), column in zip(asked.items(), own.T, strict=True):
        parts = np.array(gap)[rows], column[rows], drawn[rows], items["_cluster"][rows]
        try:
            cells[names] = carried(*parts, config.seed)
        except EmptyError as why:
            cells[names] = {"why": str(why)}
    return cells


def print_matrices(console: Console, table: pd.DataFrame) -> None:
    """A table a measure: value, interval and control of each cell, and why others are empty."""
    names = table["fitted_on"].unique()
    table = table.assign(text=[in_words(each) for each in table.to_dict("records")])
    for measure, part in table.groupby("measure", sort=False):
        if part["value"].notna().any():
            square = part.pivot(index="fitted_on", columns="tested_on", values="text")
            columns = ["fitted on", *(f"tested on {name}" for name in names)]
            title = f"{PANELS[str(measure)][0]} (97.5 % of its control)"
            print_table(console, title, columns, square.loc[names, names].itertuples(name=None))
        empty = part.loc[part["why"] != "", "why"].value_counts(sort=False)
        lines = [f"{measure}: {n} of {len(part)} empty: {why}" for why, n in empty.items()]
        print_lines(console, lines)


def in_words(cell: Mapping[Any, Any]) -> str:
    if cell["why"]:
        return "-"
    ends = " [{low:.2f}, {high:.2f}]" if cell["clusters"] > 1 else ""
    text = f"{{value:.2f}}{ends} ({{control_high:.2f}})".format(**cell)
    notes = [str(cell["note"]).partition(":")[0], "" if cell["above"] else "not specific"]
    return "\n".join([text, *filter(None, notes)])
