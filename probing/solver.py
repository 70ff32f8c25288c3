"""L2 logistic regression of all heads and many label vectors, as scikit-learn has it.

The objective is ``0.5 ||w||^2 + C sum_i s_i loss_i``, the intercept free; one logit for two classes
(K = 1), one a class for more. One binary label vector is fitted by Newton's method. Many share the
inverse of one matrix above all their Hessians (Boehning and Lindsay 1988, section 3) in accelerated
steps with restarts (O'Donoghue and Candes 2015).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from sally_anne.core.errors import ProbingError
from sally_anne.probing.config import DEFAULT_C, DEFAULT_MAX_ITER

# scikit-learn's tolerance: the largest derivative of the mean loss at which it stops.
SKLEARN_TOLERANCE = 1e-4
# Relative error of weights that are reported, and of those of which accuracies alone are.
EXACT, REFIT = 1e-6, 1e-4
# Label vectors times samples that are fitted together: their logits stay in a processor's cache.
AT_ONCE = 500_000


@dataclass(frozen=True)
class Fit:
    """One head's weights for P label vectors, float64: ``coef [P, K, D]``, ``intercept [P, K]``.

    ``converged [P]`` says that the distance to the optimum is within the tolerance.
    """

    coef: Tensor
    intercept: Tensor
    converged: Tensor


def fit_heads(
    x: Tensor,
    labels: Tensor,
    n_classes: int = 2,
    c: float = DEFAULT_C,
    weights: Tensor | None = None,
    tolerance: float = EXACT,
    max_iter: int = DEFAULT_MAX_ITER,
    zero_tolerance: float = 0.0,
    name: Callable[[int], object] = "head {}".format,
) -> Iterator[Fit]:
    """Fit every label vector on one head after another.

    Args:
        x: samples ``[N, G, D]``.
        labels: codes ``0 .. n_classes - 1``, ``[P, N]``.
        n_classes: at least 2.
        c: inverse strength of the penalty.
        weights: of the samples, ``[P, N]``; ones by default.
        tolerance: ``||w - w*|| <= tolerance ||w||``.
        max_iter: limit of the steps.
        zero_tolerance: a head keeps zero weights if no derivative of its mean loss there is larger,
            as scikit-learn does at ``SKLEARN_TOLERANCE``.
        name: what to call a head in messages.

    Raises:
        ProbingError: a class is missing in a label vector, or a head holds NaN or infinity.
    """
    outputs = 1 if n_classes == 2 else n_classes
    codes = torch.arange(n_classes, device=labels.device)[-outputs:]
    targets = (labels == codes[:, None, None]).double()  # [K, P, N]
    mass = torch.full_like(targets[0], c) if weights is None else c * weights.double()
    share = (targets * mass).sum(-1) / mass.sum(-1)  # [K, P]
    if bool(((share <= 0) | (share >= 1)).any()):
        raise ProbingError("a class has no training sample in a label vector: use more samples")
    start = torch.logit(share) if outputs == 1 else share.log() - share.log().mean(0)
    size = max(1, AT_ONCE // (outputs * x.shape[0]))
    for index in range(x.shape[1]):
        values = x[:, index].double()
        if not bool(values.isfinite().all()):
            raise ProbingError(f"{name(index)}: activations hold NaN or infinity")
        centre = values.mean(0)
        z = torch.cat([values - centre, torch.ones_like(values[:, :1])], 1)
        parts = zip(targets.split(size, 1), mass.split(size), start.split(size, 1), strict=True)
        fits = [_fit(z, *part, tolerance, max_iter, zero_tolerance) for part in parts]
        rows = torch.cat([row for row, _ in fits], 1).transpose(0, 1)  # [P, K, E]
        coef, intercept = rows[..., :-1], rows[..., -1] - rows[..., :-1] @ centre
        if outputs > 1:  # what is added to all classes alike does nothing
            coef = coef - coef.mean(1, keepdim=True)
            intercept = intercept - intercept.mean(1, keepdim=True)
        yield Fit(coef, intercept, torch.cat([done for _, done in fits]))


def _fit(
    z: Tensor,
    targets: Tensor,
    mass: Tensor,
    start: Tensor,
    tolerance: float,
    max_iter: int,
    zero_tolerance: float,
) -> tuple[Tensor, Tensor]:
    """Rows ``[K, P, E]`` for centred ``z [N, E]`` with a last column of ones; which converged."""
    outputs, count = start.shape
    rows = z.new_zeros(outputs, count, z.shape[1])
    rows[..., -1] = start
    slope = _gradient(z, targets, mass, rows)[..., :-1].abs().amax((0, 2))
    done = keep = slope <= zero_tolerance * mass.sum(-1)
    newton = outputs == 1 and count == 1
    if not newton and not bool(done.all()):
        dtype = z.dtype if tolerance < REFIT else torch.float32
        steps, near = _majorised(
            z.to(dtype), targets.to(dtype), mass.to(dtype), rows.to(dtype), tolerance, max_iter
        )
        rows, done = torch.where(keep[:, None], rows, steps.double()), near | keep
    for p in (~done).nonzero()[:, 0].tolist():  # one label vector, or weak penalties
        if newton:
            rows[0, p], done[p] = _newton(z, targets[0, p], mass[p], start[0, p], max_iter)
        else:
            rows[:, p], done[p] = _by_scikit_learn(z, targets[:, p], mass[p], max_iter)
    return rows, done


def _gradient(z: Tensor, targets: Tensor, mass: Tensor, rows: Tensor) -> Tensor:
    logits = rows @ z.mT
    odds = torch.sigmoid(logits) if len(rows) == 1 else torch.softmax(logits, 0)
    slope = odds.sub_(targets).mul_(mass) @ z
    slope[..., :-1] += rows[..., :-1]
    return slope


def _majorised(
    z: Tensor, targets: Tensor, mass: Tensor, rows: Tensor, tolerance: float, max_iter: int
) -> tuple[Tensor, Tensor]:
    """Accelerated steps under one bound of all Hessians; gives rows and whether they converged."""
    most = mass.amax(0) * (0.25 if len(rows) == 1 else 0.5)
    bound = (z.double().mT * most.double()) @ z.double()
    bound.diagonal()[:-1] += 1.0
    inverse = torch.linalg.inv(bound).to(z.dtype)
    radius, total = z[:, :-1].norm(dim=1).max(), mass.sum(-1)
    rounding = 4 * torch.finfo(z.dtype).eps * radius * total
    best, done = rows.clone(), torch.zeros_like(total, dtype=torch.bool)
    left, ahead, age = torch.arange(len(total), device=z.device), rows, torch.ones_like(total)
    for _ in range(max_iter + 1):
        slope = _gradient(z, targets[:, left], mass[left], ahead)
        # The penalty makes the objective 1-strongly convex: the gradient bounds the distance.
        off = slope[..., :-1].norm(dim=(0, 2)) + radius * slope[..., -1].abs().sum(0)
        near = off <= (tolerance * ahead[..., :-1].norm(dim=(0, 2))).maximum(rounding[left])
        best[:, left], done[left] = ahead, near
        if bool(near.all()):
            break
        if int(near.sum()) * 2 > len(left):  # the other half goes on by itself
            open_ = ~near
            left, age, slope = left[open_], age[open_], slope[:, open_]
            ahead, rows = ahead[:, open_], rows[:, open_]
        new = ahead - slope @ inverse
        uphill = ((ahead - new) * (new - rows)).sum((0, 2)) > 0
        age = torch.where(uphill, 1.0, age + 1)
        ahead = new + ((age - 1) / (age + 2))[:, None] * (new - rows)
        rows = new
    return best, done


def _newton(
    z: Tensor, target: Tensor, mass: Tensor, start: Tensor, max_iter: int
) -> tuple[Tensor, bool]:
    """Newton's method with step halving in float64, for one binary label vector ``[N]``."""
    penalty = torch.ones_like(z[0])
    penalty[-1] = 0
    row = start * (1 - penalty)
    sign, radius = 2 * target - 1, z[:, :-1].norm(dim=1).max()

    def loss(row: Tensor) -> Tensor:
        fit = mass @ torch.nn.functional.softplus(-sign * (z @ row))
        return fit + 0.5 * (penalty @ row.square())

    for _ in range(max_iter + 1):
        wrong = torch.sigmoid(-sign * (z @ row))
        slope = -(mass * sign * wrong) @ z + penalty * row
        off = slope[:-1].norm() + radius * slope[-1].abs()
        if bool(off <= (EXACT * row[:-1].norm()).clamp(min=1e-13 * float(radius * mass.sum()))):
            return row, True
        hessian = (z.mT * (mass * wrong * (1 - wrong))) @ z + penalty.diag()
        step, now = torch.linalg.solve(hessian, slope), loss(row)
        for _ in range(40):
            if bool(loss(row - step) <= now * (1 + 1e-12)):
                break
            step = step / 2
        row = row - step
    return row, False


def _by_scikit_learn(
    z: Tensor, targets: Tensor, mass: Tensor, max_iter: int
) -> tuple[Tensor, bool]:
    """As :func:`_newton`, of ``targets [K, N]``."""
    model = LogisticRegression(tol=1e-10, max_iter=max_iter, solver="newton-cholesky")
    codes = targets[0] if len(targets) == 1 else targets.argmax(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(z[:, :-1].cpu().numpy(), codes.cpu().numpy(), mass.cpu().numpy())
    rows = np.concatenate([model.coef_, model.intercept_[:, None]], axis=1)
    return torch.from_numpy(rows).to(z.device), not caught
