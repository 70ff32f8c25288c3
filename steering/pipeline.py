"""A sweep: every cell on validation stories, then the chosen one on test stories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.markup import escape

from hooks.batch_size import AUTO
from hooks.geometry import find_geometry
from hooks.identity import FORCED
from hooks.vector import SteeringVector
from sally_anne.benchmarks.gridtom.records import StorySet
from sally_anne.benchmarks.gridtom.stories import open_stories
from sally_anne.benchmarks.lineage import SEEN, Lineage
from sally_anne.core.bootstrap import Estimate
from sally_anne.core.commands import no_command
from sally_anne.core.console import Bars, Console, stage
from sally_anne.core.errors import SteeringError
from sally_anne.core.files import write_atomic, write_sealed
from sally_anne.core.processes import Processes, here
from sally_anne.core.run_folder import RESULTS, SWEEP, claims, save_config
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import check_items
from sally_anne.harness.items import Item
from sally_anne.harness.journal import Journal
from sally_anne.harness.metrics import mcnemar_both, over, paired_difference
from sally_anne.harness.pipeline import check as check_evaluation
from sally_anne.harness.reporting import BELIEF
from sally_anne.harness.results import scores
from sally_anne.harness.work import Unseen, items_of
from sally_anne.models.loading import LoadedModel, load_model
from steering.choose import best_first, cell_metrics, choose, initial_gain
from steering.config import SweepConfig
from steering.fit import FinishedRun, fit_vector
from steering.grid import (
    BASELINE,
    CONTROLS,
    Cell,
    cells,
    default_alphas,
    default_ks,
    vectors_of,
)
from steering.probed import lineage_of, probing_run, unseen_stories
from steering.reporting import print_sweep
from steering.sweeping import run_cells

ANSWERS, METRICS = "answers.parquet", "sweep.parquet"


@dataclass
class Sweep:
    """What a finished sweep found.

    Attributes:
        validation: answers of every cell on validation stories.
        test: answers of the baseline, the chosen cell and its controls on test stories, or None.
        chosen: K and alpha with the best Both on validation stories, of those that leave the
            initial belief alone.
        ranked: all steered cells but the controls, best first.
        controls: the same K and alpha with other directions or heads.
        against_baseline: for each steered cell on test stories, see :func:`compare`.
        initial: difference of the accuracy on initial-belief questions in the chosen cell, by
            split; empty if they were not asked.
        run: the probing run.
        vector: folder of the chosen vector.
        lineage: what the chosen vector has seen; None where the run does not say.
        unseen: how many test stories were left out as the run has seen them.
    """

    validation: pd.DataFrame
    test: pd.DataFrame | None
    chosen: Cell
    ranked: tuple[Cell, ...]
    controls: tuple[Cell, ...]
    against_baseline: dict[str, dict[str, Any]]
    initial: dict[str, Estimate]
    run: Path
    vector: Path
    lineage: Lineage | None
    unseen: Unseen


@claims(SWEEP)
def run(
    config: SweepConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> Sweep:
    """Do the whole sweep in ``config.folder``; what is there is not computed again.

    Started several times by a launcher, the processes share the items; the first one saves, draws
    and prints, and the others wait for it.

    Raises:
        SteeringError, HarnessError, ProbingError, ModelError, BenchmarkError, SallyAnneError: bad
            input, named before long work wherever it can be known.
    """
    processes = here()
    device_map = processes.device_map(config.place)
    processes.begin()
    console = (console or Console()) if processes.first else Console(quiet=True)
    check(config)
    asked = {split: evaluation_of(config, split) for split in ("validation", "test")}
    check_evaluation(asked["test"])
    stories = open_stories(config.data, config.data_seed)
    everything = [
        item
        for evaluation in asked.values()
        for each in (evaluation, replace(evaluation, order="initial"))
        for item in items_of(each, stories)
    ]
    if loaded is None:
        loaded = load_model(
            **config.opening() | {"device_map": device_map}, videos=config.setting != "text"
        )
    for line in check_items(loaded, everything, config.reply_tokens):
        console.print(escape(line))
    config, grid = with_grid(config, loaded)
    assert config.k is not None
    run = probing_run(config, stories, loaded, console)
    known = lineage_of(config, run)
    members, unseen, lineage = unseen_stories(asked, stories, known)
    items = {split: items_of(asked[split], stories, members[split]) for split in asked}
    first_beliefs = {
        split: items_of(replace(asked[split], order="initial"), stories, members[split])
        for split in asked
    }
    if config.test and unseen:
        console.print(str(unseen), soft_wrap=True)

    opened = FinishedRun.open(run)

    def fit(direction: str, k: int, seed: int) -> SteeringVector:
        vector = fit_vector(opened, k, 1.0, direction, config.label, seed=seed)
        return replace(vector, fitted={**vector.fitted, FORCED: True}) if config.force else vector

    with stage(console, f"making {len(grid)} vectors"):
        vectors = vectors_of(grid, fit)
        widest = fit(config.direction, max(config.k), config.seed)
    about = _about(config, loaded, stories, widest)
    go = partial(_run, config, console, processes, loaded, about)
    validation = go(items["validation"], vectors, "validation")
    if processes.first:
        save_config(config.folder, asdict(config))

    def initial(split: str, cell: Cell) -> pd.DataFrame:
        chosen_from = {c: vectors[c] for c in (BASELINE, cell)}
        return go(first_beliefs[split], chosen_from, f"initial-{split}")

    ranked = best_first(
        validation, [c for c in grid if c.direction == config.direction], config.reader
    )
    chosen = ranked[0]
    if config.fall is not None:
        chosen = choose(ranked, partial(initial, "validation"), config.fall, config.reader)
    controls = tuple(
        c
        for c in grid
        if c.direction != config.direction and (c.k, c.alpha) == (chosen.k, chosen.alpha)
    )
    best = vectors[chosen]
    assert best is not None
    vector = config.folder / vector_name(config, best)
    if processes.first:
        if lineage is not None:
            # K and alpha were chosen on these stories, whichever the run's own are.
            best = replace(best, fitted={**best.fitted, SEEN: lineage.facts()})
        best.save(vector)
    test = None
    if config.test:
        final = {cell: vectors[cell] for cell in (BASELINE, chosen, *controls)}
        test = go(items["test"], final, "test")
    against_baseline = {}
    if test is not None:
        against_baseline = {
            cell.name: compare(test, cell, config.reader) for cell in (chosen, *controls)
        }
    gains = {}
    if config.fall is not None:
        for split in ("validation", "test") if config.test else ("validation",):
            gains[split] = initial_gain(initial(split, chosen), chosen, config.reader)
    sweep = Sweep(
        validation=validation,
        test=test,
        chosen=chosen,
        ranked=tuple(ranked),
        controls=controls,
        against_baseline=against_baseline,
        initial=gains,
        run=run,
        vector=vector,
        lineage=lineage,
        unseen=unseen,
    )
    if processes.first:
        _save(config, about, sweep)
        # Upwards, and only here: a sweep ends with its picture, as the same command draws it.
        from figures import sweep as picture

        with stage(console, "drawing the sweep"):
            picture.draw(picture.SweepConfig(config.folder))
        print_sweep(console, config, sweep)
    processes.wait()
    return sweep


def check(config: SweepConfig) -> None:
    """What is wrong with the options alone.

    Raises:
        SteeringError: names the option.
    """
    grid = cells(
        (1,) if config.k is None else config.k,
        (1.0,) if config.alpha is None else config.alpha,
        (config.direction,),
    )
    if config.rows != AUTO and config.rows < 1:
        raise SteeringError(f"--rows must be at least 1 or auto, got {config.rows}")
    if len(grid) < 2:
        raise SteeringError("--alpha holds nothing but 0: there is nothing to sweep")


def with_grid(config: SweepConfig, loaded: LoadedModel) -> tuple[SweepConfig, list[Cell]]:
    """The options with every K and alpha, which may follow from the model, and the cells.

    Raises:
        SteeringError: the model has fewer heads than a K.
    """
    geometry = find_geometry(loaded.skeleton)
    n_layers, n_heads = geometry.n_layers, geometry.n_heads
    ks = default_ks(n_layers, n_heads) if config.k is None else config.k
    alphas = default_alphas(n_layers, n_heads) if config.alpha is None else config.alpha
    if max(ks) > n_layers * n_heads:
        raise SteeringError(
            f"--K {max(ks)}: {config.model} has {n_layers} x {n_heads} = {n_layers * n_heads} heads"
        )
    grid = cells(ks, alphas, (config.direction,), config.seed)
    if config.controls and config.direction not in CONTROLS:
        grid += cells(ks, alphas, CONTROLS, config.seed)[1:]
    return replace(config, k=ks, alpha=alphas), grid


def vector_name(config: SweepConfig, vector: SteeringVector) -> str:
    """Folder of a chosen vector: what it is for, and by the end of a hash which one it is.

    Folders of evaluations are named after it.
    """
    kind = f"order{config.order}-{config.setting}-{vector.direction.replace(':', '-')}"
    return f"{kind}-K{vector.k}-alpha{vector.alpha:g}-{vector.describe()['numbers'][-6:]}"


def evaluation_of(config: SweepConfig, split: Any) -> EvalConfig:
    """The same questions as ``sally_anne.harness.run`` would ask."""
    names = ["order", "setting", "style", "limit", "data", "split_seed", "data_seed"]
    names += ["batch_size", "max_new_tokens"]
    options = config.model_options() | {name: getattr(config, name) for name in names}
    return EvalConfig(split=split, **options)


def _about(
    config: SweepConfig, loaded: LoadedModel, stories: StorySet, vector: SteeringVector
) -> dict[str, Any]:
    """What answers depend on beside cell and item."""
    return {
        "model": loaded.source,
        "revision": loaded.revision,
        "dtype": loaded.dtype,
        **loaded.changes,
        "order": config.order,
        "setting": config.setting,
        "style": config.style,
        "max_new_tokens": config.reply_tokens,
        "label": config.label,
        "data": stories.fingerprint,
        "fitted": dict(vector.fitted),
        # Of the widest vector, which holds those of all K.
        "vector": vector.describe()["numbers"],
    }


def _run(
    config: SweepConfig,
    console: Console,
    processes: Processes,
    loaded: LoadedModel,
    about: dict[str, Any],
    items: Sequence[Item],
    vectors: dict[Cell, SteeringVector | None],
    split: str,
) -> pd.DataFrame:
    path = config.folder / f"{split}.jsonl"
    with Journal(path, about, processes) as journal, Bars(console) as bar:
        task = bar.add_task(f"{split}: {len(vectors)} settings x {len(items)} items", total=None)
        return run_cells(
            loaded,
            items,
            vectors,
            journal,
            config.batch_size,
            config.rows,
            config.reply_tokens,
            lambda done, total: bar.update(task, completed=done, total=total),
        )


def metrics_table(table: pd.DataFrame, split: str, reader: str) -> pd.DataFrame:
    """One row a cell and measure.

    Returns:
        Columns ``split, cell, direction, k, alpha, measure, value, low, high, n``; where the
        interval from low to high is over maps, ``story_low, story_high`` are over stories.
    """
    over_stories = cell_metrics(table, reader, "story") if over(table) == "map" else {}
    facts = table.drop_duplicates("cell").set_index("cell")
    rows = []
    for name, metrics in cell_metrics(table, reader).items():
        for measure in BELIEF:
            estimate = getattr(metrics, measure)
            rows.append(
                {
                    "split": split,
                    "cell": name,
                    "direction": facts.loc[name, "direction"],
                    "k": int(facts.loc[name, "k"]),
                    "alpha": float(facts.loc[name, "alpha"]),
                    "measure": measure,
                    **asdict(estimate),
                }
            )
            if over_stories:
                beside = getattr(over_stories[name], measure)
                rows[-1] |= {"story_low": beside.low, "story_high": beside.high}
    return pd.DataFrame(rows)


def compare(table: pd.DataFrame, cell: Cell, reader: str) -> dict[str, Any]:
    """A cell against the baseline on the same items: paired differences, and McNemar's p."""
    before = scores(table[table["cell"] == BASELINE.name], reader)
    after = scores(table[table["cell"] == cell.name], reader)
    differences = {m: asdict(e) for m, e in paired_difference(before, after).items()}
    return {"difference": differences, "mcnemar_both": mcnemar_both(before, after)}


def _save(config: SweepConfig, about: dict[str, Any], sweep: Sweep) -> None:
    tables = [metrics_table(sweep.validation, "validation", config.reader)]
    answers = [sweep.validation]
    saved: dict[str, Any] = {
        "config": asdict(config),
        "about": about,
        "chosen": asdict(sweep.chosen) | {"name": sweep.chosen.name},
        "run": str(sweep.run),
        "vector": sweep.vector.name,
        SEEN: None if sweep.lineage is None else sweep.lineage.facts(),
        "unseen": asdict(sweep.unseen),
        "initial": {split: asdict(gain) for split, gain in sweep.initial.items()},
    }
    if sweep.test is not None:
        tables.append(metrics_table(sweep.test, "test", config.reader))
        answers.append(sweep.test)
        saved["test"] = sweep.against_baseline
    for name, parts in ((METRICS, tables), (ANSWERS, answers)):
        whole = pd.concat(parts, ignore_index=True)
        write_atomic(config.folder / name, whole.to_parquet(None, index=False))
    write_sealed(config.folder / RESULTS, saved, (METRICS, ANSWERS))


if __name__ == "__main__":
    no_command("steering.sweep")
