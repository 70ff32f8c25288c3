"""The leaderboard of localisers and of steering, over models whose heads are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
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
from experiments.localisation.planted import (
    TRUTH,
    GroundTruth,
    Head,
    open_planted,
    read_truth,
    weaken,
)
from experiments.localisation.scoring import recall_at, score
from experiments.localisation.steering import steering_rows
from experiments.localisation.stories import held_out_twins, sides
from sally_anne.benchmarks.gridtom.stories import generated
from sally_anne.benchmarks.twins import Twins
from sally_anne.core.bootstrap import draw_groups, estimate_mean
from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import OptionError
from sally_anne.core.files import write_atomic, write_sealed
from sally_anne.core.options import check_options
from sally_anne.core.run_folder import LOCALISATION, RESULTS, claims, save_config
from sally_anne.models.loading import LoadedModel

SHIPPED = Path(__file__).parent / "models"
TABLE, STEERING, RECOVERY = "localisation.parquet", "steering.parquet", "recovery.parquet"
HEADINGS = {
    "recall": "recall@K*",
    "auroc": "AUROC",
    "average_precision": "AP",
    "hits": "hits",
    "false": "false",
}
STEERED = {"moved": "moved %", "kept": "kept %", "kl": "KL", "cosine": "cosine"}
STEERED |= {"rank": "rank"}
# Two standard deviations take one of two clusters to the other.
SHOWN_ALPHA = 2.0
SHOWN_DIRECTION = "mass_mean"


def shipped() -> list[Path]:
    """Folders of the models that come with this package."""
    return sorted(path.parent for path in SHIPPED.glob(f"*/{TRUTH}"))


@dataclass(frozen=True)
class Bench:
    """What all models are measured with.

    Attributes:
        config: how much.
        own: localisers beside the built-in ones, by name.
        twins: what localisers are given.
    """

    config: LocalisationConfig
    own: dict[str, Scores]
    twins: Sequence[Twins]

    def localise(
        self, loaded: LoadedModel, truth: GroundTruth, pairs: int, draws: int, on_pair: Any
    ) -> tuple[dict[str, np.ndarray], Any]:
        """Scores of all localisers, ``[1 + draws, L, H]``, and what the built-in ones looked at."""
        seen = look(loaded, self.twins, pairs, on_pair)
        turns = turns_of(len(self.twins), draws, self.config.seed)
        found = {name: scores_of(name, seen, turns, self.config.seed) for name in NAMES}
        for name, given in self.own.items():
            found[name] = scores_by(given, name, loaded, self.twins, turns)
        return found, seen

    def measure(
        self, loaded: LoadedModel, truth: GroundTruth, on_pair: Callable[[], None] = lambda: None
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Rows of all localisers on one model, and of steering it."""
        config = self.config
        found, seen = self.localise(loaded, truth, config.pairs, config.draws, on_pair)
        planted = truth.mask(seen.effects.patch.shape[1:])
        rows = [
            {"localiser": name, **score(scores[0], scores[1:], planted)}
            for name, scores in found.items()
        ]
        if not config.steered:
            return rows, []
        every = held_out_twins("test", config.twins + config.steered)
        best = {name: _best(scores[0], truth.k) for name, scores in found.items()}
        asked = sides(generated(), "test", config.steered)
        twins = every[config.twins :]
        steered = steering_rows(
            loaded, truth, seen, best, twins, asked, config.controls, config.seed
        )
        return rows, steered

    def recovery(self, folder: Path) -> list[dict[str, Any]]:
        """Recall of all localisers where the planted heads, beside decoys, write ever less."""
        rows = []
        for strength in self.config.strengths:
            loaded, truth = open_planted(folder)
            weaken(loaded.model, truth.heads, strength)
            less = replace(self, twins=self.twins[: max(2, len(self.twins) // 2)])
            pairs = max(1, self.config.pairs // 2)
            found, seen = less.localise(loaded, truth, pairs, 0, lambda: None)
            planted = truth.mask(seen.effects.patch.shape[1:])
            for name, scores in found.items():
                recall = recall_at(scores[0], planted)
                rows.append({"localiser": name, "strength": strength, "recall": recall})
        return rows


def _best(scores: np.ndarray, k: int) -> list[Head]:
    order = np.argsort(-scores, axis=None, kind="stable")[:k]
    return [(int(i // scores.shape[1]), int(i % scores.shape[1])) for i in order]


def means(
    table: pd.DataFrame, by: Sequence[str], measures: Sequence[str], seed: int = 0
) -> list[dict[str, Any]]:
    """Mean of each measure over the models that hold, with 95 % intervals over models.

    Args:
        table: a row for each model and each combination of ``by``; ``model, failed`` and measures.
        by: columns that tell rows of one model apart.
        measures: columns; values of models that have none are left out.
        seed: of the intervals, for which models are drawn anew.
    """
    found = []
    for names, rows in table[~table["failed"]].groupby([*by], sort=False, dropna=False):
        each = {}
        for measure in measures:
            values = rows[measure].dropna().to_numpy(dtype=float)
            if len(values):
                times = draw_groups(len(values), seed=seed)
                each[measure] = asdict(estimate_mean(values, np.arange(len(values)), times))
        found.append({**dict(zip(by, names, strict=True)), "models": len(rows), **each})
    return found


def leaderboard(table: pd.DataFrame, seed: int = 0) -> list[dict[str, Any]]:
    """:func:`means` of the localisers' measures by kind, best recall first."""
    found = means(table, ("kind", "localiser"), [*HEADINGS], seed)
    return sorted(found, key=lambda row: (row["kind"], -row["recall"]["value"], row["localiser"]))


def print_leaderboard(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """A table for each kind of models."""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        title = (
            f"{kind}: {own[0]['models']} models, means (recall with 95 % intervals over models); "
            "heads claimed at a family-wise 5 %: planted (hits) and others (false)"
        )
        _print_table(console, title, own, {"localiser": "localiser"}, HEADINGS)


def print_steering(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """What two standard deviations along class means do, by heads; of planted ones all ways."""
    title = (
        f"steering by {SHOWN_ALPHA:g} standard deviations, {rows[0]['models']} models: answers "
        "that become the twin's, side questions still right; cosine to what exchanging adds, rank "
        "among random directions of equal steps"
    )
    left = {"heads": "heads", "direction": "direction"}
    percent = [
        {**row, **{m: {k: 100 * v for k, v in row[m].items()} for m in ("moved", "kept")}}
        for row in rows
        if row["alpha"] == SHOWN_ALPHA
        and (row["heads"] == "planted" or row["direction"] == SHOWN_DIRECTION)
    ]
    _print_table(console, title, percent, left, STEERED)


def _print_table(
    console: Console,
    title: str,
    rows: Sequence[dict[str, Any]],
    left: dict[str, str],
    right: dict[str, str],
) -> None:
    table = Table(title=title, title_justify="left")
    for heading in left.values():
        table.add_column(heading)
    for heading in right.values():
        table.add_column(heading, justify="right")
    for row in rows:
        cells = []
        for i, measure in enumerate(right):
            # The first measure is the one that the table is read for.
            form = "{value:.2f}" if i else "{value:.2f} [{low:.2f}, {high:.2f}]"
            cells.append(form.format(**row[measure]) if measure in row else "")
        table.add_row(*(str(row[name]) for name in left), *cells)
    console.print(table)


@claims(LOCALISATION)
def run(config: LocalisationConfig, console: Console | None = None) -> pd.DataFrame:
    """Score all localisers on all models, steer these, and draw it; prints the leaderboards.

    Returns:
        A row a model, kind and localiser: ``model, base, kind, k, failed, localiser`` and
        the measures of :data:`HEADINGS`.

    Raises:
        OptionError: no models, more pairs than twins, or a localiser that cannot be had.
        ModelError: a folder is not what ``sally-anne plant`` writes.
    """
    from experiments.localisation.figure import localisation_figure
    from figures import style

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
    bench = Bench(config, own, held_out_twins("test", config.twins))
    rows: list[dict[str, Any]] = []
    steered: list[dict[str, Any]] = []
    weaker: list[dict[str, Any]] = []
    with Bars(console) as bar:
        for folder, truth in truths.items():
            about = {"model": folder.name, "base": truth.base, "k": truth.k}
            about["failed"] = truth.failed
            for kind in ("causal", "decoy") if config.decoys and truth.decoys else ("causal",):
                loaded, here = open_planted(folder, decoys=kind == "decoy")
                task = bar.add_task(f"{folder.name}, {kind}", total=config.pairs)
                found = bench.measure(loaded, here, partial(bar.advance, task))
                rows += [{**about, "kind": kind, **row} for row in found[0]]
                steered += [{**about, "kind": kind, **row} for row in found[1]]
            weaker += [{**about, **row} for row in bench.recovery(folder)]
    tables = {TABLE: pd.DataFrame(rows)}
    content: dict[str, Any] = {"config": asdict(config)}
    content["models"] = {folder.name: asdict(truth) for folder, truth in truths.items()}
    content["rows"] = leaderboard(tables[TABLE], config.seed)
    print_leaderboard(console, content["rows"])
    if steered:
        tables[STEERING] = pd.DataFrame(steered)
        last = tables[STEERING]["kind"].iloc[-1]
        part = tables[STEERING][tables[STEERING]["kind"] == last]
        by = ("heads", "direction", "alpha")
        content["steering"] = means(part, by, [*STEERED], config.seed)
        print_steering(console, content["steering"])
    if weaker:
        tables[RECOVERY] = pd.DataFrame(weaker)
        content["recovery"] = means(
            tables[RECOVERY], ("localiser", "strength"), ["recall"], config.seed
        )
    for name, table in tables.items():
        write_atomic(config.folder / name, table.to_parquet(None, index=False))
    write_sealed(config.folder / RESULTS, content, tuple(tables))
    failed = [folder.name for folder, truth in truths.items() if truth.failed]
    if failed:
        console.print(f"not counted, since other heads carry too much: {', '.join(failed)}")
    if len(failed) < len(truths):
        figure = localisation_figure(content)
        style.save(figure, config.folder / "figures", "localisation", tables[TABLE])
    console.print(f"leaderboard: {config.folder / RESULTS}", soft_wrap=True)
    return tables[TABLE]


def localisation(*models: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook; options as of ``sally-anne localisation``."""
    config = LocalisationConfig(models=tuple(map(Path, models)), **options)
    return run(config, Console(quiet=True))
