"""How far a probe's weights can be from the best ones, from gradients alone; and when to stop.

With F(w) = min over b of f(w, b), F is 1-strongly convex (its penalty is ``0.5 ||w||^2``), so
``||w - w*|| <= ||grad F(w)||``. The gradient of f at (w, b) differs from it by what the intercept
still lacks. With two classes all probabilities move the same way when b does, so that difference
is at most ``R |g_b|``, R the norm of the longest centred sample and g_b the derivative by b. With
more, it is at most ``R sqrt(m / 2) sqrt(g_b' H^-1 g_b)``, m = C sum s and H the curvature in b,
along the way to the best b; twice that if the way is so short that H hardly changes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sally_anne.probing.logistic.losses import Losses

# scikit-learn's tolerance: the largest derivative of the mean loss. Never stop above it.
SKLEARN_TOLERANCE = 1e-4
# A step of the intercepts below this changes H by less than the factor 4 allowed for.
SHORT = 0.1


def error_bound(
    gradient: Tensor, slope: Tensor, probabilities: Tensor, losses: Losses, radius: Tensor
) -> Tensor:
    """Bound on ``||w - w*||``, ``[B, P]``; infinite if none can be given.

    Args:
        gradient: ``[B, P, K, D]`` by the weights, penalty included, of centred samples.
        slope: ``[B, P, K]`` by the intercepts.
        probabilities: ``[B, P, K * N]``.
        losses: of the P problems.
        radius: ``[B]`` norm of the longest centred sample.
    """
    length = torch.linalg.vector_norm(gradient, dim=(-2, -1))
    if losses.outputs == 1:
        bound = length + radius[:, None] * slope[..., 0].abs()
        return torch.where(bound.isfinite(), bound, torch.inf)
    each = losses.by_class(probabilities)
    weighted = each * losses.by_class(losses.weights)
    flat = torch.diag_embed(weighted.sum(-1)) - weighted @ each.mT
    # One logit can be added to all classes: along it H is zero, and the slopes' sum as well.
    mass = losses.mass
    step, info = torch.linalg.solve_ex(flat + mass[:, None, None], slope[..., None])
    step = step[..., 0]
    lack = (slope * step).sum(-1).clamp(min=0.0)
    bound = length + 2 * radius[:, None] * (0.5 * mass * lack).sqrt()
    sure = (step.abs().amax(-1) <= SHORT) & (info == 0) & bound.isfinite()
    return torch.where(sure, bound, torch.inf)


class StoppingRule:
    """What B x P problems have to reach, in the precision of ``radius [B]``.

    Attributes:
        penalised: ``[K * E]``, ones where the penalty acts and zeros at the intercepts.
        rounding: ``[B, P]`` what rounding leaves of gradients.
    """

    def __init__(self, radius: Tensor, width: int, losses: Losses, tolerance: float) -> None:
        """For samples no longer than ``radius [B]`` and, with a column of ones, of ``width`` E."""
        self.radius, self.losses, self.tolerance = radius, losses, tolerance
        mass, eps = losses.mass, torch.finfo(radius.dtype).eps
        each = torch.ones(losses.outputs, width, dtype=radius.dtype, device=radius.device)
        each[:, -1] = 0.0
        self.penalised = each.flatten()
        self.rounding = 4 * eps * radius[:, None] * mass
        self._flat = (tolerance * losses.class_masses.amin(-1)).maximum(4 * eps * mass)

    def __call__(
        self, heads: Tensor, rows: Tensor, gradient: Tensor, probabilities: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The bound for some heads' rows, what is allowed, and if it is reached: ``[M, P]``."""
        each = gradient.unflatten(-1, (self.losses.outputs, -1))
        slope = each[..., -1]
        bound = error_bound(each[..., :-1], slope, probabilities, self.losses, self.radius[heads])
        allowed = self.tolerance * torch.linalg.vector_norm(rows * self.penalised, dim=-1)
        allowed = allowed.minimum(SKLEARN_TOLERANCE * self.losses.mass)
        allowed = allowed.maximum(self.rounding[heads])
        return bound, allowed, (bound <= allowed) & (slope.abs().amax(-1) <= self._flat)
