"""Conjugate gradients for a block of heads and label vectors, each problem with its own step.

Non-linear conjugate gradients (Polak and Ribiere, never below zero) with a preconditioner shared by
all label vectors of a head. An iteration is two products with the samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from probing.goal import Block, Goal
from probing.line import search
from probing.logistic import Losses

# In float32 a problem is handed on when its gradient has not halved in so many iterations.
PATIENCE = 8
# When so small a part of the heads is left, they go on by themselves, which costs a copy of theirs.
FEW = 0.5


@dataclass(frozen=True)
class Result:
    """Where B x P problems stand.

    Attributes:
        rows: ``[B, P, K * E]`` weights, with the intercept of the centred samples behind.
        bound: ``[B, P]`` on ``||w - w*||``; in float32 not exactly.
        done: ``[B, P]`` the bound is what was asked for.
        iterations: ``[B, P]``.
        first: ``[B, P, K * E]`` gradient at the start.
    """

    rows: Tensor
    bound: Tensor
    done: Tensor
    iterations: Tensor
    first: Tensor

    def replaced(
        self, heads: Tensor, rows: Tensor, bound: Tensor, done: Tensor, iterations: Tensor
    ) -> Result:
        """With other figures for some heads."""
        return Result(
            self.rows.index_copy(0, heads, rows),
            self.bound.index_copy(0, heads, bound),
            self.done.index_copy(0, heads, done),
            self.iterations.index_copy(0, heads, iterations),
            self.first,
        )


def descend(block: Block, losses: Losses, rows: Tensor, tolerance: float, max_iter: int) -> Result:
    """Minimise ``0.5 ||w||^2 + losses`` from ``rows`` in the precision of the block.

    A problem is done when its error bound is at most ``tolerance ||w||`` (and scikit-learn's own
    tolerance holds), or as small as the precision can tell. It is not moved any more then. In
    float32 it is also left when it gets no further, and heads without open problems are left out.
    """
    goal = Goal(block.radius, block.x.shape[-1], losses, tolerance)
    iterations = torch.zeros(rows.shape[:2], dtype=torch.int64, device=rows.device)
    strict, taken = 1.0, 0
    ridge = rows * goal.penalised
    if bool(ridge.any()):
        logits = block.logits(rows)
    else:
        # Intercepts alone: the same logits for all samples.
        logits = rows.unflatten(-1, (losses.outputs, -1))[..., -1].repeat_interleave(
            block.x.shape[1], dim=-1
        )
    probabilities = losses.probabilities(logits)
    raw = block.gather(losses.residuals(probabilities)).add_(ridge)
    first, mark = raw, goal.size(raw)
    stuck = torch.zeros_like(mark, dtype=torch.bool)
    step = last = last_length = rest = torch.empty(0)
    heads = torch.arange(len(rows), device=rows.device)
    whole = Result(rows, mark, stuck, iterations, first)
    while True:
        size = goal.size(raw)
        near = (size <= strict * goal.target(ridge)) | stuck
        if raw.dtype == torch.float32:
            ended = taken >= max_iter or bool(near.all())
            open_ = ~near.all(-1)
            few = taken > 0 and int(open_.sum()) <= FEW * len(heads)
            if ended or few:
                whole = whole.replaced(heads, rows, size, near, iterations)
            if ended:
                return whole
            if few:
                heads, block = heads[open_], block.take(open_)
                goal = Goal(block.radius, block.x.shape[-1], losses, tolerance)
                rows, ridge, raw, iterations = (v[open_] for v in (rows, ridge, raw, iterations))
                logits, probabilities = logits[open_], probabilities[open_]
                size, near, mark, stuck = (v[open_] for v in (size, near, mark, stuck))
                step, last, last_length, rest = (v[open_] for v in (step, last, last_length, rest))
        elif taken >= max_iter or bool(near.all()):
            bound, done = goal.reached(raw, ridge, probabilities)
            if taken >= max_iter or bool((done | stuck).all()):
                return Result(rows, bound, done, iterations, first)
            strict, near = 0.3 * strict, done | stuck
        if raw.dtype == torch.float32 and taken % PATIENCE == PATIENCE - 1:
            stuck, mark = stuck | (size > 0.5 * mark), size
        gradient = goal.signal(raw)
        downhill = block.precondition(gradient)
        length = torch.linalg.vecdot(gradient, downhill)
        if taken == 0:
            step, fall = -downhill, -length
        else:
            # A solved problem has nothing left to divide by, and nothing to keep.
            keep = (length - torch.linalg.vecdot(last, downhill)) / last_length
            keep = keep.nan_to_num_(0.0, 0.0, 0.0).clamp_(min=0.0)
            # Uphill, or hardly down: begin anew.
            keep = torch.where(keep * rest > 0.9 * length, 0.0, keep)
            fall = torch.addcmul(-length, keep, rest)
            step = torch.addcmul(-downhill, keep[..., None], step)
        last, last_length = gradient, length
        found = search(
            losses,
            logits,
            probabilities,
            block.logits(step),
            fall,
            torch.linalg.vecdot(ridge, step),
            torch.linalg.vecdot(step * goal.penalised, step),
            near,
        )
        logits, probabilities, rest = found.logits, found.probabilities, found.slope
        rows = torch.addcmul(rows, found.far[..., None], step)
        ridge = rows * goal.penalised
        raw = block.gather(found.residuals).add_(ridge)
        iterations += ~near
        taken += 1
