"""An evaluation from config to table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from benchmarks.gridtom import splits
from benchmarks.gridtom.records import StorySet, open_stories
from harness.config import EvalConfig
from harness.errors import HarnessError
from harness.evaluate import ask
from harness.gridtom import items
from harness.items import Item
from harness.journal import Journal
from harness.metrics import accuracy, belief_metrics
from harness.model import SteeredModel, Steering
from harness.reporting import print_results
from hooks.atomic import write_atomic
from models.loading import LoadedModel, load_model

ANSWERS, RESULTS, TABLE = "answers.jsonl", "results.json", "answers.parquet"


def carry_out(
    config: EvalConfig,
    steering: Steering | None = None,
    console: Console | None = None,
    loaded: LoadedModel | None = None,
    about_steering: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Do the whole evaluation in ``config.folder``; what is there is not asked again.

    Args:
        config: what to do; ``config.steer`` has been read into ``steering``.
        steering: the vector.
        console: for progress and tables.
        loaded: the model if it is loaded already.
        about_steering: what identifies the vector.

    Returns:
        The scored items, see :func:`harness.evaluate.score`.

    Raises:
        HarnessError, ModelError, GridToMError, SallyAnneError: bad input, named before long work
            wherever it can be known.
    """
    console = console or Console()
    check(config)
    stories = open_stories(config.data, config.data_seed)
    questions = choose_items(config, stories)
    if loaded is None:
        loaded = load_model(config.model, config.dtype, config.device_map, config.revision)
    about = {
        "model": loaded.source,
        "revision": loaded.revision,
        "dtype": loaded.dtype,
        "task": config.task,
        "order": config.order,
        "setting": config.setting,
        "style": config.style,
        "max_new_tokens": config.max_new_tokens,
        "options": config.options,
        "steering": dict(about_steering) if about_steering else None,
        "alpha": config.alpha,
        "data": stories.fingerprint,
    }
    if steering is not None:
        # Fits or not is known from the modules alone, before the weights are read.
        steering.apply(loaded.skeleton, config.alpha)
    model = SteeredModel(loaded, steering, config.alpha)
    with Journal(config.folder / ANSWERS, about) as journal, Progress(console=console) as bar:
        task = bar.add_task(escape(f"{config.model} {config.task} {config.order}"), total=None)
        table = ask(
            model,
            questions,
            journal,
            config.batch_size,
            config.max_new_tokens,
            config.options,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    results = summarise(table, config.order)
    _save(config.folder, config, about, results, table)
    print_results(console, results, config)
    console.print(f"run folder: {escape(str(config.folder))}", soft_wrap=True)
    return table


def check(config: EvalConfig) -> None:
    """What is wrong with the options alone.

    Raises:
        HarnessError: names the option.
    """
    for option in ("limit", "batch_size", "max_new_tokens"):
        value = getattr(config, option)
        if value is not None and value < 1:
            raise HarnessError(f"--{option.replace('_', '-')} must be at least 1, got {value}")
    if config.alpha is not None and not math.isfinite(config.alpha):
        raise HarnessError(f"--alpha must be finite, got {config.alpha}")
    if config.alpha is not None and config.steer is None:
        raise HarnessError("--alpha is the strength of a vector: give one with --steer")


def choose_items(config: EvalConfig, stories: StorySet) -> list[Item]:
    """The items of the chosen split of ``stories``.

    Raises:
        HarnessError: there are none.
    """
    indices = sorted(stories.indices)
    assigned = splits.assign(len(indices), config.split_seed)
    members = sorted(indices[n] for n, split in assigned.items() if split == config.split)
    chosen = dict.fromkeys(members[: config.limit], config.split)
    if not chosen:
        raise HarnessError(f"no {config.split} stories among {len(indices)}")
    return list(
        items(
            (stories.story(i) for i in chosen), chosen, config.order, config.setting, config.style
        )
    )


def summarise(table: pd.DataFrame, order: str) -> dict[str, Any]:
    """Each reader's metrics as plain numbers: value, interval, count."""
    found: dict[str, Any] = {}
    for reader in ("robust", "official", "options"):
        if f"{reader}_correct" in table:
            found[reader] = asdict(metrics_of(table, reader, order))
    return found


def metrics_of(table: pd.DataFrame, reader: str, order: str) -> Any:
    """TB, FB, Both and invalid of belief questions; accuracy and invalid of initial ones."""
    sheet = sheet_of(table, reader)
    return accuracy(sheet) if order == "initial" else belief_metrics(sheet)


def sheet_of(table: pd.DataFrame, reader: str) -> pd.DataFrame:
    """The items as :mod:`harness.metrics` takes them, read by one reader."""
    names = {f"{reader}_correct": "correct", f"{reader}_invalid": "invalid"}
    kept = ["item_id", "story", "condition", "first", *names]
    return table[kept].rename(columns=names)


def _save(
    folder: Path,
    config: EvalConfig,
    about: Mapping[str, Any],
    results: Mapping[str, Any],
    table: pd.DataFrame,
) -> None:
    write_atomic(folder / TABLE, table.to_parquet(None, index=False))
    saved = {"config": asdict(config), "about": about, "results": results}
    text = json.dumps(saved, indent=2, default=str) + "\n"
    write_atomic(folder / RESULTS, text.encode())
