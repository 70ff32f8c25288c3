"""The cells of a sweep: which heads, which direction, how strong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steering.errors import SteeringError
from steering.vector import SteeringVector

CONTROLS = ("random", "random_heads")


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
