"""How well scores of heads tell the planted ones: plain numbers, no model."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

LEVEL = 0.05


def recall_at(scores: np.ndarray, truth: np.ndarray) -> float:
    """Share of the K* planted heads among the K* best; what is expected where heads tie.

    Args:
        scores: ``[L, H]``, higher for heads that matter more.
        truth: which are planted, bool ``[L, H]``.
    """
    flat, planted = scores.ravel(), truth.ravel()
    k = int(planted.sum())
    edge = np.sort(flat)[-k]
    above, level = flat > edge, flat == edge
    room = k - above.sum()
    return float((planted[above].sum() + planted[level].sum() * room / level.sum()) / k)


def auroc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Chance that a planted head has a higher score than another, ties by half."""
    rank, planted = rankdata(scores.ravel()), truth.ravel()
    n = int(planted.sum())
    return float((rank[planted].sum() - n * (n + 1) / 2) / (n * (planted.size - n)))


def average_precision(scores: np.ndarray, truth: np.ndarray) -> float:
    """Mean over planted heads of the share of planted ones among those scored no lower."""
    flat, planted = scores.ravel(), truth.ravel()
    at_least = flat[None, :] >= flat[planted][:, None]
    return float(((at_least & planted).sum(1) / at_least.sum(1)).mean())


def claimed(scores: np.ndarray, null: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Heads above what the best of all heads reaches without a cause, bool ``[L, H]``.

    The family-wise p of a head is the share of draws, the true one counted, whose best head scores
    as much.

    Args:
        scores: ``[L, H]``.
        null: scores of R draws in which twins are turned at random, ``[R, L, H]``.
        level: of p.
    """
    best = null.reshape(len(null), -1).max(1)
    p = (1 + (best[:, None, None] >= scores).sum(0)) / (1 + len(null))
    return p <= level


def score(scores: np.ndarray, null: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """All measures of one localiser on one model; arguments as above.

    Returns:
        ``recall``, ``auroc``, ``average_precision``, and of the heads claimed at a family-wise 5 %
        how many are planted (``hits``) and how many are not (``false``).
    """
    found = claimed(scores, null)
    return {
        "recall": recall_at(scores, truth),
        "auroc": auroc(scores, truth),
        "average_precision": average_precision(scores, truth),
        "hits": int((found & truth).sum()),
        "false": int((found & ~truth).sum()),
    }
