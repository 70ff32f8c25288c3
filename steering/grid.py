"""The cells of a sweep: which heads, which direction, how strong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hooks.vector import SteeringVector
from sally_anne.core.errors import SteeringError

CONTROLS = ("random", "random_heads")
# Models of fewer heads are moved by a fraction of what larger ones take, and break sooner.
SMALL = 256
# The most heads that are steered by default: this part of all.
SHARE = 8
FINE = (-10.0, -5.0, -2.0, -1.0, -0.5, 0.0, 0.5, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0)
WIDE = (-50.0, -20.0, -10.0, -5.0, -2.0, 0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0)


@dataclass(frozen=True, order=True)
class Cell:
    """One setting. ``alpha`` 0 is the model as it is: then ``k`` is 0 and there is no direction.

    Attributes:
        direction: see :data:`steering.fit.DIRECTIONS`.
        k: number of heads.
        alpha: strength.
        seed: of random directions and heads.
    """

    direction: str
    k: int
    alpha: float
    seed: int = 0

    @property
    def name(self) -> str:
        """Unique, and the same in every run."""
        if not self.k:
            return "baseline"
        seed = f"/seed{self.seed}" if self.direction in CONTROLS else ""
        alpha = repr(self.alpha).removesuffix(".0")
        return f"{self.direction}{seed}/K{self.k}/alpha{alpha}"


BASELINE = Cell("none", 0, 0.0)


def default_ks(n_layers: int, n_heads: int) -> tuple[int, ...]:
    """Numbers of heads that fit a model: half as many as it has layers, as many, twice as many.

    These are those of the GridToM paper, 14, 28, 56 for Qwen2-VL-7B and 16, 32, 64 for
    LLaVA-NeXT-Video-7B. They are halved while the largest is more than an eighth of all heads: of
    so many, heads drawn at random hit those that matter, and are no control.
    """
    most = 2 * n_layers
    while most > max(1, n_layers * n_heads // SHARE):
        most //= 2
    return tuple(sorted({max(1, most // 4), max(1, most // 2), most}))


def default_alphas(n_layers: int, n_heads: int) -> tuple[float, ...]:
    """Strengths that fit a model; both ranges have as many."""
    return FINE if n_layers * n_heads < SMALL else WIDE


def cells(
    ks: Sequence[int], alphas: Sequence[float], directions: Sequence[str], seed: int = 0
) -> list[Cell]:
    """All combinations, and the baseline once, first.

    Raises:
        SteeringError: an empty list, a K below 1, or an alpha that is not finite.
    """
    for option, values in (("--K", ks), ("--alpha", alphas), ("--direction", directions)):
        if not values:
            raise SteeringError(f"{option} is empty: there is nothing to sweep")
    if bad := [k for k in ks if k < 1]:
        raise SteeringError(f"--K must be at least 1, got {bad[0]}")
    if wrong := [alpha for alpha in alphas if not math.isfinite(alpha)]:
        raise SteeringError(f"--alpha must be finite, got {wrong[0]}")
    grid = {
        Cell(direction, k, float(alpha), seed if direction in CONTROLS else 0): None
        for direction in directions
        for k in ks
        for alpha in alphas
        if alpha
    }
    return [BASELINE, *grid]


def vectors_of(
    wanted: Sequence[Cell], fit: Callable[[str, int, int], SteeringVector]
) -> dict[Cell, SteeringVector | None]:
    """The vector of each cell.

    Args:
        wanted: the cells.
        fit: makes a vector from direction, K and seed.
    """
    made: dict[tuple[str, int, int], SteeringVector] = {}
    found: dict[Cell, SteeringVector | None] = {}
    for cell in wanted:
        if not cell.k:
            found[cell] = None
            continue
        key = (cell.direction, cell.k, cell.seed)
        if key not in made:
            made[key] = fit(*key)
        found[cell] = made[key].with_alpha(cell.alpha)
    return found
