"""Heads' probes fitted again: on permuted labels, groups drawn anew, other splits, control tasks.

``sally-anne nulls RUN`` says which heads of a run score more than chance, and how surely.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from rich.markup import escape
from rich.table import Table
from scipy.stats import false_discovery_control

from sally_anne.core.bootstrap import draw_groups, percentile_interval
from sally_anne.core.console import Console, stage
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_atomic
from sally_anne.core.folder import claimed
from sally_anne.core.run import LEVEL, Run
from sally_anne.probing.activations import Activations
from sally_anne.probing.config import DEFAULT_C, DEFAULT_MAX_ITER, NullsConfig
from sally_anne.probing.solver import groups_and_codes, permutation_test, refit

# Heads of each label that are printed.
PRINTED = 10


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


def bootstrap(
    train: Activations,
    held: Activations,
    label: str,
    count: int = 1000,
    c: float = DEFAULT_C,
    seed: int = 0,
    max_iter: int = DEFAULT_MAX_ITER,
) -> Bootstrap:
    """Fit all heads on groups drawn with replacement, as weights of their samples.

    Arguments and errors as of :func:`permutation_test`.
    """
    _, codes = groups_and_codes(train, held, label)
    draw = np.random.default_rng(seed)
    drawn = [group_weights(part.items["group"].to_numpy(), count, draw) for part in (train, held)]
    weights = np.concatenate([np.ones((1, len(codes))), np.concatenate(drawn, axis=1)])
    vectors = np.broadcast_to(codes, weights.shape)
    accuracy, cosine, unconverged = refit(train, held, vectors, c, max_iter, weights)
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
        return refit(pool, pool, both, at, DEFAULT_MAX_ITER, weights)[0].reshape(len(masks), -1)

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
    part = replace(held, x=held.x[known], items=held.items[known].reset_index(drop=True))
    code = np.concatenate([code, np.searchsorted(names, np.asarray(types[1])[known])])
    draw = np.random.default_rng(seed)
    given = np.array([draw.permutation(np.arange(len(names)) % classes) for _ in range(count)])
    return refit(train, part, given[:, code], c, max_iter)[0].mean(axis=0)


def group_weights(groups: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
    """How often each sample's group was drawn, of as many groups as there are: ``[count, N]``."""
    names, member = np.unique(groups, return_inverse=True)
    return draw_groups(len(names), count, draw, "multinomial")[:, member]


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
        if not len(held):
            raise ProbingError(f"{config.run} has no {config.split} samples")
        heads = saved.heads[["layer", "head"]].copy()
        place = heads["layer"].to_numpy(), heads["head"].to_numpy()
        how = saved.number("c"), config.seed, int(saved.number("max_iter"))
        for label in saved.labels:
            with stage(console, f"{label}: {config.permutations} permutations"):
                test = permutation_test(train, held, label, config.permutations, *how)
            columns = {"accuracy": test.observed, "p": test.p_values, "p_fwer": test.p_fwer}
            if config.bootstraps:
                with stage(console, f"{label}: {config.bootstraps} bootstraps"):
                    again = bootstrap(train, held, label, config.bootstraps, *how)
                columns["low"], columns["high"] = again.interval()
            own = {f"{label}_{name}": each[place] for name, each in columns.items()}
            heads = heads.assign(**own, **{f"{label}_threshold": test.threshold(LEVEL)})
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
    threshold = float(heads[f"{label}_threshold"].iloc[0])
    if math.isinf(threshold):
        console.print(
            f"{config.permutations} permutations are too few for any head to stand out at "
            f"{LEVEL:.0%}: take at least {math.ceil(1 / LEVEL) - 1};"
        )
        return
    count = int((heads[f"{label}_p_fwer"] <= LEVEL).sum())
    console.print(
        f"{count} of {len(heads)} heads above {threshold:.3f}, which the best of all heads "
        f"exceeds in {LEVEL:.0%} of the permutations;"
    )


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
    found = heads.copy()
    for label in x.labels:
        columns = [f"{label}_{name}" for name in ("p", "q", "p_fwer", "threshold")]
        try:
            test = permutation_test(x.train, x.validation, label, permutations, c, seed, max_iter)
        except ProbingError:
            found[columns] = float("nan")
            continue
        p = test.p_values[place]
        values = (p, false_discovery_control(p), test.p_fwer[place], test.threshold(LEVEL))
        for column, value in zip(columns, values, strict=True):
            found[column] = value
    return found


def selectivity_columns(
    x: Activations, heads: pd.DataFrame, types: Mapping[str, str], c: float, seed: int = 0
) -> pd.DataFrame:
    """The table of heads with ``{label}_selectivity``: validation accuracy less that of controls.

    Args:
        x: activations with their samples.
        heads: the table.
        types: the type of each sample by its name, see
            :func:`probing.resampling.control_accuracy`; the table stays as it is without.
        c: as the probes were fitted.
        seed: of control tasks.
    """
    if not types:
        return heads
    train, held = x.train, x.validation
    kinds = [[types[name] for name in part.items["item_id"]] for part in (train, held)]
    place = heads["layer"].to_numpy(), heads["head"].to_numpy()
    found, by_classes = heads.copy(), {}
    for label in x.labels:
        classes = len(np.unique(train.values(label)))
        if classes not in by_classes:
            by_classes[classes] = control_accuracy(
                train, held, (kinds[0], kinds[1]), classes, c, seed=seed
            )
        own = heads[f"{label}_validation_accuracy"]
        found[f"{label}_selectivity"] = own - by_classes[classes][place]
    return found
