"""The leaderboard of localisers, over models whose heads are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from experiments.localisation.config import LocalisationConfig
from experiments.localisation.localisers import (
    NAMES,
    Scores,
    localiser_named,
    look,
    scores_by,
    scores_of,
    turns_of,
)
from experiments.localisation.planted import TRUTH, GroundTruth, open_planted, read_truth
from experiments.localisation.scoring import score
from experiments.localisation.stories import held_out_twins
from sally_anne.benchmarks.twins import Twins
from sally_anne.core.bootstrap import draw_groups, estimate_mean
from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import OptionError
from sally_anne.core.files import write_atomic, write_sealed
from sally_anne.core.options import check_options
from sally_anne.core.run_folder import LOCALISATION, RESULTS, claims, save_config
from sally_anne.models.loading import LoadedModel

SHIPPED = Path(__file__).parent / "models"
TABLE = "localisation.parquet"
MEASURES = ("recall", "auroc", "average_precision", "hits", "false")
HEADINGS = ("recall@K*", "AUROC", "average precision", "hits", "false heads")


def shipped() -> list[Path]:
    """Folders of the models that come with this package."""
    return sorted(path.parent for path in SHIPPED.glob(f"*/{TRUTH}"))


def measure(
    loaded: LoadedModel,
    truth: GroundTruth,
    twins: Sequence[Twins],
    config: LocalisationConfig,
    own: dict[str, Scores],
    on_pair: Any = lambda: None,
) -> list[dict[str, Any]]:
    """Rows of all localisers on one model.

    Args:
        loaded: the model.
        truth: what is true of it.
        twins: what localisers are given.
        config: how much.
        own: localisers beside the built-in ones, by name.
        on_pair: called when a pair is done.
    """
    seen = look(loaded, twins, config.pairs, on_pair)
    turns = turns_of(len(twins), config.draws, config.seed)
    planted = truth.mask(seen.effects.patch.shape[1:])
    rows = []
    for name in (*NAMES, *own):
        if name in own:
            scores = scores_by(own[name], name, loaded, twins, turns)
        else:
            scores = scores_of(name, seen, turns, config.seed)
        rows.append({"localiser": name, **score(scores[0], scores[1:], planted)})
    return rows


def leaderboard(table: pd.DataFrame, seed: int = 0) -> list[dict[str, Any]]:
    """Mean of each measure over the models that hold, by kind and localiser, best recall first.

    Args:
        table: a row a model and localiser: ``model, kind, failed, localiser`` and the measures.
        seed: of the intervals, for which models are drawn anew.
    """
    found = []
    for (kind, name), rows in table[~table["failed"]].groupby(["kind", "localiser"]):
        models = rows["model"].to_numpy()
        times = draw_groups(len(models), seed=seed)
        each = {
            measure: asdict(estimate_mean(rows[measure].to_numpy(), np.arange(len(models)), times))
            for measure in MEASURES
        }
        found.append({"kind": kind, "localiser": name, "models": len(models), **each})
    return sorted(found, key=lambda row: (row["kind"], -row["recall"]["value"], row["localiser"]))


def print_leaderboard(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """A table for each kind of models."""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        title = f"{kind}: {own[0]['models']} models, means and 95 % intervals over models"
        table = Table(title=title, title_justify="left")
        for heading in ("localiser", *HEADINGS):
            table.add_column(heading, justify="left" if heading == "localiser" else "right")
        for row in own:
            cells = [
                f"{row[m]['value']:.2f} [{row[m]['low']:.2f}, {row[m]['high']:.2f}]"
                for m in MEASURES
            ]
            table.add_row(row["localiser"], *cells)
        console.print(table)


@claims(LOCALISATION)
def run(config: LocalisationConfig, console: Console | None = None) -> pd.DataFrame:
    """Score all localisers on all models; prints and writes the leaderboard.

    Returns:
        A row a model, kind and localiser: ``model, base, kind, k, failed, localiser`` and
        :data:`MEASURES`.

    Raises:
        OptionError: no models, more pairs than twins, or a localiser that cannot be had.
        ModelError: a folder is not what ``sally-anne plant`` writes.
    """
    console = console or Console()
    check_options(config)
    if config.pairs > config.twins:
        raise OptionError(f"--pairs {config.pairs} is more than --twins {config.twins}")
    own = {name: localiser_named(name) for name in config.localiser}
    folders = [*config.models] or shipped()
    if not folders:
        raise OptionError("no models are shipped here; give folders of `sally-anne plant`")
    truths = {folder: read_truth(folder) for folder in folders}
    save_config(config.folder, asdict(config))
    twins = held_out_twins("test", config.twins)
    rows = []
    for folder, truth in truths.items():
        for kind in ("causal", "decoy") if config.decoys and truth.decoys else ("causal",):
            loaded, here = open_planted(folder, decoys=kind == "decoy")
            with Bars(console) as bar:
                total = min(config.pairs, len(twins))
                task = bar.add_task(f"{folder.name}, {kind}", total=total)
                found = measure(
                    loaded, here, twins, config, own, lambda b=bar, t=task: b.advance(t)
                )
            about = {"model": folder.name, "base": truth.base, "kind": kind, "k": truth.k}
            rows += [{**about, "failed": truth.failed, **row} for row in found]
    table = pd.DataFrame(rows)
    write_atomic(config.folder / TABLE, table.to_parquet(None, index=False))
    board = leaderboard(table, config.seed)
    known = {folder.name: asdict(truth) for folder, truth in truths.items()}
    content = {"config": asdict(config), "models": known, "rows": board}
    write_sealed(config.folder / RESULTS, content, (TABLE,))
    print_leaderboard(console, board)
    failed = [folder.name for folder, truth in truths.items() if truth.failed]
    if failed:
        console.print(f"not counted, since other heads carry too much: {', '.join(failed)}")
    console.print(f"leaderboard: {config.folder / RESULTS}", soft_wrap=True)
    return table


def localisation(*models: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook; options as of ``sally-anne localisation``."""
    config = LocalisationConfig(models=tuple(map(Path, models)), **options)
    return run(config, Console(quiet=True))
