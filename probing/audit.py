"""``sally-anne audit RUN``: what else than a belief could explain a run's accuracy."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.markup import escape

from sally_anne.core.console import Console
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import claimed
from sally_anne.core.options import Seed

if TYPE_CHECKING:
    import pandas as pd

TABLE, SAVED = "audit.parquet", "audit.json"


@dataclass(frozen=True)
class AuditConfig:
    """Ask what should not suffice to tell a run's labels: could it explain the result?

    Attributes:
        run: folder of a finished probing run; audit.parquet and audit.json are written into it.
        stories: groups of samples, from all maps in turn, for rows in which the model reads
            anew (random weights, text alone, other films, its own answer); half of them train.
        seed: of random weights, films and shuffling.
        device, device_map: where the model is put; as in the run by default.
    """

    run: tyro.conf.Positional[Path]
    stories: int = 96
    seed: Seed = 0
    device: str | None = None
    device_map: str | None = None


def run(config: AuditConfig, console: Console | None = None) -> pd.DataFrame:
    """Write and print the table.

    Returns:
        A row for each label, condition and thing that was asked: ``label, condition, kind, row,
        accuracy, low, high, samples, clusters, chance``, the best head's ``best, best_low,
        best_high`` on the same samples, and whether the row ``reaches`` it: both are above
        chance, and their intervals overlap. Where the model read a part of the stories
        anew, the best head is fitted and chosen on that part as well. ``why`` says why a row is
        empty (NaN), or is not compared. Intervals are over maps, or over groups where there are
        none; of one there is none (NaN), and values are compared.

    Raises:
        RunFolderError, FolderError: the folder is not that of a finished run, or a run is writing.
        ProbingError: too few stories, or the samples are not those of the run.
        OtherModelError: the model is not the one that was probed.
    """
    from sally_anne.probing.audit_table import PARTS, audit_of, conclusion, print_audit
    from sally_anne.probing.probes import Activations, HeadProbes
    from sally_anne.probing.sources import reopen
    from sally_anne.probing.surface import ProbeRun

    console = console or Console()
    if config.stories < sum(PARTS.values()):
        raise ProbingError(f"--stories {config.stories}: the least is {sum(PARTS.values())}")
    with claimed(config.run, "a probing run"):
        opened = reopen(config.run, config.device, config.device_map)
        saved, probing, data = opened.run, opened.probing, opened.data
        x = Activations(saved.activations(), saved.samples, saved.labels, probing.site)
        probes = HeadProbes(probing.c, probing.max_iter, probing.solver)
        probed = ProbeRun(data, x, probes, probing.batch_size)
        questions, clusters = opened.pair_sets.get("question"), opened.clusters
        loaded = opened.model()
        how = config.stories, config.seed
        table, facts = audit_of(loaded, probed, questions, clusters, *how, console)
        of = facts["labels"]
        said = {label: conclusion(table, label, of[label]) for label in saved.labels}
        write_atomic(config.run / TABLE, table.to_parquet(None, index=False))
        options = dict(zip(("stories", "seed"), how, strict=True))
        found = {"config": options, "facts": facts, "conclusions": said}
        write_json(config.run / SAVED, found)
    for label in saved.labels:
        spoken = label.upper() if label in data.meaning else label
        print_audit(console, table[table["label"] == label], spoken, said[label], of[label])
    console.print(f"[dim]{escape(facts['sizes'])}[/dim]")
    console.print(f"table: {escape(str(config.run / TABLE))}", soft_wrap=True)
    again = f"sally-anne report {shlex.quote(str(config.run))}"
    console.print(f"next, the run's page with it: {escape(again)}", soft_wrap=True)
    return table


def audit(folder: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook: ``sa.audit("runs/...")``; options as of the command."""
    return run(AuditConfig(run=Path(folder), **options), Console(quiet=True))
