"""Conjugate gradients for many heads and label vectors at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sally_anne.probing.logistic.certificate import StoppingRule
from sally_anne.probing.logistic.losses import Losses

# When so small a part of the heads is left, they go on by themselves, which costs a copy of theirs.
FEW = 0.5


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
    enough: StoppingRule | Tensor,
    max_iter: int,
) -> Tensor:
    """Minimise the objective from zero weights, or its quadratic model from anywhere.

    Polak and Ribiere's rule, never below zero; of a quadratic it is the linear method. A step goes
    where slope and curvature along it promise the minimum. Heads without open problems are left
    out.

    Args:
        block: samples.
        losses: in the same precision.
        penalised: as of the rule.
        gradient: ``[B, P, K * E]`` at the start, penalty included.
        probabilities: ``[B, P, K * N]`` at the start.
        logits: the same; None for the quadratic model.
        enough: when a problem is solved, or the norm ``[B, P]`` that its gradient is to have.
        max_iter: limit of the iterations.

    Returns:
        The move ``[B, P, K * E]``.
    """
    heads = torch.arange(len(gradient), device=gradient.device)
    rows = whole = step = last = torch.zeros_like(gradient)
    last_length = torch.ones_like(gradient[..., 0])
    for taken in range(max_iter + 1):
        if isinstance(enough, StoppingRule):
            done = enough(heads, rows, gradient, probabilities)[2]
        else:
            done = torch.linalg.vector_norm(gradient, dim=-1) <= enough[heads]
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
    return whole
