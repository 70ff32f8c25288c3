"""A block of heads made ready once, and fitted for any label vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from probing.conditioning import inverse_bound, rotate
from probing.descent import descend
from probing.exact import Exact
from probing.finishing import finish
from probing.goal import Block, rounding
from probing.logistic import Losses
from probing.problems import Problems, Settings
from sally_anne.core.errors import ProbingError

# Relative error down to which float32 serves alone, and from which float64 takes over otherwise.
FLOAT32, COARSE = 1e-4, 1e-3
# Squares of longer samples would not fit into float32.
LONGEST = 1e15
# With fewer label vectors than this, and below a curvature of that, a preconditioner does not pay.
MANY_PROBLEMS, MILD = 8, 30.0


@dataclass(frozen=True)
class Fits:
    """Weights of G heads for P label vectors, in float64.

    Attributes:
        coef: ``[G, P, K, D]``; K = 1 for two classes, else the number of classes.
        intercept: ``[G, P, K]``; of more than two classes they sum to zero.
        bound: ``[G, P]``, an upper bound on the Euclidean distance of ``coef`` from the optimum.
        converged: ``[G, P]``, the bound is within the tolerance asked for, or the head is quiet.
        quiet: ``[G, P]``, heads that were left at zero weights.
        iterations: ``[G, P]``.
    """

    coef: Tensor
    intercept: Tensor
    bound: Tensor
    converged: Tensor
    quiet: Tensor
    iterations: Tensor


@dataclass(frozen=True)
class Memory:
    """Room for samples and their column of ones: ``[B, N, E]`` in float32, fewer heads in float64.

    Taken once: to fault in new memory for every block costs as much as to fit it.
    """

    coarse: Tensor
    fine: Tensor

    @classmethod
    def of(cls, heads: int, exact_heads: int, n: int, width: int, place: torch.device) -> Memory:
        """For blocks of at most so many heads."""
        return cls(
            torch.ones(heads, n, width, dtype=torch.float32, device=place),
            torch.ones(min(heads, exact_heads), n, width, dtype=torch.float64, device=place),
        )


@dataclass(frozen=True)
class Samples:
    """A block of heads, ready for any label vectors.

    Attributes:
        x: ``[N, B, D]`` as they are.
        centre: ``[B, D]`` what is taken off them.
        rotated: ``[B, N, N]`` in float64 and centred, if they are fewer than dimensions, and
        back: ``[B, D, N]`` how to turn weights back.
        coarse: centred, in float32.
        memory: where they are made.
    """

    x: Tensor
    centre: Tensor
    rotated: Tensor | None
    back: Tensor | None
    coarse: Block
    memory: Memory

    @classmethod
    def of(cls, problems: Problems, heads: slice, losses: Losses, memory: Memory) -> Samples:
        """Centre the block's samples, rotate them if they are few, and bound their curvature."""
        x = problems.x[:, heads].to(memory.fine.device)
        if not x.dtype.is_floating_point or x.dtype.itemsize < 4:
            x = x.float()
        coarse = memory.coarse[: x.shape[1]]
        rough = coarse[..., :-1]
        rotated = back = None
        if x.shape[-1] <= x.shape[0] and x.dtype == torch.float32:
            rough.copy_(x.transpose(0, 1))
            # In float32, so that both precisions have the very same centre.
            centre = rough.mean(1)
            rough.sub_(centre[:, None])
        else:
            centre = x.mean(0)
            exact = x.transpose(0, 1).double() - centre.double()[:, None]
            if x.shape[-1] > x.shape[0]:
                exact, back = rotate(exact)
                rotated = exact
            rough.copy_(exact)
        lengths = torch.linalg.vector_norm(rough, dim=-1)
        # Rounded up, as it is part of a bound.
        radius = lengths.amax(-1) * (1 + 1e-5)
        if bool((bad := ~(radius < LONGEST)).any()):
            _refuse(x, bad, lambda head: problems.name(heads.start + head))
        strength = losses.flatness * losses.sample_weights.mean(0)
        many = len(losses.targets) * losses.outputs >= MANY_PROBLEMS
        inverse = None
        if many or bool(((lengths.square() * strength).sum(-1) > MILD).any()):
            inverse = inverse_bound(coarse, strength)
        return cls(x, centre.double(), rotated, back, Block(coarse, inverse, radius), memory)

    def fit(self, losses: Losses, settings: Settings) -> Fits:
        """Near the optimum in float32, to it in float64."""
        tolerance = settings.tolerance
        heads, _, width = self.coarse.x.shape
        start = losses.start
        rows = start.new_zeros(heads, len(start), losses.outputs, width)
        rows[..., -1] = start
        rows = rows.flatten(2)
        enough = 0.3 * tolerance if tolerance >= FLOAT32 else COARSE
        single = losses.to(torch.float32)
        coarse = descend(self.coarse, single, rows.float(), enough, settings.max_iter)
        near = coarse.rows.double()
        near = torch.where(near.isfinite().all(-1, keepdim=True), near, rows)
        exact = finish(self.coarse, self._exact(), losses, near, settings)
        coef, shift = self._apart(exact.rows, losses)
        pull = self._apart(coarse.first.double(), losses)[0]
        quiet = pull.abs().amax((-2, -1)) <= settings.quiet * losses.mass
        # At zero weights the best intercept is known, so the gradient alone is the bound.
        radius = self.coarse.radius
        away = torch.linalg.vector_norm(pull, dim=(-2, -1)) + rounding(radius, losses)
        if quiet.any():
            coef = torch.where(quiet[..., None, None], 0.0, coef)
            shift = torch.where(quiet[..., None], start, shift)
        intercept = shift - torch.einsum("bpkd,bd->bpk", coef, self.centre)
        if losses.outputs > 1:
            # What float32 added to all classes alike does nothing.
            intercept = intercept - intercept.mean(-1, keepdim=True)
        return Fits(
            coef=coef,
            intercept=intercept,
            bound=torch.where(quiet, away, exact.bound + rounding(radius.double(), losses)),
            converged=exact.done | quiet,
            quiet=quiet,
            iterations=coarse.iterations + exact.iterations,
        )

    def _exact(self) -> Exact:
        """The block in float64."""
        return Exact(
            self.x,
            self.centre,
            self.rotated,
            self.coarse.inverse,
            self.coarse.radius.double(),
            self.memory.fine,
        )

    def _apart(self, rows: Tensor, losses: Losses) -> tuple[Tensor, Tensor]:
        """Rows ``[B, P, K * E]`` as weights ``[B, P, K, D]`` and intercepts ``[B, P, K]``."""
        each = rows.unflatten(-1, (losses.outputs, -1))
        coef = each[..., :-1]
        if self.back is not None:
            coef = torch.einsum("bpke,bde->bpkd", coef, self.back)
        return coef, each[..., -1]


def _refuse(x: Tensor, bad: Tensor, name: Callable[[int], str]) -> None:
    """Raise an error that says what is wrong with the first bad head of ``x [N, B, D]``.

    Raises:
        ProbingError: always.
    """
    head = int(bad.nonzero()[0])
    wrong = ~x[:, head].isfinite().all(-1)
    if bool(wrong.any()):
        raise ProbingError(
            f"{name(head)}: the activations of sample {int(wrong.nonzero()[0])} hold NaN or "
            "infinity; a probe cannot be fitted on them"
        )
    raise ProbingError(
        f"{name(head)}: activations up to {float(x[:, head].abs().max()):.1e} are too large for a "
        "probe; scale them down"
    )
