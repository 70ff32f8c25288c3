"""How much of a head's accuracy and direction hangs on the stories that were drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from probing.config import DEFAULT_C
from probing.logistic import Settings
from probing.refits import REFIT, Split, refit
from sally_anne.core.errors import ProbingError


@dataclass(frozen=True)
class Bootstrap:
    """Accuracies and directions over stories drawn with replacement.

    Attributes:
        observed: ``[L, H]`` held-out accuracy with every story once.
        accuracy: ``[P, L, H]``, training and held-out stories both drawn anew.
        cosine: ``[P, L, H]`` of the direction to the one of all stories; NaN where either is zero.
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
            ProbingError: the level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ProbingError(f"level must be between 0 and 1, got {level}")
        low, high = np.quantile(self.accuracy, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return low, high


def story_weights(
    groups: np.ndarray, parts: tuple[np.ndarray, ...], count: int, seed: int = 0
) -> np.ndarray:
    """How often each sample's story was drawn: ``[count, N]``.

    Args:
        groups: ``[N]`` story of each sample.
        parts: masks ``[N]``; from each as many stories are drawn as it has. Others weigh 0.
        count: number of draws.
        seed: of the draws.
    """
    if count < 1:
        raise ProbingError(f"at least 1 draw is needed, got {count}")
    draw = np.random.default_rng(seed)
    out = np.zeros((count, len(groups)))
    for mask in parts:
        stories, member = np.unique(groups[mask], return_inverse=True)
        even = np.full(len(stories), 1 / len(stories))
        out[:, mask] = draw.multinomial(len(stories), even, size=count)[:, member]
    return out


def bootstrap(
    split: Split,
    labels: np.ndarray,
    count: int = 1000,
    c: float = DEFAULT_C,
    seed: int = 0,
    settings: Settings = REFIT,
) -> Bootstrap:
    """Fit all heads on stories drawn with replacement, as weights of their samples.

    Args:
        split: activations, groups, and which samples train and are held out.
        labels: ``[N]`` of any kind.
        count: number of draws.
        c: inverse penalty.
        seed: of the draws.
        settings: how exact the fits are, and on which device.

    Raises:
        ProbingError: sizes do not agree, a draw has no training sample of a class, or a head's
            activations hold NaN or infinity.
    """
    labels = np.asarray(labels)
    if labels.shape != split.groups.shape:
        raise ProbingError(f"need labels [{len(split.groups)}], got {list(labels.shape)}")
    classes, codes = np.unique(labels, return_inverse=True)
    once = (split.train | split.held).astype(float)
    drawn = story_weights(split.groups, (split.train, split.held), count, seed)
    weights = np.concatenate([once[None], drawn])
    vectors = np.broadcast_to(codes, weights.shape)
    held = torch.from_numpy(weights[:, split.held])
    heads = int(np.prod(split.heads))
    accuracy, cosine = np.empty((1 + count, heads)), np.empty((1 + count, heads))
    unconverged, whole = 0, torch.empty(0)
    for (block, part), fits, right in refit(split, vectors, len(classes), c, weights, settings):
        share = (held[part] / held[part].sum(-1, keepdim=True)).to(right.device)
        accuracy[part, block] = torch.einsum("bpm,pm->pb", right.double(), share).cpu().numpy()
        coef = fits.coef.flatten(2)
        if part.start == 0:
            whole = coef[:, :1]
        size = torch.linalg.vector_norm(coef, dim=-1) * torch.linalg.vector_norm(whole, dim=-1)
        cosine[part, block] = (torch.linalg.vecdot(coef, whole) / size).T.cpu().numpy()
        unconverged += int((~fits.converged).sum())
    scores, turned = (a.reshape(1 + count, *split.heads) for a in (accuracy, cosine))
    return Bootstrap(scores[0], scores[1:], turned[1:], unconverged)
