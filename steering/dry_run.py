"""``python -m steering.sweep --dry-run``: what a sweep would ask and need.

Nothing is computed or written. Of a published model of the catalogue neither weights nor a network
are needed (`sally_anne.models.published`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from hooks.batch_size import AUTO, MOST, in_batches
from sally_anne.benchmarks.gridtom.stories import open_stories
from sally_anne.core.console import Console
from sally_anne.core.run_folder import SWEEP, require_own
from sally_anne.harness.dry_run import loads_of, tokens_of
from sally_anne.harness.items import Item
from sally_anne.harness.pipeline import check as check_evaluation
from sally_anne.harness.work import items_of
from sally_anne.models.estimate import Counter, Figure, Load, needs, show
from sally_anne.models.published import open_described
from steering.config import SweepConfig
from steering.grid import CONTROLS
from steering.pipeline import check, evaluation_of, with_grid
from steering.probed import lineage_of, unseen_stories


def dry_run(config: SweepConfig, console: Console | None = None) -> dict[str, Figure]:
    """Say what the sweep would ask and need; the probing run that it takes comes on top.

    Returns:
        Each figure by its name.

    Raises:
        SteeringError, HarnessError, ModelError, BenchmarkError, SallyAnneError: as of the sweep
            itself, as far as it can be known without weights.
    """
    check(config)
    asked = {split: evaluation_of(config, split) for split in ("validation", "test")}
    check_evaluation(asked["test"])
    require_own(config.folder, SWEEP)
    stories = open_stories(config.data, config.data_seed)
    # A run that is made for the sweep sees none of its test stories.
    known = None if config.run is None else lineage_of(config, config.run)
    members, _, _ = unseen_stories(asked, stories, known)
    loaded = open_described(config, videos=config.setting != "text")
    config, grid = with_grid(config, loaded)
    counter = Counter(loaded)
    most = MOST if config.rows == AUTO else config.rows
    controls = len(CONTROLS) if config.controls and config.direction not in CONTROLS else 0
    # The baseline and the chosen cell, with its controls on test stories; initial beliefs without.
    cells: dict[tuple[Literal["validation", "test"], bool], int] = {
        ("validation", False): len(grid)
    }
    if config.test:
        cells["test", False] = 2 + controls
    if config.fall is not None:
        cells |= {(split, True): 2 for split, _ in list(cells)}
    figures = [
        Figure("cells", len(grid), f"{len(grid):,}", "K x alpha, controls, baseline", "exact")
    ]
    loads: list[Load] = []
    answers = 0
    for (split, first_belief), count in cells.items():
        wanted = replace(asked[split], order="initial") if first_belief else asked[split]
        items = items_of(wanted, stories, members[split])
        answers += count * len(items)
        loads += _loads(counter, items, config, count, most)
        name = f"items, {split}{', initial beliefs' if first_belief else ''}"
        figures.append(Figure(name, len(items), f"{len(items):,}", f"in {count} cells", "exact"))
    figures += [
        Figure(
            "answers", answers, f"{answers:,}", "cells x items; more if a choice falls", "exact"
        ),
        Figure("rows", most, f"{most:,}", "answers at once, at most; auto takes fewer", "exact"),
        *tokens_of(counter, loads, config.reply_tokens),
        *needs(loaded, loads, config.quantization).values(),
    ]
    show(console or Console(), loaded, figures)
    return {figure.name: figure for figure in figures}


def _loads(
    counter: Counter, items: Sequence[Item], config: SweepConfig, cells: int, most: int
) -> list[Load]:
    """Each batch is read once; its rows in all cells go on from there, so many at once."""
    found = []
    together = max(1, most // min(config.batch_size, len(items)))
    for batch in in_batches(items, config.batch_size):
        at_once = min(most, min(together, cells) * len(batch))
        for load in loads_of(counter, batch, config.reply_tokens):
            rows = load.endings * cells
            found.append(replace(load, endings=rows[:at_once], later=rows[at_once:]))
    return found
