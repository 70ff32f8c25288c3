"""L2 logistic regression of all heads and many label vectors, and the null of permuted labels.

The objective is scikit-learn's ``0.5 ||w||^2 + C sum_i s_i loss_i``, the intercept free. One label
vector is fitted by Newton's method; many share the inverse of a bound of all Hessians (Boehning and
Lindsay 1988, section 3) in accelerated steps with restarts (O'Donoghue and Candes 2015).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sally_anne.core.errors import ProbingError
from sally_anne.core.processes import free_memory, in_batches
from sally_anne.core.run import LEVEL, Head
from sally_anne.probing.activations import Activations
from sally_anne.probing.config import DEFAULT_C, DEFAULT_MAX_ITER

# scikit-learn's tolerance: the largest derivative of the mean loss at which it stops.
SKLEARN_TOLERANCE = 1e-4
# Relative error of weights that are reported, and of those of which accuracies alone are.
EXACT, REFIT = 1e-6, 1e-4
# A head whose activations vary less than this share of their size is taken to be constant.
CONSTANT = 1e-6
# Numbers of one kind that are computed together: they stay in a processor's cache, or fill a GPU.
AT_ONCE, AT_ONCE_ON_GPU = 500_000, 50_000_000
# Bytes that a GPU has left for fits besides the activations, or they stay where they are.
ROOM = 4 << 30
# Of Newton's method: what it adds to a Hessian's diagonal, the part of the promised gain that a
# step has to bring, and the relative error of an objective.
TINY, ARMIJO, ROUNDING = 1e-12, 1e-4, 1e-13


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
    normalise: bool = True,
) -> Iterator[Fit]:
    """Fit every label vector on all heads, layer by layer; what comes back is where ``x`` is.

    Of samples ``x [N, L, H, D]`` with ``labels``, codes ``0 .. n_classes - 1``, and ``weights``,
    ``[P, N]`` both, so that ``||w - w*|| <= tolerance ||w||``; as scikit-learn does, a head keeps
    zero weights where no derivative of its mean loss exceeds :data:`SKLEARN_TOLERANCE`. A
    ProbingError if a label vector lacks a class, or a head holds NaN or infinity.
    """
    outputs = 1 if n_classes == 2 else n_classes
    codes = torch.arange(n_classes, device=labels.device)[-outputs:]
    targets = (labels == codes[:, None, None]).double()  # [K, P, N]
    mass = torch.full_like(targets[0], c) if weights is None else c * weights.double()
    share = (targets * mass).sum(-1) / mass.sum(-1)  # [K, P]
    if bool(((share <= 0) | (share >= 1)).any()):
        raise ProbingError("a class has no training sample in a label vector: use more samples")
    start = torch.logit(share) if outputs == 1 else _centred(share.log(), 0)
    most = AT_ONCE if x.device.type == "cpu" else AT_ONCE_ON_GPU
    size = max(1, most // (outputs * len(x)))
    heads = max(1, most // (len(x) * max(outputs * len(labels), outputs**2 * x.shape[3])))

    def fitted(part: Tensor) -> list[Fit]:
        values = x[:, part // x.shape[2], part % x.shape[2]].transpose(0, 1).double()  # [G, N, D]
        finite = values.isfinite().flatten(1).all(1)
        if not bool(finite.all()):
            at = int(part[~finite][0])
            raise ProbingError(f"{Head(*divmod(at, x.shape[2]))}: activations hold NaN or infinity")
        centre = values.mean(1, keepdim=True)
        scale = scale_of(values)[:, None, None] if normalise else values.new_ones(len(part), 1, 1)
        z = torch.cat([(values - centre) / scale, torch.ones_like(values[..., :1])], -1)
        parts = zip(targets.split(size, 1), mass.split(size), start.split(size, 1), strict=True)
        fits = [_fit(z, *own, tolerance, max_iter) for own in parts]
        rows = torch.cat([row for row, _ in fits], 2).transpose(1, 2)  # [G, P, K, E]
        coef = rows[..., :-1] / scale[..., None]
        intercept = rows[..., -1] - (coef * centre[:, None]).sum(-1)
        converged = torch.cat([done for _, done in fits], 1)
        return list(map(Fit, _centred(coef, 2), _centred(intercept, 2), converged))

    every = torch.arange(x.shape[1] * x.shape[2], device=x.device).split(heads)
    if x.device.type != "cpu":
        yield from chain.from_iterable(map(fitted, every))
        return
    # A thread for a head: threads that share the small steps of one mostly wait for each other.
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for some in in_batches(every, 4 * threads):  # not all results at once
                yield from chain.from_iterable(pool.map(fitted, some))
    finally:
        torch.set_num_threads(threads)


def _centred(values: Tensor, classes: int) -> Tensor:
    """Less their mean over classes, a dimension: what is added to all alike does nothing."""
    return values - values.mean(classes, keepdim=True) if values.shape[classes] > 1 else values


def scale_of(values: Tensor) -> Tensor:
    """The root of heads' mean variance, of ``[..., N, D]``; 1 where they hardly vary."""
    scale = values.var(-2, correction=0).mean(-1).sqrt()
    return torch.where(scale > CONSTANT * values.square().mean((-2, -1)).sqrt(), scale, 1.0)


def placed(array: np.ndarray) -> Tensor:
    """An array of activations where heads are fitted fastest: on a GPU that has the room."""
    room, gpu = ROOM + 2 * array.nbytes, torch.device("cuda")
    if torch.cuda.is_available() and free_memory(gpu) > room:
        return torch.from_numpy(array).to(gpu)
    return torch.from_numpy(np.ascontiguousarray(array))


def _fit(
    z: Tensor, targets: Tensor, mass: Tensor, start: Tensor, tolerance: float, max_iter: int
) -> tuple[Tensor, Tensor]:
    """Rows ``[G, K, P, E]`` and which converged, ``[G, P]``; ``z [G, N, E]`` ends with ones."""
    rows = z.new_zeros(len(z), *start.shape, z.shape[2])
    rows[..., -1] = start
    slope = _gradient(z, targets, mass, rows)[..., :-1].abs().amax((1, 3))
    done = keep = slope <= SKLEARN_TOLERANCE * mass.sum(-1)
    if start.numel() > 1 and not bool(done.all()):
        dtype = z.dtype if tolerance < REFIT else torch.float32
        own = z.to(dtype), targets.to(dtype), mass.to(dtype), rows.to(dtype)
        steps, near = _majorised(*own, tolerance, max_iter)
        rows, done = torch.where(keep[:, None, :, None], rows, steps.double()), near | keep
    for p in (~done).any(0).nonzero()[:, 0].tolist():  # one label vector, or weak penalties
        open_ = ~done[:, p]
        rows[open_, :, p], done[open_, p] = _newton(z[open_], targets[:, p], mass[p], max_iter)
    return rows, done


def _gradient(z: Tensor, targets: Tensor, mass: Tensor, rows: Tensor) -> Tensor:
    logits = rows @ z[:, None].mT
    odds = torch.sigmoid(logits) if rows.shape[1] == 1 else torch.softmax(logits, 1)
    slope = odds.sub_(targets).mul_(mass) @ z[:, None]
    slope[..., :-1] += rows[..., :-1]
    return slope


def _majorised(
    z: Tensor, targets: Tensor, mass: Tensor, rows: Tensor, tolerance: float, max_iter: int
) -> tuple[Tensor, Tensor]:
    """Accelerated steps under one bound of all Hessians; gives rows and whether they converged."""
    most = mass.amax(0) * (0.25 if rows.shape[1] == 1 else 0.5)
    bound = (z.double().mT * most.double()) @ z.double()
    bound.diagonal(dim1=1, dim2=2)[:, :-1] += 1.0
    inverse = torch.linalg.inv(bound).to(z.dtype)[:, None]
    radius, total = z[..., :-1].norm(dim=2).amax(1)[:, None], mass.sum(-1)
    rounding = 4 * torch.finfo(z.dtype).eps * radius * total
    best, done = rows.clone(), torch.zeros_like(rounding, dtype=torch.bool)
    left, ahead, age = torch.arange(len(total), device=z.device), rows, torch.ones_like(rounding)
    for _ in range(max_iter + 1):
        slope = _gradient(z, targets[:, left], mass[left], ahead)
        # The penalty makes the objective 1-strongly convex: the gradient bounds the distance.
        off = slope[..., :-1].norm(dim=(1, 3)) + radius * slope[..., -1].abs().sum(1)
        near = off <= (tolerance * ahead[..., :-1].norm(dim=(1, 3))).maximum(rounding[:, left])
        best[:, :, left], done[:, left] = ahead, near
        if bool(near.all()):
            break
        open_ = ~near.all(0)
        if int(open_.sum()) * 2 < len(left):  # the other half goes on by itself
            left, age, slope = left[open_], age[:, open_], slope[:, :, open_]
            ahead, rows = ahead[:, :, open_], rows[:, :, open_]
        new = ahead - slope @ inverse
        uphill = ((ahead - new) * (new - rows)).sum((1, 3)) > 0
        age = torch.where(uphill, 1.0, age + 1)
        ahead = new + ((age - 1) / (age + 2))[:, None, :, None] * (new - rows)
        rows = new
    return best, done


def _newton(z: Tensor, targets: Tensor, mass: Tensor, max_iter: int) -> tuple[Tensor, Tensor]:
    """One label vector ``[K, N]`` to the end: rows ``[G, K, E]``, and whether they converged."""
    outputs, heads = len(targets), torch.arange(len(z), device=z.device)
    rows = z.new_zeros(len(z), outputs, z.shape[2])
    penalty, done = torch.ones_like(rows[0]), torch.zeros_like(heads, dtype=torch.bool)
    penalty[:, -1] = 0
    sizes = 0.5 ** torch.arange(30, device=z.device, dtype=z.dtype)
    same = torch.eye(outputs, device=z.device, dtype=z.dtype)[..., None]

    def objective(rows: Tensor) -> Tensor:  # [G, S, K, E] to [G, S]
        logits = (rows.flatten(1, 2) @ z.mT).unflatten(1, rows.shape[1:3])  # [G, S, K, N]
        if outputs == 1:
            losses = -torch.nn.functional.logsigmoid((2 * targets - 1) * logits)[:, :, 0]
        else:
            losses = logits.logsumexp(2) - (targets * logits).sum(2)
        return (losses * mass).sum(-1) + 0.5 * (penalty * rows.square()).sum((-2, -1))

    for _ in range(max_iter):
        logits = rows @ z.mT
        odds = torch.sigmoid(logits) if outputs == 1 else torch.softmax(logits, 1)
        slope = ((odds - targets) * mass) @ z + penalty * rows
        bends = odds[:, :, None] * (same - odds[:, None]) * mass  # [G, K, K, N]
        # A row of blocks at a time, as all products at once would take K times the memory.
        blocks = torch.stack(
            [(z.mT[:, None] * own[..., None, :]) @ z[:, None] for own in bends.unbind(1)], 1
        )
        hessian = blocks.transpose(2, 3).flatten(3).flatten(1, 2)
        hessian.diagonal(dim1=1, dim2=2).add_(penalty.flatten() + TINY)
        step = _centred(torch.linalg.solve(hessian, slope.flatten(1)).view_as(rows), 1)
        # The longest of ever shorter steps that gains a part of what the slope promises (Armijo).
        tried, now = rows[:, None] - sizes[:, None, None] * step[:, None], objective(rows[:, None])
        least = ARMIJO * sizes * (slope * step).sum((1, 2))[:, None] - ROUNDING * now.abs()
        first = (objective(tried) <= now - least).int().argmax(1)
        rows = tried[heads, first]
        done = (first == 0) & (step.flatten(1).norm(dim=1) <= EXACT * rows.flatten(1).norm(dim=1))
        if bool(done.all()):
            break
    return rows, done


def refit(
    train: Activations,
    held: Activations,
    codes: np.ndarray,
    weights: np.ndarray | None = None,
    **how: Any,
) -> np.ndarray:
    """Accuracy ``[P, L, H]`` on held-out samples of fits of P label vectors ``[P, N + M]``."""
    n, x = len(train), placed(train.x)
    other = torch.from_numpy(held.x).to(x).float().flatten(1, 2)
    labels = torch.from_numpy(np.ascontiguousarray(codes)).to(x.device)
    weights = np.ones(codes.shape, np.float32) if weights is None else weights
    times = torch.from_numpy(weights).to(x.device)
    classes, right = int(codes.max()) + 1, []
    how |= {"n_classes": classes, "weights": times[:, :n], "tolerance": REFIT}
    for index, fit in enumerate(fit_heads(x, labels[:, :n], **how)):
        logits = fit.coef.float() @ other[:, index].mT + fit.intercept.float()[..., None]
        predicted = (logits[:, 0] > 0).long() if classes == 2 else logits.argmax(1)
        # Counts, so that equal accuracies compare as equal.
        right.append(((predicted == labels[:, n:]) * times[:, n:]).sum(-1).double().cpu().numpy())
    accuracy = np.stack(right, 1) / times[:, n:].sum(-1, keepdim=True).cpu().numpy()
    return accuracy.reshape(-1, *train.x.shape[1:3])


class PermutationTest(NamedTuple):
    """Held-out accuracies with true labels, ``[L, H]``, and with permuted ones, ``[P, L, H]``."""

    observed: np.ndarray
    null: np.ndarray

    @property
    def p_values(self) -> np.ndarray:
        """Each head by itself, ``[L, H]``: the true labels count as one permutation."""
        return (1 + (self.null >= self.observed).sum(axis=0)) / (1 + len(self.null))

    @property
    def p_fwer(self) -> np.ndarray:
        """Against the best of all heads (Westfall and Young 1993, section 2.3), ``[L, H]``."""
        best = self.null.max(axis=(1, 2), keepdims=True)
        return (1 + (best >= self.observed).sum(axis=0)) / (1 + len(best))

    def threshold(self, level: float = LEVEL) -> float:
        """Accuracy above which ``p_fwer`` is at most ``level``; infinite if they are too few."""
        best = np.sort(self.null.max(axis=(1, 2)))[::-1]
        allowed = int(np.floor(level * (1 + len(best)) + 1e-9)) - 1
        return float(best[allowed]) if allowed >= 0 else float("inf")


def permutation_test(
    train: Activations, held: Activations, label: str, count: int = 1000, seed: int = 0, **how: Any
) -> PermutationTest:
    """Fit all heads on true and permuted labels of ``train``, and score them on ``held``.

    Labels are :func:`shuffled` alike for all heads, so that the largest accuracy over heads has its
    null, too; ``how`` as of :func:`fit_heads`. A ProbingError if a group is in both parts.
    """
    groups, codes = groups_and_codes(train, held, label)
    held_out = np.arange(len(codes)) >= len(train)
    vectors = np.concatenate([codes[None], shuffled(codes, groups, count, seed, held_out)])
    accuracy = refit(train, held, vectors, **how)
    return PermutationTest(accuracy[0], accuracy[1:])


def groups_and_codes(
    train: Activations, held: Activations, label: str
) -> tuple[np.ndarray, np.ndarray]:
    """Groups ``[N + M]`` and codes of the labels, of training samples and of those held out."""
    parts = [part.items["group"].to_numpy() for part in (train, held)]
    if not all(map(len, parts)) or len(np.intersect1d(*parts)):
        raise ProbingError("need samples to train on, and others, of other groups, to test")
    values = np.concatenate([train.values(label), held.values(label)])
    return np.concatenate(parts), np.unique(values, return_inverse=True)[1]


def shuffled(
    y: np.ndarray, groups: np.ndarray, count: int, seed: int = 0, part: np.ndarray | None = None
) -> np.ndarray:
    """Labels ``y [N]`` permuted within groups, those of one label among them: ``[count, N]``.

    The latter in parts: ``part [N]`` says which samples train.
    """
    names, first, group = np.unique(groups, return_index=True, return_inverse=True)
    pure = pd.Series(y).groupby(group).nunique().to_numpy() == 1
    if pure.all():
        if len(names) < 2 or part is None and len(np.unique(y)) < 2:
            raise ProbingError("permuting changes nothing: all labels are the same")
        within = np.zeros(len(y)) if part is None else part
        return shuffled(y[first], within[first], count, seed)[:, group]
    # Samples sorted by group; random keys sort them anew within it.
    places = np.argsort(group, kind="stable")
    keys = group + np.random.default_rng(seed).random((count, len(group)))
    out = np.empty((count, len(y)), dtype=y.dtype)
    out[:, places] = y[np.argsort(keys, axis=1, kind="stable")]
    alone = pure[group]
    with suppress(ProbingError):  # those of one label are all the same
        within = np.zeros(len(y)) if part is None else part
        out[:, alone] = shuffled(y[alone], groups[alone], count, seed, within[alone])
    return out
