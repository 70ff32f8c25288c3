"""The points of a sweep: heads, direction and strength; answered together, chosen, and controlled.

Steering changes only the last prompt token onwards (unless positions are ``all``), so each prompt
is prefilled once and every point is one row of the decode batch. A random control changes one
thing, the directions or the heads. Its i-th head's step is as long as that of the vector's i-th
head, so that none is weak by its length alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import comb
from typing import Any

import numpy as np
import pandas as pd
import torch

from sally_anne.core.bootstrap import Estimate, draw_groups, estimate_mean
from sally_anne.core.errors import SteeringError
from sally_anne.core.folder import Journal
from sally_anne.core.processes import AUTO, BatchSize, in_batches, rows_that_fit, within_memory
from sally_anne.core.run import Head
from sally_anne.data.items import Question
from sally_anne.data.pairs import in_turn
from sally_anne.harness.evaluate import prompt_of
from sally_anne.harness.model import cut_prompts, prefill_prompts
from sally_anne.harness.score import (
    Metrics,
    Unit,
    accuracy,
    belief_metrics,
    over,
    paired_accuracy,
    paired_difference,
    score,
    scores,
)
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import HEAD_OUT
from sally_anne.hooks.positions import ALL, LAST_PROMPT_GENERATED
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.decoding import ROOM, decode, extend, greedy
from sally_anne.models.estimate import row_bytes_by_device
from sally_anne.models.loading import LoadedModel
from sally_anne.steering.config import CONTROLS, ControlTask, RankBy

# Models of fewer heads are moved by a fraction of what larger ones take, and break sooner.
SMALL = 256
# The most heads that are steered by default: this part of all.
MOST_STEERED = 8
FINE = (-10.0, -5.0, -2.0, -1.0, -0.5, 0.0, 0.5, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0)
WIDE = (-50.0, -20.0, -10.0, -5.0, -2.0, 0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0)
# The largest p at which a vector beats its controls.
LEVEL = 0.05
# Shares of few questions are not exact in binary.
ROUNDING = 1e-9


@dataclass(frozen=True, order=True)
class SweepPoint:
    """One setting; ``k`` 0 is the baseline.

    ``seed`` is of random directions and heads; ``rank_by`` by what the steered ones are ranked.
    """

    direction: str
    k: int
    alpha: float
    seed: int = 0
    rank_by: RankBy = "probe_accuracy"

    @property
    def name(self) -> str:
        """Unique, and the same in every run."""
        if not self.k:
            return "baseline"
        by = "" if self.rank_by == "probe_accuracy" else f"/{self.rank_by}"
        seed = f"/seed{self.seed}" if self.direction in CONTROLS else ""
        return f"{self.direction}{by}{seed}/K{self.k}/alpha{self.strength}"

    @property
    def strength(self) -> str:
        """Alpha as text."""
        return repr(self.alpha).removesuffix(".0")


BASELINE = SweepPoint("none", 0, 0.0)
# The vector of each point; None for the baseline.
Vectors = Mapping[SweepPoint, SteeringVector | None]


def default_grid(n_layers: int, n_heads: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Every K and alpha that fit a model.

    K are those of the GridToM paper: half as many heads as layers, as many, twice as many. They are
    halved while the largest is more than an eighth of all heads: of so many, heads drawn at random
    hit those that matter, and are no control.
    """
    most, heads = 2 * n_layers, n_layers * n_heads
    while most > max(1, heads // MOST_STEERED):
        most //= 2
    ks = {max(1, most // 4), max(1, most // 2), most}
    return tuple(sorted(ks)), FINE if heads < SMALL else WIDE


def grid_of(
    ks: Sequence[int],
    alphas: Sequence[float],
    directions: Sequence[str],
    seed: int = 0,
    rank_by: Sequence[RankBy] = ("probe_accuracy",),
) -> list[SweepPoint]:
    """All combinations, and the baseline once, first."""
    points = (
        SweepPoint(direction, k, float(alpha), seed if direction in CONTROLS else 0, by)
        for by, direction, k, alpha in product(rank_by, directions, ks, alphas)
        if alpha
    )
    return [BASELINE, *dict.fromkeys(points)]


def vectors_of(
    points: Sequence[SweepPoint], fit: Callable[[str, int, int, RankBy], SteeringVector]
) -> dict[SweepPoint, SteeringVector | None]:
    """The vector of each point, as ``fit`` makes it of direction, K, seed and ranking."""
    return {
        p: fit(p.direction, p.k, p.seed, p.rank_by).with_alpha(p.alpha) if p.k else None
        for p in points
    }


@within_memory(
    "use a smaller --decode-batch-size, then a smaller --batch-size, then smaller --max-pixels"
)
def answer_points(
    loaded: LoadedModel,
    items: Sequence[Question],
    vectors: Vectors,
    journal: Journal,
    batch_size: int,
    decode_batch_size: BatchSize,
    max_new_tokens: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Every item in every point; what the open journal holds is not run again.

    The journal's processes share the batches of items: ``batch_size`` prompts are prefilled
    together, and ``decode_batch_size`` answers (prompts x points) decoded together, auto as many as
    fit. ``on_progress`` gets the number of answers done and in all, of this process.

    Returns:
        The columns of :func:`sally_anne.harness.score.score`, ``point``, and those of the point.

    Raises:
        SteeringError: vectors differ in site or positions, or are for all positions.
        OutOfMemoryError: so many answers or prompts do not fit.
    """
    steered = {point: vector for point, vector in vectors.items() if vector is not None}
    places = {(v.site, v.positions) for v in steered.values()}
    site, positions = next(iter(places), (HEAD_OUT, LAST_PROMPT_GENERATED))
    if len(places) > 1 or positions == ALL:
        raise SteeringError(
            "vectors of one sweep have one site, and positions other than 'all', as prompts are "
            f"prefilled once; got {sorted(places)}"
        )
    for vector in steered.values():
        vector.check(loaded.skeleton)
    keys = {(point, i.item_id): f"{point.name}|{i.item_id}" for point in vectors for i in items}
    missing = {pair for pair, key in keys.items() if key not in journal.answers}

    def lacking(points: Iterable[SweepPoint], batch: Iterable[Question]) -> int:
        return len(missing.intersection(product(points, (item.item_id for item in batch))))

    left = [point for point in vectors if lacking([point], items)]
    batches = [batch for batch in _of_one_shape(items, batch_size) if lacking(left, batch)]
    todo = journal.processes.share(batches)
    done = len(keys) - len(missing)
    total = done + sum(lacking(left, batch) for batch in todo)
    on_progress(done, total)
    width = min(batch_size, len(items))
    rows = 1 if decode_batch_size == AUTO else decode_batch_size
    if decode_batch_size == AUTO and left:
        # The rows whose caches fit, by the item with the longest text.
        longest = prompt_of(max(items, key=lambda item: len(item.text)))
        inputs, (ending,) = cut_prompts(loaded, [longest])
        tokens = inputs["input_ids"].shape[1] + len(ending) + max(max_new_tokens, ROOM)
        held = row_bytes_by_device(loaded.model, tokens)
        rows = rows_that_fit(held, width, journal.processes)
    deltas = {point: vector.delta() for point, vector in steered.items()}
    zero = torch.zeros_like(next(iter(deltas.values()), torch.zeros(())))
    for batch in todo:
        # Points are put together without regard to how many items a batch has. Whatever part of a
        # run was answered before, what is left is then put together as it would have been.
        parts = [
            part
            for group in in_batches(left, max(1, rows // width))
            for part in in_batches(list(product(group, range(len(batch)))), rows)
        ]
        with torch.inference_mode():
            state, endings = prefill_prompts(loaded, [prompt_of(item) for item in batch])
            for part in parts:
                new = [(point, n) for point, n in part if (point, batch[n].item_id) in missing]
                if not new:
                    continue
                numbers = [number for _, number in part]
                edited: AbstractContextManager[Any] = nullcontext()
                if any(point in deltas for point, _ in part):
                    delta = torch.stack([deltas.get(point, zero) for point, _ in part])
                    edited = Edit(loaded.model, delta, site, positions)
                with edited:
                    after = extend(loaded, state, numbers, [endings[number] for number in numbers])
                    tokens = greedy(loaded, after, max_new_tokens)
                replies = dict(zip(part, decode(loaded, tokens), strict=True))
                journal.add(
                    {"item_id": keys[point, batch[n].item_id], "reply": replies[point, n]}
                    for point, n in new
                )
                done += len(new)
                on_progress(done, total)
    journal.gather(keys.values())
    tables = [
        score(items, [journal.answers[keys[point, item.item_id]] for item in items]).assign(
            point=point.name, **asdict(point)
        )
        for point in vectors
    ]
    return pd.concat(tables, ignore_index=True)


def _of_one_shape(items: Sequence[Question], batch_size: int) -> list[list[Question]]:
    """Batches of items whose clips have one shape: one tensor in LLaVA-NeXT-Video."""
    groups: dict[tuple[int, int, int] | None, list[Question]] = {}
    for item in items:
        groups.setdefault(item.shape(True) if item.shape else None, []).append(item)
    return [list(batch) for group in groups.values() for batch in in_batches(group, batch_size)]


def chance(items: Sequence[Question]) -> float:
    """Share of items that guessing gets right: one option, or as many as are to be named."""
    return sum(1 / comb(len(i.options), len(i.key)) for i in items) / len(items)


def point_metrics(
    table: pd.DataFrame, parser: str = "robust", unit: Unit | None = None
) -> dict[str, Metrics]:
    """Belief metrics of every point, by the point's name, in the table's order."""
    return {
        str(name): belief_metrics(scores(rows, parser), unit=unit)
        for name, rows in table.groupby("point", sort=False)
    }


# Share of invalid replies above which figures say nothing of beliefs.
MOSTLY = 0.9


def rank_points(
    table: pd.DataFrame, candidates: Iterable[SweepPoint], parser: str = "robust"
) -> list[SweepPoint]:
    """Steered points by their Both, refusing test stories; ties: the smaller alpha, fewer heads."""
    _without_test(table)
    metrics = point_metrics(table, parser)
    steered = [point for point in candidates if point.k]
    if not steered:
        raise SteeringError("there is no steered point to choose from")
    return sorted(steered, key=lambda p: (-metrics[p.name].Both.value, abs(p.alpha), p.k, p.name))


def nothing_to_choose(table: pd.DataFrame, ranked: Sequence[SweepPoint], parser: str) -> str:
    """Why no point of a validation table is worth choosing; empty if the best one gains.

    Either hardly a reply names an answer, at the baseline or steered, or none is better.
    """
    metrics = point_metrics(table, parser)
    before, best = metrics[BASELINE.name], metrics[ranked[0].name]
    if min(one.invalid.value for one in metrics.values()) > MOSTLY:
        replies = "; ".join(repr(reply[:60]) for reply in table["reply"].drop_duplicates()[:3])
        return f"nearly no reply names an answer, such as {replies}"
    if best.Both.value <= before.Both.value:
        return (
            f"no point does better than the baseline: Both is {100 * before.Both.value:.1f} %, "
            f"{100 * best.Both.value:.1f} % at the best ({ranked[0].name})"
        )
    return ""


def choose(
    ranked: Sequence[SweepPoint],
    answers: Callable[[SweepPoint, ControlTask], pd.DataFrame],
    max_drops: Mapping[ControlTask, float],
    parser: str = "robust",
    chances: Mapping[ControlTask, float] | None = None,
) -> SweepPoint:
    """The best point that leaves all control tasks alone, else the one nearest to it.

    Points are tried from the best on, so that few are asked: ``answers`` gives those of one kind on
    validation stories, at the baseline and at a point. A drop by ``max_drops``, a share, passes.
    Kinds that the baseline only guesses, as of ``chances``, put no condition on the choice.
    """
    beyond: list[float] = []
    for point in ranked:
        excess = []
        for task, most in max_drops.items():
            table = answers(point, task)
            _without_test(table)
            if not (chances and only_guessed(table, chances[task], parser)):
                excess.append(-task_gain(table, point, parser).value - most)
        beyond.append(max(excess, default=0.0))
        if beyond[-1] <= ROUNDING:
            return point
    return ranked[beyond.index(min(beyond))]


def task_gain(table: pd.DataFrame, point: SweepPoint, parser: str) -> Estimate:
    """Change of accuracy on control questions of one kind, at a point."""
    return paired_accuracy(*paired_scores(table, point, parser))["overall"]


def only_guessed(table: pd.DataFrame, chance: float, parser: str) -> Estimate | None:
    """The baseline's accuracy on control questions, if its interval reaches below chance.

    An answer that is guessed cannot get worse, so it does not show what steering costs.
    """
    right = accuracy(scores(table[table["point"] == BASELINE.name], parser)).overall
    return right if right.low < chance else None


def paired_scores(
    table: pd.DataFrame, point: SweepPoint, parser: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores of the same items at the baseline and at a point, which may be asked fewer."""
    after = table[table["point"] == point.name]
    before = table[(table["point"] == BASELINE.name) & table["item_id"].isin(after["item_id"])]
    return scores(before, parser), scores(after, parser)


def _without_test(table: pd.DataFrame) -> None:
    if (table["split"] == "test").any():
        raise SteeringError("K and alpha must not be chosen on test stories")


def random_controls(chosen: SweepPoint, count: int, seed: int) -> list[SweepPoint]:
    """Controls of a point: ``count`` of each kind, with seeds from ``seed`` on."""
    seeds = [(seed + number) % 2**32 for number in range(count)]
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

    ``gain`` of the vector and of each of ``controls`` are shares of pairs of TB and FB above the
    baseline, ``kinds`` of each kind's gains; of ``rank`` 1 is best, and ties count against the
    vector; ``p`` is the larger of the two empirical p-values (random directions, random heads);
    ``beats_controls``: rank 1, p at most 0.05 and a gain above the baseline; ``worse``: as
    ``kinds``, of the share of stories made worse.
    """
    common = table[table["point"] == randoms[0].name]["item_id"]
    table = table[table["item_id"].isin(common)]
    both = {
        point: belief_metrics(scores(table[table["point"] == point.name], parser), bootstrap=1).Both
        for point in (BASELINE, chosen, *randoms)
    }
    gains = {point: each.value - both[BASELINE].value for point, each in both.items()}
    as_good = [p.direction for p in randoms if gains[p] >= gains[chosen] - ROUNDING]
    kinds, rank = by_kind(randoms, [gains[point] for point in randoms]), 1 + len(as_good)
    p = max((1 + as_good.count(kind)) / (1 + found["n"]) for kind, found in kinds.items())
    return {
        "gain": gains[chosen],
        "controls": {point.name: gains[point] for point in randoms},
        "kinds": kinds,
        "rank": rank,
        "of": 1 + len(randoms),
        "p": p,
        "beats_controls": p <= LEVEL and rank == 1 and gains[chosen] > ROUNDING,
        "stories": int(table["story"].nunique()),
        "worse": by_kind(
            randoms,
            [made_worse(*paired_scores(table, point, parser), 1).value for point in randoms],
        ),
    }


def by_kind(randoms: Sequence[SweepPoint], numbers: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Mean (``value``), ``low``est, ``high``est and number ``n`` of each kind of random control."""
    values: dict[str, list[float]] = {}
    for point, number in zip(randoms, numbers, strict=True):
        values.setdefault(point.direction, []).append(number)
    return {
        kind: {"value": float(np.mean(own)), "low": min(own), "high": max(own), "n": len(own)}
        for kind, own in values.items()
    }


def made_worse(before: pd.DataFrame, after: pd.DataFrame, bootstrap: int = 2000) -> Estimate:
    """Share of stories of which an answer was right before and is wrong after.

    Both are scores of the same items; the interval is over maps, or stories where maps are few.
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
