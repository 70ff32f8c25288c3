"""``sally-anne nulls RUN``: which heads of a run score more than chance, and how surely."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from rich.markup import escape
from rich.table import Table

from sally_anne.core.console import Console, stage
from sally_anne.core.errors import ProbingError, RunFolderError
from sally_anne.core.files import write_atomic
from sally_anne.core.folder import CONFIG, claimed
from sally_anne.core.options import Natural, Seed
from sally_anne.core.run import LEVEL

if TYPE_CHECKING:
    import pandas as pd

    from sally_anne.core.run import Run
    from sally_anne.probing.activations import Activations

# Heads of each label that are printed.
PRINTED = 10


@dataclass(frozen=True)
class NullsConfig:
    """Test every head of a probing run against permuted labels, and draw its groups anew.

    Attributes:
        run: folder of a finished probing run; the table nulls-SPLIT.parquet is written into it.
        permutations: of the labels within groups, the same for all heads.
        bootstraps: draws of training and of held-out groups with replacement, for 95 % intervals;
            0 for none.
        split: samples that score. Heads are chosen by validation; test is for the report.
        seed: of permutations and draws.
    """

    run: tyro.conf.Positional[Path]
    permutations: int = 1000
    bootstraps: Natural = 0
    split: Literal["validation", "test"] = "validation"
    seed: Seed = 0


def run(config: NullsConfig, console: Console | None = None) -> pd.DataFrame:
    """Write and print the table.

    Returns:
        One row a head: ``layer``, ``head`` and of each label ``{label}_accuracy``, ``_p`` of the
        head alone, ``_p_fwer`` against the best of all heads, ``_threshold`` above which that is at
        most ``LEVEL``, and with bootstraps ``_low`` and ``_high``.

    Raises:
        ProbingError: no such samples, or a label that permuting within groups does not change.
    """
    from sally_anne.core.run import Run

    console = console or Console()
    saved = Run.open(config.run)
    with claimed(config.run, "a probing run"):
        return _test(config, saved, console)


def _test(config: NullsConfig, saved: Run, console: Console) -> pd.DataFrame:
    from sally_anne.probing.activations import Activations
    from sally_anne.probing.resampling import REFIT, bootstrap, permutation_test

    items = saved.samples
    x = Activations(saved.activations(), items, saved.labels)
    train, held = x.train, x.part(config.split)
    if not len(held):
        raise ProbingError(f"{config.run} has no {config.split} samples")
    heads = saved.heads[["layer", "head"]].copy()
    c, steps = (_number(saved, name) for name in ("c", "max_iter"))
    settings = replace(REFIT, max_iter=int(steps))
    place = heads["layer"].to_numpy(), heads["head"].to_numpy()
    for label in saved.labels:
        with stage(console, f"{label}: {config.permutations} permutations"):
            test = permutation_test(
                train, held, label, config.permutations, c, config.seed, settings
            )
        threshold = test.threshold(LEVEL)
        found = {"accuracy": test.observed, "p": test.p_values, "p_fwer": test.p_fwer}
        if config.bootstraps:
            with stage(console, f"{label}: {config.bootstraps} bootstraps"):
                drawn = bootstrap(train, held, label, config.bootstraps, c, config.seed, settings)
            found["low"], found["high"] = drawn.interval()
        heads = heads.assign(**{f"{label}_{name}": each[place] for name, each in found.items()})
        heads[f"{label}_threshold"] = threshold
        best = heads.sort_values([f"{label}_p_fwer", f"{label}_p"], kind="stable")
        table = Table(title=f"{label}, {config.split}", title_justify="left")
        for name in ("layer", "head", *found):
            table.add_column(name.replace("p_fwer", "p of the best"), justify="right")
        for _, row in best.head(PRINTED).iterrows():
            numbers = [f"{row[f'{label}_{name}']:.3f}" for name in found]
            table.add_row(str(int(row["layer"])), str(int(row["head"])), *numbers)
        console.print(table)
        if math.isinf(threshold):
            said = (
                f"{config.permutations} permutations are too few for any head to stand out at "
                f"{LEVEL:.0%}: take at least {math.ceil(1 / LEVEL) - 1}"
            )
        else:
            count = int((test.p_fwer <= LEVEL).sum())
            said = (
                f"{count} of {len(heads)} heads above {threshold:.3f}, which the best of all heads "
                f"exceeds in {LEVEL:.0%} of the permutations"
            )
        console.print(f"{said}; mean of the null {test.null.mean():.3f}")
    path = config.run / f"nulls-{config.split}.parquet"
    write_atomic(path, heads.to_parquet(None, index=False))
    console.print(f"table: {escape(str(path))}", soft_wrap=True)
    return heads


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
    from scipy.stats import false_discovery_control

    from sally_anne.probing.resampling import REFIT, permutation_test

    place = heads["layer"].to_numpy(), heads["head"].to_numpy()
    found = heads.copy()
    for label in x.labels:
        columns = [f"{label}_{name}" for name in ("p", "q", "p_fwer", "threshold")]
        try:
            settings = replace(REFIT, max_iter=max_iter)
            test = permutation_test(x.train, x.validation, label, permutations, c, seed, settings)
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
    import numpy as np

    from sally_anne.probing.resampling import control_accuracy

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


def _number(saved: Run, name: str) -> float:
    value = saved.config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RunFolderError(
            f"{saved.folder / CONFIG}: config.{name} should be a number, is {value!r}"
        )
    return value
