"""``sally-anne nulls RUN``: which heads of a run score more than chance, and how surely."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from rich.markup import escape
from rich.table import Table

from sally_anne.core.commands import command
from sally_anne.core.console import Console, stage
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_atomic
from sally_anne.core.options import Natural, Seed

if TYPE_CHECKING:
    import pandas as pd

# A head stands out if the best of all heads scores as well in so few of the permutations.
LEVEL = 0.05
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
        head alone, ``_p_best`` against the best of all heads, ``_threshold`` above which that is at
        most ``LEVEL``, and with bootstraps ``_low`` and ``_high``.

    Raises:
        RunFolderError, StoreError: the folder is not that of a finished run.
        ProbingError: no such samples, or a label that permuting within groups does not change.
    """
    from hooks.saved_run import Run
    from probing.activations import Activations
    from probing.resampling import bootstrap, permutation_test

    console = console or Console()
    saved = Run.open(config.run)
    items = saved.samples
    x = Activations(saved.activations(), items, saved.labels)
    train, held = x.train, x.part(config.split)
    if not len(held):
        raise ProbingError(f"{config.run} has no {config.split} samples")
    c, heads = float(saved.config["c"]), saved.heads[["layer", "head"]].copy()
    place = heads["layer"].to_numpy(), heads["head"].to_numpy()
    for label in saved.labels:
        with stage(console, f"{label}: {config.permutations} permutations"):
            test = permutation_test(train, held, label, config.permutations, c, config.seed)
        threshold = test.threshold(LEVEL)
        found = {"accuracy": test.observed, "p": test.p_values, "p_best": test.corrected}
        if config.bootstraps:
            with stage(console, f"{label}: {config.bootstraps} bootstraps"):
                drawn = bootstrap(train, held, label, config.bootstraps, c, config.seed)
            found["low"], found["high"] = drawn.interval()
        for name, values in found.items():
            heads[f"{label}_{name}"] = values[place]
        heads[f"{label}_threshold"] = threshold
        best = heads.sort_values([f"{label}_p_best", f"{label}_p"], kind="stable")
        table = Table(title=f"{label}, {config.split}", title_justify="left")
        for name in ("layer", "head", *found):
            table.add_column(name.replace("p_best", "p of the best"), justify="right")
        for _, row in best.head(PRINTED).iterrows():
            numbers = [f"{row[f'{label}_{name}']:.3f}" for name in found]
            table.add_row(str(int(row["layer"])), str(int(row["head"])), *numbers)
        console.print(table)
        count = int((test.corrected <= LEVEL).sum())
        console.print(
            f"{count} of {len(heads)} heads above {threshold:.3f}, which the best of all heads "
            f"exceeds in {LEVEL:.0%} of the permutations; mean of the null {test.null.mean():.3f}"
        )
    path = config.run / f"nulls-{config.split}.parquet"
    buffer = io.BytesIO()
    heads.to_parquet(buffer, index=False)
    write_atomic(path, buffer.getvalue())
    console.print(f"table: {escape(str(path))}", soft_wrap=True)
    return heads


main = command("sally-anne nulls", NullsConfig, run)


if __name__ == "__main__":
    main()
