"""How far a probe's weights can be from the best ones, from gradients alone.

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

from probing.logistic import Losses

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


def certify(x: Tensor, losses: Losses, coef: Tensor, intercept: Tensor) -> Tensor:
    """Bound on the distance of given weights from the best ones, from scratch in float64.

    Args:
        x: samples ``[B, N, D]`` as they are.
        losses: of the P problems.
        coef: ``[B, P, K, D]``.
        intercept: ``[B, P, K]``.

    Returns:
        ``[B, P]``.
    """
    x = x.double()
    centre = x.mean(1, keepdim=True)
    x = x - centre
    coef = coef.double()
    shift = intercept.double() + (coef * centre[:, None]).sum(-1)
    logits = torch.einsum("bpkd,bnd->bpkn", coef, x) + shift[..., None]
    losses = losses.to(torch.float64)
    probabilities = losses.probabilities(logits.flatten(-2))
    residuals = losses.by_class(losses.residuals(probabilities))
    gradient = torch.einsum("bpkn,bnd->bpkd", residuals, x) + coef
    radius = torch.linalg.vector_norm(x, dim=-1).amax(-1)
    return error_bound(gradient, residuals.sum(-1), probabilities, losses, radius)
