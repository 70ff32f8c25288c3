"""All heads' probes fitted again and again: on permuted labels, or on groups drawn anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from probing.activations import Activations
from probing.config import DEFAULT_C
from probing.logistic import SKLEARN_TOLERANCE, Fits, Problems, Settings, solve_blocks
from sally_anne.core.bootstrap import draw_groups, percentile_interval
from sally_anne.core.errors import ProbingError

# Accuracies do not depend on more digits; heads at zero weights stay there, as in a run.
REFIT = Settings(tolerance=1e-4, zero_weight_tol=SKLEARN_TOLERANCE)


@dataclass(frozen=True)
class PermutationTest:
    """Held-out accuracies with the true labels and with permuted ones.

    Attributes:
        observed: ``[L, H]``.
        null: ``[P, L, H]``, a permutation a row, the same for all heads.
        unconverged: number of probes, of ``(1 + P) L H``, that did not reach their tolerance.
    """

    observed: np.ndarray
    null: np.ndarray
    unconverged: int

    @property
    def p_values(self) -> np.ndarray:
        """Each head by itself, ``[L, H]``: the true labels count as one permutation."""
        return (1 + (self.null >= self.observed).sum(axis=0)) / (1 + len(self.null))

    @property
    def corrected(self) -> np.ndarray:
        """``[L, H]``, the chance that the best of all heads would score as well (single-step max
        statistic, Westfall and Young 1993, section 2.3)."""
        best = self.null.max(axis=(1, 2), keepdims=True)
        return (1 + (best >= self.observed).sum(axis=0)) / (1 + len(best))

    def threshold(self, level: float = 0.05) -> float:
        """A head has a corrected p-value of at most ``level`` if it scores more than this.

        Infinite if there are too few permutations for that.

        Raises:
            ProbingError: the level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ProbingError(f"level must be between 0 and 1, got {level}")
        best = np.sort(self.null.max(axis=(1, 2)))[::-1]
        # So many permutations may reach what the head scores.
        allowed = int(np.floor(level * (1 + len(best)) + 1e-9)) - 1
        return float(best[allowed]) if allowed >= 0 else float("inf")


@dataclass(frozen=True)
class Bootstrap:
    """Accuracies and directions over groups drawn with replacement.

    Attributes:
        observed: ``[L, H]`` held-out accuracy with every group once.
        accuracy: ``[P, L, H]``, training and held-out groups both drawn anew.
        cosine: ``[P, L, H]`` of the direction to the one of all groups; NaN where either is zero.
            Of more than two classes the directions of all classes count as one.
        unconverged: number of probes, of ``(1 + P) L H``, that did not reach their tolerance.
    """

    observed: np.ndarray
    accuracy: np.ndarray
    cosine: np.ndarray
    unconverged: int

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Percentile interval of the accuracy, ``[L, H]`` each end.

        Raises:
            OptionError: the level is not between 0 and 1.
        """
        low, high = np.apply_along_axis(percentile_interval, 0, self.accuracy, level)
        return low, high


def permutation_test(
    train: Activations,
    held: Activations,
    label: str,
    count: int = 1000,
    c: float = DEFAULT_C,
    seed: int = 0,
    settings: Settings = REFIT,
) -> PermutationTest:
    """Fit all heads on the true and on permuted labels, and score them on held-out samples.

    Labels are permuted within groups, of training and of held-out samples, and a group never is in
    both; each permutation is the same for all heads, so that the largest accuracy over heads has
    its null distribution, too.

    Args:
        train: activations to fit.
        held: activations to score.
        label: which label.
        count: number of permutations.
        c: inverse penalty.
        seed: of the permutations.
        settings: how exact the fits are, and on which device.

    Raises:
        ProbingError: a group is in both parts, nothing to permute, a class is missing among the
            training samples, or a head's activations hold NaN or infinity.
    """
    groups, codes = _groups_and_codes(train, held, label)
    vectors = np.concatenate([codes[None], shuffled(codes, groups, count, seed)])
    layers, heads = train.x.shape[1:3]
    accuracy = np.empty((1 + count, layers * heads))
    unconverged = 0
    for (block, part), fits, right in _refit(train, held, vectors, c, None, settings):
        # Counts, so that equal accuracies compare as equal.
        accuracy[part, block] = right.sum(-1).T.cpu().numpy() / right.shape[-1]
        unconverged += int((~fits.converged).sum())
    table = accuracy.reshape(1 + count, layers, heads)
    return PermutationTest(table[0], table[1:], unconverged)


def bootstrap(
    train: Activations,
    held: Activations,
    label: str,
    count: int = 1000,
    c: float = DEFAULT_C,
    seed: int = 0,
    settings: Settings = REFIT,
) -> Bootstrap:
    """Fit all heads on groups drawn with replacement, as weights of their samples.

    Arguments as of :func:`permutation_test`.

    Raises:
        ProbingError: a group is in both parts, a draw has no training sample of a class, or a
            head's activations hold NaN or infinity.
        OptionError: less than one draw.
    """
    _, codes = _groups_and_codes(train, held, label)
    draw = np.random.default_rng(seed)
    drawn = [group_weights(part.items["group"].to_numpy(), count, draw) for part in (train, held)]
    weights = np.concatenate([np.ones((1, len(codes))), np.concatenate(drawn, axis=1)])
    vectors = np.broadcast_to(codes, weights.shape)
    shares = torch.from_numpy(weights[:, len(train) :])
    shares = shares / shares.sum(-1, keepdim=True)
    layers, heads = train.x.shape[1:3]
    accuracy, cosine = np.empty((2, 1 + count, layers * heads))
    unconverged, whole = 0, torch.empty(0)
    for (block, part), fits, right in _refit(train, held, vectors, c, weights, settings):
        scored = torch.einsum("bpm,pm->pb", right.double(), shares[part].to(right.device))
        accuracy[part, block] = scored.cpu().numpy()
        coef = fits.coef.flatten(2)
        if part.start == 0:
            whole = coef[:, :1]
        size = torch.linalg.vector_norm(coef, dim=-1) * torch.linalg.vector_norm(whole, dim=-1)
        cosine[part, block] = (torch.linalg.vecdot(coef, whole) / size).T.cpu().numpy()
        unconverged += int((~fits.converged).sum())
    scores, turned = (a.reshape(1 + count, layers, heads) for a in (accuracy, cosine))
    return Bootstrap(scores[0], scores[1:], turned[1:], unconverged)


def shuffled(labels: np.ndarray, groups: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Labels permuted within each group: ``[count, N]``.

    Every story keeps its labels, dealt to its samples anew, so classes stay balanced in each story
    and in each split.

    Args:
        labels: ``[N]``.
        groups: ``[N]`` story of each sample.
        count: number of permutations.
        seed: of the draw.

    Raises:
        ProbingError: sizes do not agree, or within no group is there anything to permute.
    """
    labels, groups = np.asarray(labels), np.asarray(groups)
    if labels.ndim != 1 or labels.shape != groups.shape or not len(labels):
        raise ProbingError(f"need labels and groups [N], got {labels.shape} and {groups.shape}")
    if count < 1:
        raise ProbingError(f"at least 1 permutation is needed, got {count}")
    _, group = np.unique(groups, return_inverse=True)
    _, code = np.unique(labels, return_inverse=True)
    pairs = np.unique(np.stack([group, code]), axis=1)
    if pairs.shape[1] == group.max() + 1:
        raise ProbingError(
            "all samples of a group have the same label, in every group: permuting within groups "
            "changes nothing"
        )
    # Samples sorted by group; random keys sort them anew within it.
    places = np.argsort(group, kind="stable")
    keys = group + np.random.default_rng(seed).random((count, len(group)))
    out = np.empty((count, len(labels)), dtype=labels.dtype)
    out[:, places] = labels[np.argsort(keys, axis=1, kind="stable")]
    return out


def group_weights(groups: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
    """How often each sample's group was drawn, of as many groups as there are: ``[count, N]``."""
    names, member = np.unique(groups, return_inverse=True)
    return draw_groups(len(names), count, draw, "multinomial")[:, member]


def _groups_and_codes(
    train: Activations, held: Activations, label: str
) -> tuple[np.ndarray, np.ndarray]:
    """Groups ``[N + M]`` and codes of the labels, of training samples and of those held out.

    Raises:
        ProbingError: a part is empty, or a group is in both.
    """
    parts = [part.items["group"].to_numpy() for part in (train, held)]
    if not all(map(len, parts)):
        raise ProbingError("there must be samples to train on and others that are held out")
    if len(cut := np.intersect1d(*parts)):
        raise ProbingError(
            f"{len(cut)} groups train and are held out ({cut[0]} is one): a split must not cut a "
            "group"
        )
    values = np.concatenate([train.values(label), held.values(label)])
    return np.concatenate(parts), np.unique(values, return_inverse=True)[1]


def _refit(
    train: Activations,
    held: Activations,
    codes: np.ndarray,
    c: float,
    weights: np.ndarray | None,
    settings: Settings,
) -> Iterator[tuple[tuple[slice, slice], Fits, Tensor]]:
    """Fit P label vectors ``[P, N + M]`` on the training samples of all heads, block by block.

    Yields:
        Heads (layer by layer) and label vectors, their fits, and which held-out samples are right:
        ``[B, P, M]``.
    """
    n, heads = len(train), train.x.shape[2]
    own, other = (
        torch.from_numpy(np.require(part.x, requirements=["C", "W"])).flatten(1, 2)
        for part in (train, held)
    )
    problems = Problems(
        own,
        torch.from_numpy(np.ascontiguousarray(codes[:, :n])),
        int(codes.max()) + 1,
        c,
        None if weights is None else torch.from_numpy(np.ascontiguousarray(weights[:, :n])),
        lambda index: f"layer {index // heads} head {index % heads}",
    )
    truth = torch.from_numpy(np.ascontiguousarray(codes[:, n:]))
    for at, fits in solve_blocks(problems, settings):
        x = other[:, at[0]].to(fits.coef.device).transpose(0, 1).float()
        flat = torch.bmm(fits.coef.float().flatten(1, 2), x.mT)
        logits = flat.unflatten(1, fits.coef.shape[1:3]) + fits.intercept.float()[..., None]
        binary = problems.n_classes == 2
        predicted = (logits[:, :, 0] > 0).long() if binary else logits.argmax(2)
        yield at, fits, predicted == truth[at[1]].to(predicted.device)
