"""The last digits, in float64: by refinement, and by slower ways where that is not enough."""

from __future__ import annotations

from torch import Tensor

from probing.descent import Result, descend
from probing.exact import Exact
from probing.goal import Block
from probing.logistic import Losses
from probing.newton import newton
from probing.problems import Settings
from probing.refinement import ROUNDS, refine

# So many conjugate gradients in float64, then Newton's method problem by problem.
PLAIN = 50


def finish(coarse: Block, exact: Exact, losses: Losses, rows: Tensor, settings: Settings) -> Result:
    """Bring ``rows [B, P, K * E]`` to the optimum.

    Args:
        coarse: samples in float32, and
        exact: the same in float64.
        losses: in float64.
        rows: where to begin, in float64.
        settings: how exact, and the limit of iterations.
    """
    left, tolerance = settings.max_iter, settings.tolerance
    found = refine(coarse, exact, losses, rows, tolerance, min(left, ROUNDS))
    left -= ROUNDS
    if left <= 0 or bool(found.done.all()):
        return found
    for heads, fine in exact.blocks((~found.done).any(-1).nonzero()[:, 0]):
        slow = descend(fine, losses, found.rows[heads], tolerance, min(left, PLAIN))
        if left > PLAIN:
            _one_by_one(fine, losses, slow, tolerance, left - PLAIN)
        iterations = found.iterations[heads] + slow.iterations
        found = found.replaced(heads, slow.rows, slow.bound, slow.done, iterations)
    return found


def _one_by_one(fine: Block, losses: Losses, found: Result, tolerance: float, left: int) -> None:
    """Finish the problems that are still open, in place."""
    for head, problem in (~found.done).nonzero().tolist():
        one = newton(
            fine.take(slice(head, head + 1)),
            losses.take(slice(problem, problem + 1)),
            found.rows[head, problem][None, None],
            tolerance,
            left,
        )
        found.rows[head, problem] = one.rows[0, 0]
        found.bound[head, problem] = one.bound[0, 0]
        found.done[head, problem] = one.done[0, 0]
        found.iterations[head, problem] += one.iterations[0, 0]
