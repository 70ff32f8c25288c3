"""Could a head score as well if it knew nothing? Permutation tests for all heads at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probing.config import DEFAULT_C
from probing.logistic import Settings
from probing.refits import REFIT, Split, refit
from sally_anne.core.errors import ProbingError


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
        return self._share(self.null >= self.observed)

    @property
    def corrected(self) -> np.ndarray:
        """``[L, H]``, the chance that the best of all heads would score as well (single-step max
        statistic, Westfall and Young 1993, section 2.3)."""
        best = self.null.max(axis=(1, 2), keepdims=True)
        return self._share(best >= self.observed)

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

    @staticmethod
    def _share(reached: np.ndarray) -> np.ndarray:
        return (1 + reached.sum(axis=0)) / (1 + len(reached))


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


def permutation_test(
    split: Split,
    labels: np.ndarray,
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
        split: activations, groups, and which samples train and are held out.
        labels: ``[N]`` of any kind.
        count: number of permutations.
        c: inverse penalty.
        seed: of the permutations.
        settings: how exact the fits are, and on which device.

    Raises:
        ProbingError: sizes do not agree, nothing to permute, a class is missing among the training
            samples, or a head's activations hold NaN or infinity.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    vectors = np.concatenate([codes[None], shuffled(codes, split.groups, count, seed)])
    heads = int(np.prod(split.heads))
    accuracy = np.empty((1 + count, heads))
    unconverged = 0
    for (block, part), fits, right in refit(split, vectors, len(classes), c, settings=settings):
        # Counts, so that equal accuracies compare as equal.
        accuracy[part, block] = right.sum(-1).T.cpu().numpy() / right.shape[-1]
        unconverged += int((~fits.converged).sum())
    table = accuracy.reshape(1 + count, *split.heads)
    return PermutationTest(table[0], table[1:], unconverged)
