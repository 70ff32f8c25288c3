"""When a probe is solved."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from probing.certificate import error_bound
from probing.logistic import Losses

# scikit-learn's tolerance: the largest derivative of the mean loss. Never stop above it.
SKLEARN_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Block:
    """Centred samples of some heads, with a last column of ones for the intercept: E = D + 1.

    Attributes:
        x: ``[B, N, E]``.
        inverse: ``[B, E, E]`` preconditioner, None for none.
        radius: ``[B]`` norm of the longest sample without its one.
    """

    x: Tensor
    inverse: Tensor | None
    radius: Tensor

    def logits(self, rows: Tensor) -> Tensor:
        """Weights ``[B, P, K * E]`` on the samples: ``[B, P, K * N]``."""
        return self._times(rows, self.x.mT)

    def gather(self, rows: Tensor) -> Tensor:
        """Residuals ``[B, P, K * N]`` summed over the samples: ``[B, P, K * E]``."""
        return self._times(rows, self.x)

    def precondition(self, rows: Tensor) -> Tensor:
        """``[B, P, K * E]`` times the preconditioner."""
        return rows if self.inverse is None else self._times(rows, self.inverse)

    def take(self, heads: slice | Tensor) -> Block:
        """Some of the heads."""
        inverse = None if self.inverse is None else self.inverse[heads]
        return Block(self.x[heads], inverse, self.radius[heads])

    def _times(self, rows: Tensor, matrix: Tensor) -> Tensor:
        heads, count, _ = rows.shape
        # Few label vectors are rows of a product, which is much faster than columns of one.
        return torch.bmm(rows.view(heads, -1, matrix.shape[1]), matrix).view(heads, count, -1)


def rounding(radius: Tensor, losses: Losses) -> Tensor:
    """``[B, P]`` what rounding leaves of gradients, in the precision of ``radius [B]``."""
    return 4 * torch.finfo(radius.dtype).eps * radius[:, None] * losses.mass


class Goal:
    """What B x P problems have to reach: quick to ask in every iteration, exact when it matters."""

    def __init__(self, radius: Tensor, width: int, losses: Losses, tolerance: float) -> None:
        """For samples no longer than ``radius [B]``, in its precision and of ``width`` E."""
        self.radius, self.losses, self.tolerance = radius, losses, tolerance
        mass, eps = losses.mass, torch.finfo(radius.dtype).eps
        each = torch.ones(losses.outputs, width, dtype=radius.dtype, device=radius.device)
        each[:, -1] = 0.0
        self.penalised = each.flatten()
        free = 1.0 - self.penalised
        self.highest = SKLEARN_TOLERANCE * mass
        self.lowest = rounding(radius, losses)
        self.flat = (tolerance * losses.rarest).maximum(4 * eps * mass)
        # Smaller slopes of intercepts are rounding, and lead astray where samples are tiny.
        self.noise = free * (eps * mass)[:, None]
        # They count as much as in the bound, by and large.
        reach = radius[:, None, None] * (2.0 * losses.outputs) ** 0.5
        self.scale = self.penalised + free * reach

    def target(self, ridge: Tensor) -> Tensor:
        """``[B, P]`` the error allowed to weights ``ridge [B, P, K * E]``."""
        allowed = self.tolerance * torch.linalg.vector_norm(ridge, dim=-1)
        return allowed.minimum(self.highest).maximum(self.lowest)

    def size(self, gradient: Tensor) -> Tensor:
        """``[B, P]`` what the bound is, about."""
        return torch.linalg.vector_norm(gradient * self.scale, dim=-1)

    def signal(self, gradient: Tensor) -> Tensor:
        """The gradient without what is rounding."""
        return torch.where(gradient.abs() > self.noise, gradient, 0.0)

    def reached(
        self, gradient: Tensor, ridge: Tensor, probabilities: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The bound and whether it is small enough, ``[B, P]`` both."""
        each = gradient.unflatten(-1, (self.losses.outputs, -1))
        slope = each[..., -1]
        bound = error_bound(each[..., :-1], slope, probabilities, self.losses, self.radius)
        settled = slope.abs().amax(-1) <= self.flat
        return bound, (bound <= self.target(ridge)) & settled & bound.isfinite()
