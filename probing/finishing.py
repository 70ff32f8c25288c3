"""The last digits, in float64: by refinement, and by slower ways where that is not enough."""

from __future__ import annotations

from torch import Tensor

from probing.descent import Result, descend
from probing.goal import Block
from probing.logistic import Losses
from probing.newton import newton
from probing.problems import Settings
from probing.refinement import ROUNDS, refine

# So many conjugate gradients in float64, then Newton's method problem by problem.
PLAIN = 50


def finish(coarse: Block, fine: Block, losses: Losses, rows: Tensor, settings: Settings) -> Result:
    """Bring ``rows [B, P, K * E]`` to the optimum.

    Args:
        coarse: samples in float32, and
        fine: the same in float64.
        losses: in float64.
        rows: where to begin, in float64.
        settings: how exact, and the limit of iterations.
    """
    left, tolerance = settings.max_iter, settings.tolerance
    found = refine(coarse, fine, losses, rows, tolerance, min(left, ROUNDS))
    left -= ROUNDS
    if left <= 0 or bool(found.done.all()):
        return found
    before = found.iterations
    found = descend(fine, losses, found.rows, tolerance, min(left, PLAIN))
    found.iterations.add_(before)
    left -= PLAIN
    for head, problem in (~found.done).nonzero().tolist() if left > 0 else []:
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
    return found
