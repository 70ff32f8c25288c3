"""All heads' probes fitted again and again: on permuted labels, or on groups drawn anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from sally_anne.core.bootstrap import draw_groups, percentile_interval
from sally_anne.core.errors import ProbingError
from sally_anne.core.head import Head
from sally_anne.probing.activations import Activations
from sally_anne.probing.config import DEFAULT_C
from sally_anne.probing.logistic import SKLEARN_TOLERANCE, Problems, Settings, solve_blocks

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
    def p_fwer(self) -> np.ndarray:
        """``[L, H]``, the chance that the best of all heads would score as well (single-step max
        statistic, Westfall and Young 1993, section 2.3)."""
        best = self.null.max(axis=(1, 2), keepdims=True)
        return (1 + (best >= self.observed).sum(axis=0)) / (1 + len(best))

    def threshold(self, level: float = 0.05) -> float:
        """A head has a corrected p-value of at most ``level`` if it scores more than this.

        Infinite if there are too few permutations for that.
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
        """Percentile interval of the accuracy, ``[L, H]`` each end."""
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
        train, held: activations to fit, and to score.
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
    accuracy, _, unconverged = _refit(train, held, vectors, c, settings)
    return PermutationTest(accuracy[0], accuracy[1:], unconverged)


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

    Arguments and errors as of :func:`permutation_test`.
    """
    _, codes = _groups_and_codes(train, held, label)
    draw = np.random.default_rng(seed)
    drawn = [group_weights(part.items["group"].to_numpy(), count, draw) for part in (train, held)]
    weights = np.concatenate([np.ones((1, len(codes))), np.concatenate(drawn, axis=1)])
    vectors = np.broadcast_to(codes, weights.shape)
    accuracy, cosine, unconverged = _refit(train, held, vectors, c, settings, weights)
    return Bootstrap(accuracy[0], accuracy[1:], cosine[1:], unconverged)


def stability(
    x: Activations,
    label: str,
    clusters: np.ndarray,
    top: Sequence[int],
    accuracy: np.ndarray,
    c: float = DEFAULT_C,
    count: int = 10,
    seed: int = 0,
    settings: Settings = REFIT,
) -> dict[str, dict[str, float]]:
    """How far the ranking of heads stays when other samples train, and at other C.

    Args:
        x: activations; those of training and validation are split anew, test is left alone.
        label: which label.
        clusters: name of each sample's cluster ``[N]``; whole ones train or validate, as many
            validate as in the run.
        top: numbers of the heads that the run ranks first, layer by layer.
        accuracy: the run's validation accuracy, ``[L H]``.
        c: inverse penalty; a tenth and ten times of it are tried as well.
        count, seed, settings: of new splits, as of :func:`permutation_test`.

    Returns:
        For ``resplits`` and ``c``: Spearman's correlation with the run's accuracies, mean and
        least, and how many of the ``top`` stay among as many on average. Empty where there are not
        three clusters.
    """
    rows = x.items["split"].isin(["train", "validation"]).to_numpy()
    pool = replace(x, x=x.x[rows], items=x.items[rows].reset_index(drop=True))
    names, member = np.unique(clusters[rows], return_inverse=True)
    validates = (pool.items["split"] == "validation").to_numpy()
    held = len(np.unique(member[validates]))
    if len(names) < 3 or not 0 < held < len(names):
        return {}
    codes = np.unique(pool.values(label), return_inverse=True)[1]
    draw = np.random.default_rng(seed)
    chosen = [np.isin(member, draw.permutation(len(names))[:held]) for _ in range(count)]

    def fitted(masks: list[np.ndarray], at: float) -> np.ndarray:
        trains = np.array([~m for m in masks])
        weights = np.concatenate([trains, np.array(masks)], axis=1).astype(float)
        both = np.tile(codes, (len(masks), 2))
        return _refit(pool, pool, both, at, settings, weights)[0].reshape(len(masks), -1)

    usable = [m for m in chosen if len(np.unique(codes[~m])) == codes.max() + 1]
    found = {"resplits": fitted(usable, c)} if usable else {}
    found["c"] = np.concatenate([fitted([validates], at) for at in (c / 10, c * 10)])
    return {name: _agreement(values, accuracy, top) for name, values in found.items()}


def _agreement(values: np.ndarray, accuracy: np.ndarray, top: Sequence[int]) -> dict[str, float]:
    order = np.argsort(-values, axis=1, kind="stable")[:, : len(top)]
    table = pd.DataFrame(np.vstack([accuracy, values]).T)
    rho = table.corr(method="spearman").to_numpy()[0, 1:]
    stay = np.isin(order, top).sum(axis=1).mean()
    return {
        "count": len(values),
        "spearman": float(np.mean(rho)),
        "least": float(np.min(rho)),
        "top": len(top),
        "stay": float(stay),
    }


def control_accuracy(
    train: Activations,
    held: Activations,
    types: tuple[Sequence[str], Sequence[str]],
    classes: int = 2,
    c: float = DEFAULT_C,
    count: int = 10,
    seed: int = 0,
    settings: Settings = REFIT,
) -> np.ndarray:
    """Accuracy of labels that say nothing but can be learned by heart (Hewitt and Liang 2019).

    Each type of input, as a statement's words, is given a class at random, and keeps it in all
    samples (section 2 of the paper). What a probe reads well although it is such a label tells
    little.

    Args:
        train, held: activations to fit, and to score.
        types: type of each sample of both.
        classes: so many, each given to as many types.
        count: of control tasks, of which the mean is taken.
        c, seed, settings: as of :func:`permutation_test`.

    Returns:
        ``[L, H]``, on held-out samples whose type trains; NaN where there are fewer types than
        classes, or none of them is held out.
    """
    names, code = np.unique(np.asarray(types[0]), return_inverse=True)
    known = np.isin(np.asarray(types[1]), names)
    if len(names) < classes or not known.any():
        return np.full(train.x.shape[1:3], np.nan)
    part = replace(held, x=held.x[known], items=held.items[known].reset_index(drop=True))
    code = np.concatenate([code, np.searchsorted(names, np.asarray(types[1])[known])])
    draw = np.random.default_rng(seed)
    given = np.array([draw.permutation(np.arange(len(names)) % classes) for _ in range(count)])
    return _refit(train, part, given[:, code], c, settings)[0].mean(axis=0)


def shuffled(labels: np.ndarray, groups: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Labels permuted within each group: ``[count, N]``.

    Every story keeps its labels, dealt to its samples anew, so classes stay balanced in each story
    and in each split. A ProbingError says if that changes nothing.
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
    """Groups ``[N + M]`` and codes of the labels, of training samples and of those held out."""
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
    settings: Settings,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Fit P label vectors ``[P, N + M]`` on the training samples of all heads.

    Returns:
        Accuracy on held-out samples, cosine to the weights of the first label vector (each
        ``[P, L, H]``), and how many probes did not converge.
    """
    n, count, (layers, heads) = len(train), len(codes), train.x.shape[1:3]
    own, other = (
        torch.from_numpy(np.require(part.x, requirements=["C", "W"])).flatten(1, 2)
        for part in (train, held)
    )
    labels = torch.from_numpy(np.ascontiguousarray(codes))
    times = None if weights is None else torch.from_numpy(weights)
    problems = Problems(
        own,
        labels[:, :n],
        int(codes.max()) + 1,
        c,
        None if times is None else times[:, :n],
        lambda index: str(Head(*divmod(index, heads))),
    )
    accuracy, cosine = np.empty((2, count, layers * heads))
    unconverged, whole = 0, torch.empty(0)
    for (block, part), fits in solve_blocks(problems, settings):
        device = fits.coef.device
        x = other[:, block].to(device).transpose(0, 1).float()
        coef = fits.coef.flatten(2)
        logits = torch.bmm(fits.coef.float().flatten(1, 2), x.mT).unflatten(1, fits.coef.shape[1:3])
        logits += fits.intercept.float()[..., None]
        binary = problems.n_classes == 2
        predicted = (logits[:, :, 0] > 0).long() if binary else logits.argmax(2)
        right = predicted == labels[part, n:].to(device)
        # Counts, so that equal accuracies compare as equal.
        if times is None:
            counted = right.sum(-1).T
        else:
            counted = torch.einsum("bpm,pm->pb", right.double(), times[part, n:].to(device))
        accuracy[part, block] = counted.cpu().numpy()
        if part.start == 0:
            whole = coef[:, :1]
        size = torch.linalg.vector_norm(coef, dim=-1) * torch.linalg.vector_norm(whole, dim=-1)
        cosine[part, block] = (torch.linalg.vecdot(coef, whole) / size).T.cpu().numpy()
        unconverged += int((~fits.converged).sum())
    accuracy /= len(held) if weights is None else weights[:, n:].sum(-1, keepdims=True)
    shape = (count, layers, heads)
    return accuracy.reshape(shape), cosine.reshape(shape), unconverged
