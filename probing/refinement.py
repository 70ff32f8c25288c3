"""From float32 to float64: gradients in float64, corrections in float32.

Near the optimum the Hessian hardly changes, so one linear system a round gives nearly all that is
missing; its right side has to be exact, its solution does not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from probing.descent import FEW, Result
from probing.exact import Exact
from probing.goal import Block, Goal
from probing.logistic import Losses

ROUNDS = 4
# A correction is at most so many conjugate gradients, and as exact as float32 allows.
STEPS, FINEST = 16, 1e-4
# A problem whose bound has not shrunk to this part in a round is left to others.
SHRUNK = 0.3


def refine(
    coarse: Block,
    exact: Exact,
    losses: Losses,
    rows: Tensor,
    tolerance: float,
    rounds: int = ROUNDS,
) -> Result:
    """Newton's method from near the optimum, all problems of a block together.

    Args:
        coarse: samples in float32, and
        exact: the same in float64.
        losses: in float64.
        rows: ``[B, P, K * E]`` in float64, near the optimum.
        tolerance: as of ``descend``.
        rounds: limit of the corrections.

    Returns:
        Each problem where its bound was smallest.
    """
    goal = Goal(exact.radius, coarse.x.shape[-1], losses, tolerance)
    single = losses.to(torch.float32)
    penalised = goal.penalised.float()
    best = None
    for taken in range(rounds + 1):
        probabilities, gradient = exact.gradient(rows, losses)
        ridge = rows * goal.penalised
        gradient.add_(ridge)
        bound, done = goal.reached(gradient, ridge, probabilities)
        iterations = torch.full_like(bound, taken, dtype=torch.int64)
        if best is None:
            best = Result(rows, bound, done, iterations, gradient)
            open_ = ~done
        else:
            better = (bound < best.bound) & ~best.done
            open_ = ~(done | best.done) & (bound < SHRUNK * best.bound)
            best = Result(
                torch.where(better[..., None], rows, best.rows),
                torch.where(better, bound, best.bound),
                best.done | (better & done),
                torch.where(better, iterations, best.iterations),
                best.first,
            )
        if taken == rounds or not bool(open_.any()):
            return best
        missing = goal.signal(gradient)
        size = torch.linalg.vector_norm(missing, dim=-1).clamp(min=torch.finfo(bound.dtype).tiny)
        wanted = (0.3 * goal.target(ridge) / bound).clamp(min=FINEST).float()
        step = solve(
            coarse,
            single,
            penalised,
            probabilities.float(),
            (missing / size[..., None]).float(),
            torch.where(open_, wanted, torch.inf),
        )
        rows = torch.addcmul(rows, size[..., None], step.double(), value=-1)
    raise AssertionError("unreachable")


def solve(
    block: Block,
    losses: Losses,
    penalised: Tensor,
    probabilities: Tensor,
    right: Tensor,
    wanted: Tensor,
) -> Tensor:
    """The Hessian's inverse times ``right [B, P, K * E]``, by preconditioned conjugate gradients.

    Args:
        block: samples.
        losses: in the same precision.
        penalised: ``[K * E]`` one where the penalty acts.
        probabilities: ``[B, P, K * N]`` where the Hessian is taken.
        right: of norm 1.
        wanted: ``[B, P]`` norm that the residual is to have.
    """
    residual, solution = right, torch.zeros_like(right)
    downhill = block.precondition(residual)
    step, length = downhill, torch.linalg.vecdot(residual, downhill)
    heads = torch.arange(len(right), device=right.device)
    whole = solution
    for taken in range(STEPS):
        bent = block.gather(losses.bend(probabilities, block.logits(step)))
        bent = torch.addcmul(bent, penalised, step)
        far = (length / torch.linalg.vecdot(step, bent)).nan_to_num_(0.0, 0.0, 0.0)[..., None]
        solution = torch.addcmul(solution, far, step)
        residual = torch.addcmul(residual, far, bent, value=-1)
        small = torch.linalg.vector_norm(residual, dim=-1) <= wanted
        open_ = ~small.all(-1)
        ended = taken == STEPS - 1 or not bool(open_.any())
        few = int(open_.sum()) <= FEW * len(heads)
        if ended or few:
            whole = whole.index_copy(0, heads, solution)
        if ended:
            break
        if few:
            heads, block = heads[open_], block.take(open_)
            probabilities, wanted = probabilities[open_], wanted[open_]
            residual, solution = residual[open_], solution[open_]
            step, length = step[open_], length[open_]
        downhill = block.precondition(residual)
        before, length = length, torch.linalg.vecdot(residual, downhill)
        keep = (length / before).nan_to_num_(0.0, 0.0, 0.0)[..., None]
        step = torch.addcmul(downhill, keep, step)
    return whole
