"""The points of a sweep: which heads, direction, strength; answered at once, and chosen.

Steering changes only the last prompt token onwards (unless positions are ``all``), so each prompt
is prefilled once and every point is one row of the decode batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from itertools import product
from math import comb
from typing import Any

import pandas as pd
import torch

from sally_anne.core.bootstrap import Estimate
from sally_anne.core.errors import SteeringError
from sally_anne.core.folder import Journal
from sally_anne.data.items import Question
from sally_anne.harness.evaluate import prompt_of
from sally_anne.harness.model import cut_prompts, prefill_prompts
from sally_anne.harness.score import (
    Metrics,
    Unit,
    accuracy,
    belief_metrics,
    paired_accuracy,
    score,
    scores,
)
from sally_anne.hooks.batch_size import AUTO, BatchSize, in_batches, rows_that_fit, within_memory
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.positions import ALL
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.decoding import ROOM, decode, extend, greedy, row_bytes_by_device
from sally_anne.models.loading import LoadedModel
from sally_anne.steering.config import ControlTask, RankBy
from sally_anne.steering.fit import CONTROLS

# Models of fewer heads are moved by a fraction of what larger ones take, and break sooner.
SMALL = 256
# The most heads that are steered by default: this part of all.
MOST_STEERED = 8
FINE = (-10.0, -5.0, -2.0, -1.0, -0.5, 0.0, 0.5, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0)
WIDE = (-50.0, -20.0, -10.0, -5.0, -2.0, 0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0)


@dataclass(frozen=True, order=True)
class SweepPoint:
    """One setting; ``k`` 0 is the model as it is.

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
        kind = (
            self.direction
            if self.rank_by == "probe_accuracy"
            else f"{self.direction}/{self.rank_by}"
        )
        seed = f"/seed{self.seed}" if self.direction in CONTROLS else ""
        return f"{kind}{seed}/K{self.k}/alpha{self.strength}"

    @property
    def strength(self) -> str:
        """Alpha in words."""
        return repr(self.alpha).removesuffix(".0")


BASELINE = SweepPoint("none", 0, 0.0)
# The vector of each point; None for the baseline.
Vectors = Mapping[SweepPoint, SteeringVector | None]


def default_ks(n_layers: int, n_heads: int) -> tuple[int, ...]:
    """Those of the GridToM paper: half as many heads as layers, as many, twice as many.

    They are halved while the largest is more than an eighth of all heads: of so many, heads drawn
    at random hit those that matter, and are no control.
    """
    most = 2 * n_layers
    while most > max(1, n_layers * n_heads // MOST_STEERED):
        most //= 2
    return tuple(sorted({max(1, most // 4), max(1, most // 2), most}))


def default_alphas(n_layers: int, n_heads: int) -> tuple[float, ...]:
    """Strengths that fit a model; both ranges have as many."""
    return FINE if n_layers * n_heads < SMALL else WIDE


def grid_of(
    ks: Sequence[int],
    alphas: Sequence[float],
    directions: Sequence[str],
    seed: int = 0,
    rank_by: Sequence[RankBy] = ("probe_accuracy",),
) -> list[SweepPoint]:
    """All combinations, and the baseline once, first."""
    grid = {
        SweepPoint(direction, k, float(alpha), seed if direction in CONTROLS else 0, by): None
        for by in rank_by
        for direction in directions
        for k in ks
        for alpha in alphas
        if alpha
    }
    return [BASELINE, *grid]


def vectors_of(
    points: Sequence[SweepPoint], fit: Callable[[str, int, int, RankBy], SteeringVector]
) -> dict[SweepPoint, SteeringVector | None]:
    """The vector of each point; ``fit`` makes one of direction, K, seed and heads, asked once."""
    keys = {c: (c.direction, c.k, c.seed, c.rank_by) for c in points if c.k}
    made = {key: fit(*key) for key in dict.fromkeys(keys.values())}
    return {c: made[keys[c]].with_alpha(c.alpha) if c.k else None for c in points}


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

    The journal's processes share the batches of items: ``batch_size`` prompts are read together,
    and ``decode_batch_size`` answers (prompts x points) are given together, auto as many as fit.
    ``on_progress`` gets the number of answers done and in all; of several processes, each
    counts what there was before and its own share.

    Returns:
        Those of :func:`sally_anne.harness.results.score`, ``point, direction, k, alpha, seed,
        rank_by``.

    Raises:
        SteeringError: vectors differ in site or positions, or are for all positions.
        OutOfMemoryError: so many answers or prompts do not fit.
    """
    site, positions = _common(vectors)
    for vector in vectors.values():
        if vector is not None:
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
    deltas = {point: vector.delta() for point, vector in vectors.items() if vector is not None}
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
                asked = [(point, n) for point, n in part if (point, batch[n].item_id) in missing]
                if not asked:
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
                    for point, n in asked
                )
                done += len(asked)
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
    """Batches of items whose clips are alike: initial beliefs are asked with fewer frames or more.

    Clips of one batch are one tensor in LLaVA-NeXT-Video.
    """
    groups: dict[tuple[int, int, int] | None, list[Question]] = {}
    for item in items:
        groups.setdefault(item.shape(True) if item.shape else None, []).append(item)
    return [list(batch) for group in groups.values() for batch in in_batches(group, batch_size)]


def chance(items: Sequence[Question]) -> float:
    """Share of items that guessing gets right: one option, or as many as are to be named."""
    return sum(1 / comb(len(i.options), len(i.key)) for i in items) / len(items)


def _common(vectors: Vectors) -> tuple[str, str]:
    found = {(v.site, v.positions) for v in vectors.values() if v is not None}
    if len(found) > 1:
        raise SteeringError(f"the vectors of a sweep differ in site or positions: {sorted(found)}")
    site, positions = found.pop() if found else ("head_out", "last_prompt+generated")
    if positions == ALL:
        raise SteeringError(
            "positions 'all' change the whole prompt, which a sweep reads only once; use "
            "'last_prompt+generated', or evaluate such vectors one by one (--steer)"
        )
    return site, positions


def point_metrics(
    table: pd.DataFrame, parser: str = "robust", unit: Unit | None = None
) -> dict[str, Metrics]:
    """Belief metrics of every point, by the point's name, in the table's order."""
    return {
        str(name): belief_metrics(scores(rows, parser), unit=unit)
        for name, rows in table.groupby("point", sort=False)
    }


def rank_points(
    table: pd.DataFrame, candidates: Iterable[SweepPoint], parser: str = "robust"
) -> list[SweepPoint]:
    """Steered points by their Both, refusing test stories; ties: the smaller alpha, fewer heads."""
    _without_test(table)
    metrics = point_metrics(table, parser)
    ranked = sorted(
        (-metrics[point.name].Both.value, abs(point.alpha), point.k, point.name, point)
        for point in candidates
        if point.k
    )
    if not ranked:
        raise SteeringError("there is no steered point to choose from")
    return [row[-1] for row in ranked]


def choose(
    ranked: Sequence[SweepPoint],
    answers: Callable[[SweepPoint, ControlTask], pd.DataFrame],
    max_drops: Mapping[ControlTask, float],
    parser: str = "robust",
    chances: Mapping[ControlTask, float] | None = None,
) -> SweepPoint:
    """The best point that leaves all control tasks alone, else the one nearest to it.

    Points are tried from the best on, so that few are asked these questions: ``answers`` gives
    those of one kind on validation stories, at the baseline and at a point. A drop of accuracy by
    ``max_drops``, a share, passes. Kinds that the baseline can only guess, with these ``chances``
    to be right, put no condition on the choice.
    """
    beyond: list[float] = []
    for point in ranked:
        excess = []
        for task, most in max_drops.items():
            table = answers(point, task)
            _without_test(table)
            if chances and only_guessed(table, chances[task], parser):
                continue
            excess.append(-task_gain(table, point, parser).value - most)
        beyond.append(max(excess, default=0.0))
        # Shares of few questions are not exact in binary.
        if beyond[-1] <= 1e-9:
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
