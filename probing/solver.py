"""L2 logistic regression of all heads and many label vectors, and the null of permuted labels.

The objective is scikit-learn's: ``0.5 ||w||^2 + C sum_i s_i loss_i``, the intercept free; one logit
for two classes (K = 1), one a class for more. One label vector is fitted by Newton's method. Many
share the inverse of one matrix above all their Hessians (Boehning and Lindsay 1988, section 3) in
accelerated steps with restarts (O'Donoghue and Candes 2015).
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
from sally_anne.core.head import Head
from sally_anne.probing.activations import Activations
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
        parts = [slice(first, first + size) for first in range(0, labels.shape[0], size)]
        found, done = zip(
            *(
                _fit(z, targets[:, part], mass[part], start[:, part], tolerance, max_iter,
                     zero_tolerance)
                for part in parts
            ),
            strict=True,
        )  # fmt: skip
        rows = torch.cat(found, 1).transpose(0, 1)  # [P, K, E]
        coef, intercept = rows[..., :-1], rows[..., -1] - rows[..., :-1] @ centre
        if outputs > 1:  # what is added to all classes alike does nothing
            coef = coef - coef.mean(1, keepdim=True)
            intercept = intercept - intercept.mean(1, keepdim=True)
        yield Fit(coef, intercept, torch.cat(done))


def _fit(
    z: Tensor, targets: Tensor, mass: Tensor, start: Tensor, tolerance: float, max_iter: int,
    zero_tolerance: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Rows ``[K, P, E]`` for centred ``z [N, E]`` with a last column of ones; which converged."""
    outputs, count = start.shape
    rows = z.new_zeros(outputs, count, z.shape[1])
    rows[..., -1] = start
    pull = _gradient(z, targets, mass, rows)[..., :-1].abs().amax((0, 2))
    keep = pull <= zero_tolerance * mass.sum(-1)
    done = keep.clone()
    newton = outputs == 1 and count == 1
    if not newton and not bool(done.all()):
        exact = tolerance < REFIT
        given = (z, targets, mass, rows) if exact else (
            z.float(), targets.float(), mass.float(), rows.float()
        )  # fmt: skip
        found, done = _majorised(*given, tolerance, max_iter)
        rows, done = torch.where(keep[:, None], rows, found.double()), done | keep
    for p in (~done).nonzero()[:, 0].tolist():  # one label vector, weak penalties
        if outputs == 1:
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
    row = torch.zeros_like(z[0])
    row[-1] = start
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
    model = LogisticRegression(tol=1e-10, max_iter=max_iter, solver="newton-cholesky")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(z[:, :-1].cpu().numpy(), targets.argmax(0).cpu().numpy(), mass.cpu().numpy())
    rows = np.concatenate([model.coef_, model.intercept_[:, None]], axis=1)
    return torch.from_numpy(rows).to(z.device), not caught


@dataclass(frozen=True)
class PermutationTest:
    """Held-out accuracies with the true labels, ``[L, H]``, and with permuted ones, ``[P, L, H]``.

    A permutation is the same for all heads; ``unconverged`` probes did not reach their tolerance.
    """

    observed: np.ndarray
    null: np.ndarray
    unconverged: int

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

    def threshold(self, level: float = 0.05) -> float:
        """Accuracy above which ``p_fwer`` is at most ``level``; infinite if they are too few."""
        if not 0 < level < 1:
            raise ProbingError(f"level must be between 0 and 1, got {level}")
        best = np.sort(self.null.max(axis=(1, 2)))[::-1]
        allowed = int(np.floor(level * (1 + len(best)) + 1e-9)) - 1
        return float(best[allowed]) if allowed >= 0 else float("inf")


def refit(
    train: Activations,
    held: Activations,
    codes: np.ndarray,
    c: float,
    max_iter: int = DEFAULT_MAX_ITER,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Fit P label vectors ``[P, N + M]`` on the training samples of all heads.

    Returns:
        Accuracy on held-out samples, cosine to the weights of the first label vector (each
        ``[P, L, H]``), and how many probes did not converge.
    """
    n, (layers, heads) = len(train), train.x.shape[1:3]
    own, other = (torch.from_numpy(np.ascontiguousarray(p.x)).flatten(1, 2) for p in (train, held))
    labels = torch.from_numpy(np.ascontiguousarray(codes))
    times = None if weights is None else torch.from_numpy(weights)
    n_classes = int(codes.max()) + 1
    accuracy, cosine = np.empty((2, len(codes), layers * heads))
    unconverged = 0
    fits = fit_heads(
        own, labels[:, :n], n_classes, c, None if times is None else times[:, :n], REFIT, max_iter,
        SKLEARN_TOLERANCE, lambda index: Head(*divmod(index, heads)),
    )  # fmt: skip
    for index, fit in enumerate(fits):
        logits = fit.coef.float() @ other[:, index].float().mT + fit.intercept.float()[..., None]
        predicted = (logits[:, 0] > 0).long() if n_classes == 2 else logits.argmax(1)
        right = predicted == labels[:, n:]
        # Counts, so that equal accuracies compare as equal.
        counted = right.sum(-1) if times is None else (right * times[:, n:]).sum(-1)
        accuracy[:, index] = counted.numpy()
        flat = fit.coef.flatten(1)
        cosine[:, index] = (flat @ flat[0] / (flat.norm(dim=1) * flat[0].norm())).numpy()
        unconverged += int((~fit.converged).sum())
    accuracy /= len(held) if weights is None else weights[:, n:].sum(-1, keepdims=True)
    shape = (len(codes), layers, heads)
    return accuracy.reshape(shape), cosine.reshape(shape), unconverged


def permutation_test(
    train: Activations,
    held: Activations,
    label: str,
    count: int = 1000,
    c: float = DEFAULT_C,
    seed: int = 0,
    max_iter: int = DEFAULT_MAX_ITER,
) -> PermutationTest:
    """Fit all heads on true and permuted labels of ``train``, and score them on ``held``.

    Labels are permuted ``count`` times within groups, which are never in both parts; in the same
    way for all heads, so that the largest accuracy over heads has its null distribution, too.

    Raises:
        ProbingError: a group is in both parts, nothing to permute, a class is missing among the
            training samples, or a head's activations hold NaN or infinity.
    """
    groups, codes = groups_and_codes(train, held, label)
    vectors = np.concatenate([codes[None], shuffled(codes, groups, count, seed)])
    accuracy, _, unconverged = refit(train, held, vectors, c, max_iter)
    return PermutationTest(accuracy[0], accuracy[1:], unconverged)


def groups_and_codes(
    train: Activations, held: Activations, label: str
) -> tuple[np.ndarray, np.ndarray]:
    """Groups ``[N + M]`` and codes of the labels, of training samples and of those held out."""
    parts = [part.items["group"].to_numpy() for part in (train, held)]
    if not all(map(len, parts)):
        raise ProbingError("there must be samples to train on and others that are held out")
    if len(cut := np.intersect1d(*parts)):
        raise ProbingError(f"group {cut[0]} trains and is held out: a split must not cut a group")
    values = np.concatenate([train.values(label), held.values(label)])
    return np.concatenate(parts), np.unique(values, return_inverse=True)[1]


def shuffled(labels: np.ndarray, groups: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Labels permuted within each group: ``[count, N]``.

    Raises:
        ProbingError: that changes nothing.
    """
    labels, groups = np.asarray(labels), np.asarray(groups)
    if labels.shape != groups.shape or not len(labels) or count < 1:
        raise ProbingError(
            f"no {count} permutations of labels {labels.shape}, groups {groups.shape}"
        )
    _, group = np.unique(groups, return_inverse=True)
    _, code = np.unique(labels, return_inverse=True)
    pairs = np.unique(np.stack([group, code]), axis=1)
    if pairs.shape[1] == group.max() + 1:
        raise ProbingError("permuting within groups changes nothing: labels vary between them")
    # Samples sorted by group; random keys sort them anew within it.
    places = np.argsort(group, kind="stable")
    keys = group + np.random.default_rng(seed).random((count, len(group)))
    out = np.empty((count, len(labels)), dtype=labels.dtype)
    out[:, places] = labels[np.argsort(keys, axis=1, kind="stable")]
    return out
