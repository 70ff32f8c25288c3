"""L2 logistic regression of all heads and many label vectors, and the null of permuted labels.

The objective is scikit-learn's ``0.5 ||w||^2 + C sum_i s_i loss_i``, the intercept free; one logit
for two classes (K = 1), one a class for more. One binary label vector is fitted by Newton's method.
Many share the inverse of one matrix above all their Hessians (Boehning and Lindsay 1988, section 3)
in accelerated steps with restarts (O'Donoghue and Candes 2015).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from sally_anne.core.errors import ProbingError
from sally_anne.core.run import LEVEL, Head
from sally_anne.probing.activations import Activations
from sally_anne.probing.config import DEFAULT_C, DEFAULT_MAX_ITER

# scikit-learn's tolerance: the largest derivative of the mean loss at which it stops.
SKLEARN_TOLERANCE = 1e-4
# Relative error of weights that are reported, and of those of which accuracies alone are.
EXACT, REFIT = 1e-6, 1e-4
# A head whose activations vary less than this share of their size is taken to be constant.
CONSTANT = 1e-6
# Label vectors times samples that are fitted together: their logits stay in a processor's cache.
AT_ONCE = 500_000


class Fit(NamedTuple):
    """Of one head and P label vectors: float64 ``[P, K, D]``, ``[P, K]``, and which converged."""

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
    zero_tolerance: float = SKLEARN_TOLERANCE,
    normalise: bool = True,
) -> Iterator[Fit]:
    """Fit every label vector on one head after another, layer by layer.

    Args:
        x: samples ``[N, L, H, D]``.
        labels, weights: codes ``0 .. n_classes - 1``, and of the samples: ``[P, N]``.
        tolerance: ``||w - w*|| <= tolerance ||w||``.
        zero_tolerance: a head keeps zero weights if no derivative of its mean loss there is larger,
            as scikit-learn does.
        normalise: divide by the head's :func:`scale_of` first, so that the penalty does not depend
            on its unit; the weights are of ``x`` as it is.

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
    size = max(1, AT_ONCE // (outputs * len(x)))
    for at in np.ndindex(*x.shape[1:3]):
        values = x[:, *at].double()
        if not bool(values.isfinite().all()):
            raise ProbingError(f"{Head(*at)}: activations hold NaN or infinity")
        centre = values.mean(0)
        scale = scale_of(values) if normalise else 1.0
        z = torch.cat([(values - centre) / scale, torch.ones_like(values[:, :1])], 1)
        parts = zip(targets.split(size, 1), mass.split(size), start.split(size, 1), strict=True)
        fits = [_fit(z, *part, tolerance, max_iter, zero_tolerance) for part in parts]
        rows = torch.cat([row for row, _ in fits], 1).transpose(0, 1)  # [P, K, E]
        coef = rows[..., :-1] / scale
        intercept = rows[..., -1] - coef @ centre
        if outputs > 1:  # what is added to all classes alike does nothing
            coef = coef - coef.mean(1, keepdim=True)
            intercept = intercept - intercept.mean(1, keepdim=True)
        yield Fit(coef, intercept, torch.cat([done for _, done in fits]))


def scale_of(values: Tensor) -> float:
    """The unit of a head's activations ``[N, D]``: the root of their variance's mean over D.

    1 where they hardly vary: what is left is rounding.
    """
    scale = float(values.var(0, correction=0).mean().sqrt())
    return scale if scale > CONSTANT * float(values.square().mean().sqrt()) else 1.0


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
    rows = z.new_zeros(*start.shape, z.shape[1])
    rows[..., -1] = start
    slope = _gradient(z, targets, mass, rows)[..., :-1].abs().amax((0, 2))
    done = keep = slope <= zero_tolerance * mass.sum(-1)
    if start.numel() > 1 and not bool(done.all()):
        dtype = z.dtype if tolerance < REFIT else torch.float32
        own = z.to(dtype), targets.to(dtype), mass.to(dtype), rows.to(dtype)
        steps, near = _majorised(*own, tolerance, max_iter)
        rows, done = torch.where(keep[:, None], rows, steps.double()), near | keep
    for p in (~done).nonzero()[:, 0].tolist():  # one binary label vector, or weak penalties
        rows[:, p], done[p] = _newton(z, targets[:, p], mass[p], max_iter)
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


def _newton(z: Tensor, targets: Tensor, mass: Tensor, max_iter: int) -> tuple[Tensor, bool]:
    """One label vector, ``targets [K, N]``, to the end: rows ``[K, E]``, whether they converged."""
    model = LogisticRegression(tol=1e-10, max_iter=max_iter, solver="newton-cholesky")
    codes = targets[0] if len(targets) == 1 else targets.argmax(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(z[:, :-1].cpu().numpy(), codes.cpu().numpy(), mass.cpu().numpy())
    rows = np.concatenate([model.coef_, model.intercept_[:, None]], axis=1)
    return torch.from_numpy(rows).to(z.device), not caught


def refit(
    train: Activations,
    held: Activations,
    codes: np.ndarray,
    c: float,
    max_iter: int = DEFAULT_MAX_ITER,
    weights: np.ndarray | None = None,
    normalise: bool = True,
) -> np.ndarray:
    """Fit P label vectors ``[P, N + M]`` on training samples: accuracy on others ``[P, L, H]``."""
    n, other = len(train), torch.from_numpy(held.x).float().flatten(1, 2)
    x, labels = torch.from_numpy(train.x), torch.from_numpy(np.ascontiguousarray(codes))
    times = torch.ones(labels.shape) if weights is None else torch.from_numpy(weights)
    classes = int(codes.max()) + 1
    right = []
    own = x, labels[:, :n], classes, c, times[:, :n], REFIT, max_iter
    fits = fit_heads(*own, normalise=normalise)
    for index, fit in enumerate(fits):
        logits = fit.coef.float() @ other[:, index].mT + fit.intercept.float()[..., None]
        predicted = (logits[:, 0] > 0).long() if classes == 2 else logits.argmax(1)
        # Counts, so that equal accuracies compare as equal.
        right.append(((predicted == labels[:, n:]) * times[:, n:]).sum(-1).double().numpy())
    accuracy = np.stack(right, 1) / times[:, n:].sum(-1, keepdim=True).numpy()
    return accuracy.reshape(-1, *train.x.shape[1:3])


@dataclass(frozen=True)
class PermutationTest:
    """Held-out accuracies with true labels, ``[L, H]``, and with permuted ones, ``[P, L, H]``."""

    observed: np.ndarray
    null: np.ndarray

    @property
    def p_values(self) -> np.ndarray:
        """Each head by itself, ``[L, H]``: the true labels count as one permutation."""
        return (1 + (self.null >= self.observed).sum(axis=0)) / (1 + len(self.null))

    @property
    def p_fwer(self) -> np.ndarray:
        """``[L, H]``, the chance that the best of all heads would score as well (single-step max
        statistic, Westfall and Young 1993, section 2.3)."""
        best = self.null.max(axis=(1, 2), keepdims=True)
        return (1 + (best >= self.observed).sum(axis=0)) / (1 + len(best))

    def threshold(self, level: float = LEVEL) -> float:
        """Accuracy above which ``p_fwer`` is at most ``level``; infinite if they are too few."""
        best = np.sort(self.null.max(axis=(1, 2)))[::-1]
        allowed = int(np.floor(level * (1 + len(best)) + 1e-9)) - 1
        return float(best[allowed]) if allowed >= 0 else float("inf")


def permutation_test(
    train: Activations,
    held: Activations,
    label: str,
    count: int = 1000,
    c: float = DEFAULT_C,
    seed: int = 0,
    max_iter: int = DEFAULT_MAX_ITER,
    normalise: bool = True,
) -> PermutationTest:
    """Fit all heads on true and permuted labels of ``train``, and score them on ``held``.

    Labels are permuted ``count`` times within groups, or among the groups of each part where every
    group has one label; in the same way for all heads, so that the largest accuracy over heads has
    its null distribution, too.

    Raises:
        ProbingError: a group is in both parts, or nothing to permute; or as :func:`fit_heads`.
    """
    groups, codes = groups_and_codes(train, held, label)
    held_out = np.arange(len(codes)) >= len(train)
    vectors = np.concatenate([codes[None], shuffled(codes, groups, count, seed, held_out)])
    accuracy = refit(train, held, vectors, c, max_iter, normalise=normalise)
    return PermutationTest(accuracy[0], accuracy[1:])


def groups_and_codes(
    train: Activations, held: Activations, label: str
) -> tuple[np.ndarray, np.ndarray]:
    """Groups ``[N + M]`` and codes of the labels, of training samples and of those held out."""
    parts = [part.items["group"].to_numpy() for part in (train, held)]
    if not all(map(len, parts)) or len(np.intersect1d(*parts)):
        raise ProbingError(
            "there must be samples to train on, and others, of other groups, to test"
        )
    values = np.concatenate([train.values(label), held.values(label)])
    return np.concatenate(parts), np.unique(values, return_inverse=True)[1]


def shuffled(
    labels: np.ndarray,
    groups: np.ndarray,
    count: int,
    seed: int = 0,
    part: np.ndarray | None = None,
) -> np.ndarray:
    """Labels permuted within each group: ``[count, N]``.

    Where each group has one label, these are permuted among the groups of a ``part [N]``. A
    ProbingError if all labels are the same.
    """
    names, first, group = np.unique(groups, return_index=True, return_inverse=True)
    if pd.Series(labels).groupby(group).nunique().max() == 1:
        if len(names) < 2 or part is None and len(np.unique(labels)) < 2:
            raise ProbingError("permuting changes nothing: all labels are the same")
        within = np.zeros(len(labels)) if part is None else part
        return shuffled(labels[first], within[first], count, seed)[:, group]
    # Samples sorted by group; random keys sort them anew within it.
    places = np.argsort(group, kind="stable")
    keys = group + np.random.default_rng(seed).random((count, len(group)))
    out = np.empty((count, len(labels)), dtype=labels.dtype)
    out[:, places] = labels[np.argsort(keys, axis=1, kind="stable")]
    return out
