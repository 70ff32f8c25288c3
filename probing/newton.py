"""Newton's method for one problem: for weak penalties and labels that a head tells apart."""

from __future__ import annotations

import torch
from torch import Tensor

from probing.descent import Result
from probing.goal import Block, Goal
from probing.line import search
from probing.logistic import Losses

# Without a smaller bound in so many iterations, rounding is all that is left.
PATIENCE = 6


def newton(block: Block, losses: Losses, rows: Tensor, tolerance: float, max_iter: int) -> Result:
    """Minimise one problem of one head (B = P = 1) from ``rows [1, 1, K * E]``; as ``descend``.

    Ends where it got nearest by its bound, at the latest when that does not shrink any more.
    """
    goal = Goal(block.radius, block.x.shape[-1], losses, tolerance)
    taken = 0
    logits = block.logits(rows)
    probabilities = losses.probabilities(logits)
    ridge = rows * goal.penalised
    raw = block.gather(losses.residuals(probabilities)).add_(ridge)
    first, best, since = raw, None, 0
    still = torch.zeros(1, 1, dtype=torch.bool, device=rows.device)
    while True:
        bound, done = goal.reached(raw, ridge, probabilities)
        if best is None or bool(done | (bound < best.bound)):
            iterations = torch.full_like(done, taken, dtype=torch.int64)
            best, since = Result(rows, bound, done, iterations, first), 0
        if taken >= max_iter or since >= PATIENCE or bool(done):
            return best
        curved = hessian(block.x[0], losses, probabilities) + goal.penalised.diag()
        step = -torch.cholesky_solve(raw[0].mT, torch.linalg.cholesky_ex(curved).L).mT[None]
        found = search(
            losses,
            logits,
            probabilities,
            block.logits(step),
            torch.linalg.vecdot(raw, step),
            torch.linalg.vecdot(ridge, step),
            torch.linalg.vecdot(step * goal.penalised, step),
            still,
        )
        logits, probabilities = found.logits, found.probabilities
        rows = torch.addcmul(rows, found.far[..., None], step)
        ridge = rows * goal.penalised
        raw = block.gather(found.residuals).add_(ridge)
        taken, since = taken + 1, since + 1


def hessian(x: Tensor, losses: Losses, probabilities: Tensor) -> Tensor:
    """Second derivatives ``[K * E, K * E]`` of one problem's loss, without its penalty.

    Of more than two classes the direction that shifts all intercepts alike is given the curvature
    of the samples' weight: along it the loss is flat, and gradients are zero.

    Args:
        x: ``[N, E]``.
        losses: of one problem.
        probabilities: ``[1, 1, K * N]``.
    """
    each = losses.by_class(probabilities)[0, 0]
    weights = losses.sample_weights[0]
    outputs, width = losses.outputs, x.shape[-1]
    if outputs == 1:
        return x.T @ (x * (weights * each[0] * (1 - each[0]))[:, None])
    out = x.new_empty(outputs, width, outputs, width)
    for k in range(outputs):
        for j in range(k + 1):
            curved = weights * each[k] * ((1.0 if j == k else 0.0) - each[j])
            out[k, :, j] = out[j, :, k] = x.T @ (x * curved[:, None])
    out[:, -1, :, -1] += losses.mass / outputs
    return out.view(outputs * width, outputs * width)
