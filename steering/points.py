"""The points of a sweep, how good they are, the choice among them, and the controls of one.

A random control changes one thing, the directions or the heads. Its i-th head's step is as long as
that of the vector's i-th head, so that none is weak by its length alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import pandas as pd

from sally_anne.core.bootstrap import Estimate
from sally_anne.core.errors import SteeringError
from sally_anne.core.run import Head
from sally_anne.figures.sweep import ROUNDING, amount
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel
from sally_anne.steering.config import CONTROLS, RankBy, SweepConfig

# Models of fewer heads are moved by a fraction of what larger ones take, and break sooner.
SMALL = 256
# The most heads that are steered by default: this part of all.
MOST_STEERED = 8
FINE = (-10.0, -5.0, -2.0, -1.0, -0.5, 0.0, 0.5, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0)
WIDE = (-50.0, -20.0, -10.0, -5.0, -2.0, 0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0)
# The largest p at which a vector beats its controls.
LEVEL = 0.05


@dataclass(frozen=True, order=True)
class SweepPoint:
    """One setting; ``k`` 0 is the baseline, ``seed`` that of random directions and heads."""

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
        return f"{self.direction}{by}{seed}/K{self.k}/alpha{repr(self.alpha).removesuffix('.0')}"


BASELINE = SweepPoint("none", 0, 0.0)
# The vector of each point; None for the baseline.
Vectors = Mapping[SweepPoint, SteeringVector | None]


def default_grid(n_layers: int, n_heads: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Every K and alpha that fit a model; K as in the GridToM paper, halved where heads are few.

    Of more than an eighth of all heads, random ones hit those that matter, and are no control.
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


def with_grid(config: SweepConfig, loaded: LoadedModel) -> tuple[SweepConfig, list[SweepPoint]]:
    """The options with every K and alpha, which may follow from the model, and the points."""
    geometry = find_geometry(loaded.skeleton)
    ks, alphas = default_grid(geometry.n_layers, geometry.n_heads)
    ks, alphas = config.k or ks, config.alpha or alphas
    if max(ks) > geometry.n_layers * geometry.n_heads:
        raise SteeringError(f"--K {max(ks)}: {config.model} has {geometry}")
    directions = (config.direction, *config.also, *(CONTROLS if config.controls else ()))
    grid = grid_of(ks, alphas, directions, config.seed, config.rank_by)
    return replace(config, k=ks, alpha=alphas), grid


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
        heads = tuple(vector.heads[i] for i in rest)
        rests[point] = replace(
            vector, heads=heads, theta=vector.theta[rest], sigma=vector.sigma[rest]
        )
    return rests


class Measure:
    """How good a setting is, by a table of answers: a row an item and point.

    Tables have ``point`` (its name), ``split`` and ``item_id``; those of a ``task`` hold what
    steering should leave alone, and have its name for their one measure.
    """

    main: str  # the measure that settings are ranked by
    columns: tuple[str, ...]  # those that are printed
    noun: str  # what is counted
    unit: str  # of the columns

    def of(self, rows: pd.DataFrame, task: str | None = None) -> dict[str, Estimate]:
        """Every measure of one point's rows."""
        raise NotImplementedError

    def change(
        self, before: pd.DataFrame, after: pd.DataFrame, task: str | None = None, draws: int = 2000
    ) -> dict[str, Estimate]:
        """By how much the rows of one point are better than those of another, item by item."""
        raise NotImplementedError

    def worse(self, before: pd.DataFrame, after: pd.DataFrame, draws: int = 2000) -> Any:
        """An estimate of the share made worse; None where nothing is right or wrong."""

    def guessed(self, table: pd.DataFrame, task: str) -> dict[str, float] | None:
        """The baseline on a task, if it but guesses there, so that the task puts no condition."""
        return None

    def mute(self, table: pd.DataFrame) -> str:
        """Why no answer of a table says anything; empty if some do."""
        return ""

    def gain(
        self, table: pd.DataFrame, point: SweepPoint, task: str | None = None, draws: int = 2000
    ) -> Estimate:
        """Change from the baseline to a point, which may be asked fewer items."""
        return self.change(*ends(table, point), task, draws)[task or self.main]

    def rank(self, table: pd.DataFrame, candidates: Iterable[SweepPoint]) -> list[SweepPoint]:
        """Steered points, best first, refusing test items; ties: smaller alpha, fewer heads."""
        _without_test(table)
        value = {p: self.of(rows_of(table, p))[self.main].value for p in candidates if p.k}
        return sorted(value, key=lambda p: (-value[p], abs(p.alpha), p.k, p.name))

    def nothing_to_choose(self, table: pd.DataFrame, best: SweepPoint) -> str:
        """Why no point of a validation table is worth choosing; empty if the best one gains."""
        if why := self.mute(table):
            return why
        if (gain := self.gain(table, best, draws=1)).value > ROUNDING:
            return ""
        least = amount({"value": gain.value}, self.main)
        return f"no point is above the baseline in {self.main}: {best.name}, the best, by {least}"

    def choose(
        self,
        ranked: Sequence[SweepPoint],
        answers: Callable[[SweepPoint, Any], pd.DataFrame],
        max_drops: Mapping[Any, float],
    ) -> SweepPoint:
        """The best point that leaves all tasks alone, else the one nearest to it.

        Points are tried from the best on: ``answers`` gives those of one task on validation items,
        at the baseline and at a point. A drop by ``max_drops`` passes.
        """
        beyond: list[float] = []
        for point in ranked:
            excess = []
            for task, most in max_drops.items():
                table = answers(point, task)
                _without_test(table)
                if self.guessed(table, task) is None:
                    excess.append(-self.gain(table, point, task).value - most)
            beyond.append(max(excess, default=0.0))
            if beyond[-1] <= ROUNDING:
                return point
        return ranked[beyond.index(min(beyond))]

    def control_rank(
        self, table: pd.DataFrame, chosen: SweepPoint, randoms: Sequence[SweepPoint]
    ) -> dict[str, Any]:
        """Rank of a vector among its random controls, by gain, on the items that these were asked.

        ``kinds`` has each kind's gains; of ``rank`` 1 is best, and ties count against the vector;
        ``p`` is the larger of the two empirical p-values (random directions, random heads);
        ``worse``: as ``kinds``, of the share made worse.
        """
        # The first ones may be asked more, with all other settings.
        table = table[table["item_id"].isin(rows_of(table, randoms[-1])["item_id"])]
        gains = {point: self.gain(table, point, draws=1).value for point in (chosen, *randoms)}
        as_good = [p.direction for p in randoms if gains[p] >= gains[chosen] - ROUNDING]
        kinds, rank = by_kind(randoms, [gains[point] for point in randoms]), 1 + len(as_good)
        p = max((1 + as_good.count(kind)) / (1 + own["n"]) for kind, own in kinds.items())
        worse = [self.worse(*ends(table, point), 1) for point in randoms]
        found = {
            "gain": gains[chosen],
            "controls": {point.name: gains[point] for point in randoms},
            "kinds": kinds,
            "rank": rank,
            "of": 1 + len(randoms),
            "p": p,
            "beats_controls": p <= LEVEL and rank == 1 and gains[chosen] > ROUNDING,
            self.noun: int(table["story"].nunique()),
        }
        if None not in worse:
            found["worse"] = by_kind(randoms, [one.value for one in worse])
        return found

    def left_out(
        self, table: pd.DataFrame, chosen: SweepPoint, rests: Vectors, heads: Sequence[Head]
    ) -> list[dict[str, Any]]:
        """What is lost without each head, paired: ``layer, head, value, low, high, n``."""
        pairs = zip(heads, (ends(table, point, chosen) for point in rests), strict=False)
        return [
            {"layer": layer, "head": head, **asdict(self.change(rest, whole)[self.main])}
            for (layer, head), (whole, rest) in pairs
        ]


def rows_of(table: pd.DataFrame, point: SweepPoint) -> pd.DataFrame:
    """The rows of one point."""
    return table[table["point"] == point.name]


def ends(
    table: pd.DataFrame, point: SweepPoint, start: SweepPoint = BASELINE
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of the same items at a start and at a point, which may be asked fewer."""
    before, after = rows_of(table, start), rows_of(table, point)
    return before[before["item_id"].isin(after["item_id"])], after


def _without_test(table: pd.DataFrame) -> None:
    if (table["split"] == "test").any():
        raise SteeringError("K and alpha must not be chosen on what tests them")


def by_kind(randoms: Sequence[SweepPoint], numbers: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Mean (``value``), ``low``est, ``high``est and number ``n`` of each kind of random control."""
    kinds = pd.Series(numbers, [point.direction for point in randoms], dtype=float).groupby(level=0)
    return kinds.agg(value="mean", low="min", high="max", n="count").to_dict("index")
