"""A run of LIMP from config to files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape
from rich.table import Table

from hooks.batch_size import within_memory
from hooks.vector import SteeringVector
from sally_anne.benchmarks.items import BenchmarkItem
from sally_anne.benchmarks.muma_tom import MUMA_TOM
from sally_anne.core.commands import no_command
from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic, write_sealed
from sally_anne.core.run_folder import LIMP, RESULTS, claims, save_config
from sally_anne.harness.journal import Journal
from sally_anne.harness.limp.answering import answer_all, gather_all, persons
from sally_anne.harness.limp.config import LimpConfig
from sally_anne.harness.limp.episode import Episode, read_episodes, to_json
from sally_anne.harness.limp.gather import Account, Sources, account, read_accounts
from sally_anne.harness.limp.likelihood import ModelLikelihood, ModelWriter
from sally_anne.harness.limp.posterior import MODES
from sally_anne.harness.metrics import accuracy
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.reporting import percent
from sally_anne.harness.vectors import open_vector, require_fits
from sally_anne.models.loading import LoadedModel, load_model

READ, ANSWERS = "episodes.jsonl", "answers.jsonl"
EPISODES, TABLE = "episodes.json", "answers.parquet"


def film_frames(item: BenchmarkItem) -> np.ndarray:
    """The frames that the benchmark takes, ``uint8 [F, height, width, 3]``.

    Raises:
        ClipError: the film is missing or damaged.
    """
    from sally_anne.benchmarks.clips import read_clip

    return read_clip(item.media[0], "full", MUMA_TOM.sampling).frames


@claims(LIMP)
@within_memory("use a smaller --batch-size, or tell what films show with --actions")
def run(
    config: LimpConfig,
    vector: SteeringVector | None = None,
    console: Console | None = None,
    loaded: LoadedModel | None = None,
    frames: Callable[[BenchmarkItem], np.ndarray] = film_frames,
) -> pd.DataFrame:
    """Do the whole run in ``config.folder``; what is there is not asked again.

    Args:
        config: what to do.
        vector: steers the likelihoods in place of the one in ``config.steer``.
        console: for progress and tables.
        loaded: the model if it is loaded already.
        frames: gives a record's frames.

    Returns:
        The scored questions, see :func:`sally_anne.harness.limp.answering.score`.

    Raises:
        HarnessError, SteeringError, BenchmarkError, ModelError, SallyAnneError: bad input, named
            before long work wherever it can be known.
    """
    console = console or Console()
    config.check()
    if vector is None and config.steer is not None:
        vector = open_vector(config.steer, config.force)
    items = _chosen(MUMA_TOM.load(config.data), config.limit)
    persons(items)
    parsed = read_episodes(config.parsed) if config.parsed is not None else {}
    accounts = _accounts(config, items, parsed)
    if loaded is None:
        loaded = load_model(**config.opening(), videos=accounts is None)
    read = {
        "model": loaded.source,
        "revision": loaded.revision,
        "dtype": loaded.dtype,
        **loaded.changes,
        "max_new_tokens": config.max_new_tokens,
        "data": _hash([(i.item_id, i.question, i.options, i.context) for i in items]),
        "actions": _hash(sorted(accounts.items())) if accounts is not None else None,
        "parsed": _hash(sorted((n, to_json(e)) for n, e in parsed.items())) if parsed else None,
    }
    about = read | {"steering": vector and vector.describe(), "alpha": config.alpha}
    if vector is not None:
        require_fits(vector, loaded, config.alpha)
    writer = ModelWriter(SteeredModel(loaded), config.max_new_tokens)
    sources = Sources(writer, frames, accounts, parsed)
    judge = ModelLikelihood(SteeredModel(loaded, vector, config.alpha), config.batch_size)
    with Bars(console) as bar:
        with Journal(config.folder / READ, read) as journal:
            save_config(config.folder, asdict(config))
            reading = bar.add_task("episodes", total=len({item.group for item in items}))
            episodes = gather_all(items, sources, journal, lambda: bar.advance(reading))
        with Journal(config.folder / ANSWERS, about) as journal:
            judging = bar.add_task("questions", total=len(items))
            table = answer_all(
                items, episodes, sources, judge, journal, lambda: bar.advance(judging)
            )
    results = summarise(table)
    _save(config, about, episodes, table, results)
    _print(console, config, results)
    return table


def summarise(table: pd.DataFrame) -> dict[str, Any]:
    """Accuracy in both forms of the rule, overall and by type, and how often they agree."""
    found: dict[str, Any] = {}
    for mode in MODES:
        names = {f"{mode}_correct": "correct", f"{mode}_invalid": "invalid"}
        sheet = table[["item_id", "story", "type", *names]].rename(columns=names)
        found[mode] = asdict(accuracy(sheet, by="type"))
    found["agreement"] = float(table["agree"].mean())
    found["problems"] = {
        str(problem): int(n) for problem, n in table["problem"].value_counts().items() if problem
    }
    return found


def _chosen(items: Sequence[BenchmarkItem], limit: int | None) -> list[BenchmarkItem]:
    groups = set(list(dict.fromkeys(item.group for item in items))[:limit])
    return [item for item in items if item.group in groups]


def _accounts(
    config: LimpConfig, items: Sequence[BenchmarkItem], parsed: Mapping[str, Episode]
) -> dict[str, Account] | None:
    """What the films of the chosen episodes show; None if they are to be watched.

    Raises:
        HarnessError: an episode without entry, or a film that is not here.
        RecordError: an empty or malformed entry.
    """
    todo = {item.group: item for item in items if item.group not in parsed}
    if config.actions is None:
        for group, item in todo.items():
            if not any(media.path for media in item.media):
                raise HarnessError(
                    f"episode {group}: its film is not in {config.data}; put it there, or give "
                    "what films show with --actions, or whole episodes with --parsed"
                )
        return None
    entries = read_accounts(config.actions)
    if missing := [group for group in todo if group not in entries]:
        raise HarnessError(f"--actions {config.actions}: has no entry for episode {missing[0]}")
    return {group: account(entries[group]) for group in todo}


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _save(
    config: LimpConfig,
    about: Mapping[str, Any],
    episodes: Mapping[str, Episode],
    table: pd.DataFrame,
    results: Mapping[str, Any],
) -> None:
    folder: Path = config.folder
    forms = {number: to_json(episode) for number, episode in episodes.items()}
    saved = {"config": asdict(config), "about": about, "results": results}
    text = json.dumps(forms, indent=2, default=str) + "\n"
    write_atomic(folder / EPISODES, text.encode())
    chosen = {f"{config.mode}_{name}": name for name in ("label", "correct", "invalid")}
    table = table.assign(**{new: table[old] for old, new in chosen.items()})
    write_atomic(folder / TABLE, table.to_parquet(None, index=False))
    write_sealed(folder / RESULTS, saved, (TABLE,))


def _print(console: Console, config: LimpConfig, results: Mapping[str, Any]) -> None:
    """Accuracy by type, the run's own form of the rule first."""
    modes = sorted(MODES, key=lambda mode: mode != config.mode)
    steered = "not steered" if config.steer is None else f"steered by {config.steer.name}"
    table = Table(title=escape(f"LIMP, {config.model}, {steered} (% right)"))
    for name in ("questions", "n", *modes):
        table.add_column(name, justify="left" if name == "questions" else "right")
    first = results[modes[0]]
    for kind in ("overall", *first["groups"], "invalid"):
        cells = [results[mode].get(kind) or results[mode]["groups"][kind] for mode in modes]
        table.add_row(
            escape("all" if kind == "overall" else kind),
            str(cells[0]["n"]),
            *(percent(cell) for cell in cells),
        )
    console.print(table)
    console.print(f"both forms choose the same in {100 * results['agreement']:.1f} % of questions")
    for problem, n in results["problems"].items():
        console.print(escape(f"{n} questions without an answer: {problem}"), soft_wrap=True)
    console.print(f"run folder: {escape(str(config.folder))}", soft_wrap=True)


if __name__ == "__main__":
    no_command("sally_anne.harness.limp.run")
