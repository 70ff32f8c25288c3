"""Many heads and label vectors at once: conjugate gradients, and Newton's method on top of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from probing.logistic.certificate import StoppingRule
from probing.logistic.losses import Losses

# When so small a part of the heads is left, they go on by themselves, which costs a copy of theirs.
FEW = 0.5
# A step has overshot where the slope along it is upwards, and more than this part of what it was.
FLATTENED = 0.5
# Newton's method ends when no gradient has shrunk to this part in so many steps.
SHRUNK, PATIENCE = 0.9, 16


@dataclass(frozen=True)
class Block:
    """Centred samples of some heads, with a last column of ones for the intercept: E = D + 1.

    Attributes:
        x: ``[B, N, E]``.
        inverse: ``[B, E, E]`` preconditioner, None for none.
    """

    x: Tensor
    inverse: Tensor | None = None

    def logits(self, rows: Tensor) -> Tensor:
        """Weights ``[B, P, K * E]`` on the samples: ``[B, P, K * N]``."""
        return self._times(rows, self.x.mT)

    def gather(self, rows: Tensor) -> Tensor:
        """Residuals ``[B, P, K * N]`` summed over the samples: ``[B, P, K * E]``."""
        return self._times(rows, self.x)

    def precondition(self, rows: Tensor) -> Tensor:
        """``[B, P, K * E]`` times the preconditioner."""
        return rows if self.inverse is None else self._times(rows, self.inverse)

    def derivatives(self, losses: Losses, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities at rows ``[B, P, K * E]``, and the losses' gradient."""
        probabilities = losses.probabilities(self.logits(rows))
        return probabilities, self.gather(losses.residuals(probabilities))

    def hessians(self, losses: Losses, probabilities: Tensor) -> Tensor:
        """``[P, K * E, K * E]`` of the losses of one head (B = 1).

        Of more than two classes the direction that shifts all intercepts alike is given the
        curvature of the samples' weight: along it the loss is flat, and gradients are zero.
        """
        x, each, outputs = self.x[0], losses.by_class(probabilities)[0], losses.outputs
        out = x.new_empty(len(each), outputs, x.shape[1], outputs, x.shape[1])
        for k in range(outputs):
            for j in range(k + 1):
                strength = losses.sample_weights * each[:, k] * (float(j == k) - each[:, j])
                out[:, k, :, j] = out[:, j, :, k] = (x.mT * strength[:, None]) @ x
        if outputs > 1:
            out[:, :, -1, :, -1] += (losses.mass / outputs)[:, None, None]
        return out.flatten(3).flatten(1, 2)

    def take(self, heads: Tensor) -> Block:
        """Some of the heads."""
        return Block(self.x[heads], None if self.inverse is None else self.inverse[heads])

    def _times(self, rows: Tensor, matrix: Tensor) -> Tensor:
        heads, count, _ = rows.shape
        # Few label vectors are rows of a product, which is much faster than columns of one.
        return torch.bmm(rows.view(heads, -1, matrix.shape[1]), matrix).view(heads, count, -1)


def conjugate_gradients(
    block: Block,
    losses: Losses,
    penalised: Tensor,
    gradient: Tensor,
    probabilities: Tensor,
    logits: Tensor | None,
    solved: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    max_iter: int,
) -> tuple[Tensor, Tensor]:
    """Minimise the objective from zero weights, or its quadratic model from anywhere.

    Polak and Ribiere's rule, never below zero; of a quadratic it is the linear method. A step goes
    where slope and curvature along it promise the minimum. An iteration is two products with the
    samples. Heads without open problems are left out.

    Args:
        block: samples.
        losses: in the same precision.
        penalised: ``[K * E]`` ones where the penalty acts.
        gradient: ``[B, P, K * E]`` at the start, penalty included.
        probabilities: ``[B, P, K * N]`` at the start.
        logits: the same; None for the quadratic model.
        solved: of heads, their moves, gradients and probabilities: which problems are to stay.
        max_iter: limit of the iterations.

    Returns:
        The move ``[B, P, K * E]`` and iterations ``[B, P]``.
    """
    heads = torch.arange(len(gradient), device=gradient.device)
    rows = whole = step = last = torch.zeros_like(gradient)
    last_length = torch.ones_like(gradient[..., 0])
    iterations = torch.zeros_like(last_length, dtype=torch.int64)
    for taken in range(max_iter + 1):
        done = solved(heads, rows, gradient, probabilities)
        left = ~done.all(-1)
        ended = taken == max_iter or not bool(left.any())
        few = int(left.sum()) <= FEW * len(heads)
        if ended or few:
            whole = whole.index_copy(0, heads, rows)
        if ended:
            break
        if few:
            heads, block = heads[left], block.take(left)
            rows, gradient, probabilities = rows[left], gradient[left], probabilities[left]
            step, last, last_length, done = step[left], last[left], last_length[left], done[left]
            logits = None if logits is None else logits[left]
        iterations[heads] += ~done
        downhill = block.precondition(gradient)
        length = torch.linalg.vecdot(gradient, downhill)
        # A solved problem has nothing left to divide by, and nothing to keep.
        keep = (length - torch.linalg.vecdot(last, downhill)) / last_length
        keep = keep.nan_to_num_(0.0, 0.0, 0.0).clamp_(min=0.0)
        # Uphill, or hardly down: begin anew.
        uphill = keep * torch.linalg.vecdot(gradient, step) > 0.9 * length
        step = torch.addcmul(-downhill, torch.where(uphill, 0.0, keep)[..., None], step)
        last, last_length = gradient, length
        along, ridge = block.logits(step), penalised * step
        change = losses.curvature(probabilities, along)
        curvature = torch.linalg.vecdot(change, along) + torch.linalg.vecdot(ridge, step)
        far = -torch.linalg.vecdot(gradient, step) / curvature
        far = torch.where(done, 0.0, far).nan_to_num_(0.0, 0.0, 0.0)[..., None]
        rows = torch.addcmul(rows, far, step)
        if logits is None:
            gradient = torch.addcmul(gradient, far, block.gather(change).add_(ridge))
        else:
            logits = torch.addcmul(logits, far, along)
            probabilities = losses.probabilities(logits)
            gradient = block.gather(losses.residuals(probabilities))
            gradient = torch.addcmul(gradient, penalised, rows)
    return whole, iterations


# Of B x P problems, each at its smallest bound: rows, bound, whether that was asked for, steps.
Solution = tuple[Tensor, Tensor, Tensor, Tensor]


def newton(
    start: Tensor,
    rule: StoppingRule,
    max_iter: int,
    derivatives: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    direction: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
) -> Solution:
    """Newton's method in float64, heads without open problems left out.

    A step that overshot is bisected until the slope along it is less than half of what it was.

    Args:
        start: ``[B, P, K * E]`` weights, with the intercept of the centred samples behind.
        rule: when a problem is done.
        max_iter: limit of the steps.
        derivatives: probabilities of some heads' rows, and the losses' gradient.
        direction: of some heads, their probabilities, gradients and the part of these that may be
            left: minus the Hessian's inverse times the gradient.
    """
    rows, heads, since = start, torch.arange(len(start), device=start.device), 0
    best, smallest = rows.clone(), rows.new_full(rows.shape[:2], torch.inf)
    solved, steps = smallest < 0, torch.zeros_like(smallest, dtype=torch.int64)
    # Of the last step: how far it was gone, and too far; its slope; the gradients' smallest norm.
    step, steep = torch.zeros_like(rows), smallest.clone()
    low, far, high, least = torch.zeros_like(steep), torch.ones_like(steep), steep, steep
    for taken in range(max_iter + 1):
        probabilities, gradient = derivatives(heads, rows)
        gradient = torch.addcmul(gradient, rows, rule.penalised)
        bound, allowed, done = rule(heads, rows, gradient, probabilities)
        before, open_ = smallest[heads], ~solved[heads]
        better = open_ & (bound <= before)
        best[heads] = torch.where(better[..., None], rows, best[heads])
        smallest[heads] = torch.where(better, bound, before)
        steps[heads] = torch.where(better, taken, steps[heads])
        solved[heads] |= better & done
        left = (open_ := ~solved[heads]).any(-1)
        size = torch.linalg.vector_norm(gradient, dim=-1)
        since = 0 if bool((size < SHRUNK * least).any()) else since + 1
        if taken == max_iter or since == PATIENCE or not bool(left.any()):
            break
        wanted = torch.where(open_, 0.3 * allowed / bound, torch.inf)
        new = direction(heads, probabilities, gradient, wanted)
        slope = torch.linalg.vecdot(gradient, step)
        over = slope > FLATTENED * steep
        cut = over | ((slope < -FLATTENED * steep) & high.isfinite())
        low, high = torch.where(over, low, far), torch.where(over, far, high)
        middle = 0.5 * (low + high)
        rows = rows + torch.where(cut[..., None], (middle - far)[..., None] * step, new)
        step = torch.where(cut[..., None], step, new)
        steep = torch.where(cut, steep, -torch.linalg.vecdot(gradient, new))
        low, far = torch.where(cut, low, 0.0), torch.where(cut, middle, 1.0)
        high, least = torch.where(cut, high, torch.inf), least.minimum(size)
        state = (heads, rows, step, steep, low, far, high, least)
        heads, rows, step, steep, low, far, high, least = (v[left] for v in state)
    return best, smallest, solved, steps


def exact_newton(
    block: Block, losses: Losses, start: Tensor, rule: StoppingRule, max_iter: int
) -> Solution:
    """The same for one head (B = 1), each step by a factor of the problem's Hessian."""

    def direction(_: Tensor, probabilities: Tensor, gradient: Tensor, __: Tensor) -> Tensor:
        curved = block.hessians(losses, probabilities) + rule.penalised.diag()
        factor = torch.linalg.cholesky_ex(curved).L
        return -torch.cholesky_solve(gradient[0][..., None], factor)[None, ..., 0]

    return newton(start, rule, max_iter, lambda _, at: block.derivatives(losses, at), direction)
