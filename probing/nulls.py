"""Heads' probes fitted again: on permuted labels, resampled groups, other splits, control tasks.

``sally-anne nulls RUN`` says which heads of a run score more than chance, and how surely.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from rich.markup import escape
from rich.table import Table
from scipy.stats import false_discovery_control

from sally_anne.core.bootstrap import draw_groups, percentile_interval
from sally_anne.core.console import Console, stage
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_atomic
from sally_anne.core.folder import claimed
from sally_anne.core.head import Head
from sally_anne.core.run import LEVEL, Run
from sally_anne.probing.config import DEFAULT_C, DEFAULT_MAX_ITER, NullsConfig
from sally_anne.probing.probes import Activations
from sally_anne.probing.solver import REFIT, SKLEARN_TOLERANCE, fit_heads

# Heads of each label that are printed.
PRINTED = 10


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

    def threshold(self, level: float = LEVEL) -> float:
        """Accuracy above which ``p_fwer`` is at most ``level``; infinite if they are too few."""
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
) -> tuple[np.ndarray, int]:
    """Fit P label vectors ``[P, N + M]`` on the training samples of all heads.

    Returns:
        Accuracy on held-out samples ``[P, L, H]``, and how many probes did not converge.
    """
    n, (layers, heads) = len(train), train.x.shape[1:3]
    own, other = (torch.from_numpy(np.ascontiguousarray(p.x)).flatten(1, 2) for p in (train, held))
    labels = torch.from_numpy(np.ascontiguousarray(codes))
    times = torch.ones(labels.shape) if weights is None else torch.from_numpy(weights)
    n_classes = int(codes.max()) + 1
    accuracy = np.empty((len(codes), layers * heads))
    unconverged = 0
    fits = fit_heads(
        own,
        labels[:, :n],
        n_classes,
        c,
        times[:, :n],
        REFIT,
        max_iter,
        SKLEARN_TOLERANCE,
        lambda index: Head(*divmod(index, heads)),
    )
    for index, fit in enumerate(fits):
        logits = fit.coef.float() @ other[:, index].float().mT + fit.intercept.float()[..., None]
        predicted = (logits[:, 0] > 0).long() if n_classes == 2 else logits.argmax(1)
        # Counts, so that equal accuracies compare as equal.
        right = ((predicted == labels[:, n:]) * times[:, n:]).sum(-1)
        accuracy[:, index] = right.numpy()
        unconverged += int((~fit.converged).sum())
    accuracy /= times[:, n:].sum(-1, keepdim=True).numpy()
    return accuracy.reshape(len(codes), layers, heads), unconverged


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
    accuracy, unconverged = refit(train, held, vectors, c, max_iter)
    return PermutationTest(accuracy[0], accuracy[1:], unconverged)


def bootstrap(
    train: Activations,
    held: Activations,
    label: str,
    count: int = 1000,
    c: float = DEFAULT_C,
    seed: int = 0,
    max_iter: int = DEFAULT_MAX_ITER,
) -> np.ndarray:
    """Accuracies of all heads on groups resampled with replacement, in both parts: ``[P, L, H]``.

    Groups are drawn as weights of their samples. Arguments and errors as of
    :func:`permutation_test`.
    """
    _, codes = groups_and_codes(train, held, label)
    draw = np.random.default_rng(seed)
    times = [group_weights(part.items["group"].to_numpy(), count, draw) for part in (train, held)]
    weights = np.concatenate(times, axis=1)
    return refit(train, held, np.tile(codes, (count, 1)), c, max_iter, weights)[0]


def group_weights(groups: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
    """How often each sample's group was drawn, of as many groups as there are: ``[count, N]``."""
    names, member = np.unique(groups, return_inverse=True)
    return draw_groups(len(names), count, draw, "multinomial")[:, member]


def groups_and_codes(
    train: Activations, held: Activations, label: str
) -> tuple[np.ndarray, np.ndarray]:
    """Groups ``[N + M]`` and codes of the labels, of training samples and of those held out."""
    parts = [part.items["group"].to_numpy() for part in (train, held)]
    if not all(map(len, parts)):
        raise ProbingError("there must be samples to train on and others that are held out")
    if len(both := np.intersect1d(*parts)):
        raise ProbingError(f"group {both[0]} trains and is held out: a split must not cut a group")
    values = np.concatenate([train.values(label), held.values(label)])
    return np.concatenate(parts), np.unique(values, return_inverse=True)[1]


def shuffled(labels: np.ndarray, groups: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Labels permuted within each group: ``[count, N]``; a ProbingError if that changes nothing."""
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


def stability(
    x: Activations,
    label: str,
    clusters: np.ndarray,
    top: Sequence[int],
    accuracy: np.ndarray,
    c: float = DEFAULT_C,
    count: int = 10,
    seed: int = 0,
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
        count, seed: of new splits, as of :func:`permutation_test`.

    Returns:
        For ``resplits`` and ``c``: Spearman's correlation with the run's accuracies, mean and
        least, and how many of the ``top`` stay among as many on average. Empty where there are not
        three clusters.
    """
    rows = x.items["split"].isin(["train", "validation"]).to_numpy()
    pool = x.at(rows)
    names, member = np.unique(clusters[rows], return_inverse=True)
    validates = (pool.items["split"] == "validation").to_numpy()
    held = len(np.unique(member[validates]))
    if len(names) < 3 or not 0 < held < len(names):
        return {}
    codes = np.unique(pool.values(label), return_inverse=True)[1]
    draw = np.random.default_rng(seed)
    masks = [np.isin(member, draw.permutation(len(names))[:held]) for _ in range(count)]
    masks = [m for m in masks if len(np.unique(codes[~m])) == codes.max() + 1]

    def refitted(masks: list[np.ndarray], at: float) -> np.ndarray:
        weights = np.concatenate([~np.array(masks), np.array(masks)], axis=1).astype(float)
        both = np.tile(codes, (len(masks), 2))
        return refit(pool, pool, both, at, DEFAULT_MAX_ITER, weights)[0].reshape(len(masks), -1)

    again = {"resplits": refitted(masks, c)} if masks else {}
    again["c"] = np.concatenate([refitted([validates], at) for at in (c / 10, c * 10)])
    return {name: _agreement(values, accuracy, top) for name, values in again.items()}


def _agreement(values: np.ndarray, accuracy: np.ndarray, top: Sequence[int]) -> dict[str, float]:
    order = np.argsort(-values, axis=1, kind="stable")[:, : len(top)]
    table = pd.DataFrame(np.vstack([accuracy, values]).T)
    rho = table.corr(method="spearman").to_numpy()[0, 1:]
    return {
        "count": len(values),
        "spearman": float(np.mean(rho)),
        "least": float(np.min(rho)),
        "top": len(top),
        "stay": float(np.isin(order, top).sum(axis=1).mean()),
    }


def control_accuracy(
    train: Activations,
    held: Activations,
    types: tuple[Sequence[str], Sequence[str]],
    classes: int = 2,
    c: float = DEFAULT_C,
    count: int = 10,
    seed: int = 0,
    max_iter: int = DEFAULT_MAX_ITER,
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
        c, seed, max_iter: as of :func:`permutation_test`.

    Returns:
        ``[L, H]``, on held-out samples whose type trains; NaN where there are fewer types than
        classes, or none of them is held out.
    """
    names, code = np.unique(np.asarray(types[0]), return_inverse=True)
    known = np.isin(np.asarray(types[1]), names)
    if len(names) < classes or not known.any():
        return np.full(train.x.shape[1:3], np.nan)
    code = np.concatenate([code, np.searchsorted(names, np.asarray(types[1])[known])])
    draw = np.random.default_rng(seed)
    labels = np.array([draw.permutation(np.arange(len(names)) % classes) for _ in range(count)])
    return refit(train, held.at(known), labels[:, code], c, max_iter)[0].mean(axis=0)


def null_columns(
    x: Activations,
    heads: pd.DataFrame,
    c: float,
    max_iter: int,
    permutations: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """The table of heads, with what permuted labels say of each label's validation accuracy.

    Args:
        x: activations with their samples.
        heads: the table, with ``layer`` and ``head``.
        c, max_iter: as the probes were fitted.
        permutations: of labels within groups, the same for all heads.
        seed: of them.

    Returns:
        The table with ``{label}_p`` of the head alone, ``{label}_q`` (Benjamini and Hochberg over
        heads), ``{label}_p_fwer`` (against the best of all heads) and ``{label}_threshold``,
        above which that is at most ``LEVEL``. All NaN where permuting changes nothing.
    """
    place = heads["layer"].to_numpy(), heads["head"].to_numpy()
    heads = heads.copy()
    for label in x.labels:
        columns = [f"{label}_{name}" for name in ("p", "q", "p_fwer", "threshold")]
        try:
            test = permutation_test(x.train, x.validation, label, permutations, c, seed, max_iter)
        except ProbingError:
            heads[columns] = float("nan")
            continue
        p = test.p_values[place]
        values = (p, false_discovery_control(p), test.p_fwer[place], test.threshold())
        heads = heads.assign(**dict(zip(columns, values, strict=True)))
    return heads


def selectivity_columns(
    x: Activations, heads: pd.DataFrame, types: Mapping[str, str], c: float, seed: int = 0
) -> pd.DataFrame:
    """The table of heads with ``{label}_selectivity``: validation accuracy less that of controls.

    ``types`` has the type of each sample by its name, see :func:`control_accuracy`; the table stays
    as it is without. ``c`` is that of the probes, ``seed`` that of control tasks.
    """
    if not types:
        return heads
    train, held = x.train, x.validation
    kinds = [[types[name] for name in part.items["item_id"]] for part in (train, held)]
    place = heads["layer"].to_numpy(), heads["head"].to_numpy()
    heads, controls = heads.copy(), {}
    for label in x.labels:
        classes = len(np.unique(train.values(label)))
        if classes not in controls:
            controls[classes] = control_accuracy(
                train, held, (kinds[0], kinds[1]), classes, c, seed=seed
            )
        own = heads[f"{label}_validation_accuracy"]
        heads[f"{label}_selectivity"] = own - controls[classes][place]
    return heads


def run(config: NullsConfig, console: Console | None = None) -> pd.DataFrame:
    """Write and print the table.

    Returns:
        One row a head: ``layer``, ``head`` and of each label ``{label}_accuracy``, ``_p`` of the
        head alone, ``_p_fwer`` against the best of all heads, ``_threshold`` above which that is at
        most ``LEVEL``, and with bootstraps ``_low`` and ``_high``.

    Raises:
        ProbingError: no such samples, or a label that permuting within groups does not change.
    """
    console = console or Console()
    saved = Run.open(config.run)
    with claimed(config.run, "a probing run"):
        x = Activations(saved.activations(), saved.samples, saved.labels)
        train, held = x.train, x.part(config.split)
        heads = saved.heads[["layer", "head"]].copy()
        place = heads["layer"].to_numpy(), heads["head"].to_numpy()
        how = saved.number("c"), config.seed, int(saved.number("max_iter"))
        for label in saved.labels:
            with stage(console, f"{label}: {config.permutations} permutations"):
                test = permutation_test(train, held, label, config.permutations, *how)
            columns = {"accuracy": test.observed, "p": test.p_values, "p_fwer": test.p_fwer}
            if config.bootstraps:
                with stage(console, f"{label}: {config.bootstraps} bootstraps"):
                    draws = bootstrap(train, held, label, config.bootstraps, *how)
                columns["low"], columns["high"] = np.apply_along_axis(percentile_interval, 0, draws)
            own = {f"{label}_{name}": each[place] for name, each in columns.items()}
            heads = heads.assign(**own, **{f"{label}_threshold": test.threshold()})
            _print(console, heads, label, list(columns), config)
            console.print(f"mean of the null {test.null.mean():.3f}")
        path = config.run / f"nulls-{config.split}.parquet"
        write_atomic(path, heads.to_parquet(None, index=False))
    console.print(f"table: {escape(str(path))}", soft_wrap=True)
    return heads


def _print(
    console: Console, heads: pd.DataFrame, label: str, columns: Sequence[str], config: NullsConfig
) -> None:
    """The best heads of a label, and how many are above the threshold."""
    best = heads.sort_values([f"{label}_p_fwer", f"{label}_p"], kind="stable").head(PRINTED)
    table = Table(title=f"{label}, {config.split}", title_justify="left")
    for name in ("layer", "head", *columns):
        table.add_column(name.replace("p_fwer", "p of the best"), justify="right")
    for _, row in best.iterrows():
        numbers = [f"{row[f'{label}_{name}']:.3f}" for name in columns]
        table.add_row(str(int(row["layer"])), str(int(row["head"])), *numbers)
    console.print(table)
    console.print(above(heads, label, config.split))


def above(heads: pd.DataFrame, label: str, split: str = "validation") -> str:
    """How many heads score more than the best of all heads does by chance."""
    p, threshold = heads[f"{label}_p_fwer"], float(heads[f"{label}_threshold"].iloc[0])
    if p.isna().all():
        return "its labels do not vary within groups: there is no null to permute"
    if math.isinf(threshold):
        least = math.ceil(1 / LEVEL) - 1
        return f"too few permutations for any head to stand out: take at least {least}"
    return (
        f"{(p <= LEVEL).sum()} of {len(heads)} heads above {threshold:.3f} ({split}), which "
        f"the best head exceeds in {LEVEL:.0%} of permuted labels; p is against the best"
    )
