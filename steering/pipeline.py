"""A sweep: every cell on validation stories, then the chosen one on test stories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from figures import sweep as picture
from hooks.identity import FORCED
from hooks.vector import SteeringVector
from sally_anne.benchmarks.lineage import SEEN, Lineage
from sally_anne.core.bootstrap import Estimate
from sally_anne.core.commands import command_line, no_command
from sally_anne.core.console import Bars, Console, stage
from sally_anne.core.files import write_atomic, write_sealed
from sally_anne.core.processes import here
from sally_anne.core.run_folder import RESULTS, SWEEP, claims, save_config
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import check_items
from sally_anne.harness.items import Item
from sally_anne.harness.journal import Journal
from sally_anne.harness.metrics import mcnemar_both, over, paired_difference
from sally_anne.harness.reporting import BELIEF, percent
from sally_anne.harness.results import scores
from sally_anne.harness.work import Unseen
from sally_anne.models.loading import LoadedModel, load_model
from steering.cells import (
    BASELINE,
    Cell,
    Vectors,
    best_first,
    cell_metrics,
    choose,
    initial_gain,
    run_cells,
    vectors_of,
)
from steering.config import SweepConfig
from steering.fit import fit_vector
from steering.prepare import SPLITS, Questions, Split, check, lineage_of, probing_run, with_grid

ANSWERS, METRICS = "answers.parquet", "sweep.parquet"
# Best settings that are printed, the mark of the chosen one, and columns of the terminal.
TOP, MARK, WIDTH = 5, " *", 100
CONTROL_LABELS = {"random": "random directions", "random_heads": "random heads"}


@dataclass(frozen=True)
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
        SallyAnneError: bad input, named before long work wherever it can be known.
    """
    processes = here()
    device_map = processes.device_map(config.place)
    processes.begin()
    console = (console or Console()) if processes.first else Console(quiet=True)
    check(config)
    questions = Questions(config)
    if loaded is None:
        loaded = load_model(
            **config.opening() | {"device_map": device_map}, videos=config.setting != "text"
        )
    everything = [
        item
        for split in SPLITS
        for initial in (False, True)
        for item in questions.items(split, initial)
    ]
    for line in check_items(loaded, everything, config.reply_tokens):
        console.print(escape(line))
    config, grid = with_grid(config, loaded)
    probed = probing_run(config, questions, loaded, console)
    questions.leave_out(lineage_of(config, probed))
    if config.test and questions.unseen:
        console.print(str(questions.unseen), soft_wrap=True)

    def fit(direction: str, k: int, seed: int) -> SteeringVector:
        vector = fit_vector(
            probed, k, 1.0, direction, config.label, seed=seed, towards=config.towards
        )
        return replace(vector, fitted={**vector.fitted, FORCED: True}) if config.force else vector

    with stage(console, f"making {len(grid)} vectors"):
        vectors = vectors_of(grid, fit)
        widest = fit(config.direction, max(config.k or ()), config.seed)
    if processes.first:
        save_config(config.folder, asdict(config))
    about = {
        "model": loaded.source,
        "revision": loaded.revision,
        "dtype": loaded.dtype,
        **loaded.changes,
        "order": config.order,
        "setting": config.setting,
        "style": config.style,
        "max_new_tokens": config.reply_tokens,
        "label": config.label,
        "data": questions.stories.fingerprint,
        "fitted": dict(widest.fitted),
        # Of the widest vector, which holds those of all K.
        "vector": widest.describe()["numbers"],
    }

    def answer(split: str, items: Sequence[Item], asked: Vectors) -> pd.DataFrame:
        journals = Journal(config.folder / f"{split}.jsonl", about, processes)
        with journals as journal, Bars(console) as bar:
            task = bar.add_task(f"{split}: {len(asked)} settings x {len(items)} items", total=None)
            return run_cells(
                loaded,
                items,
                asked,
                journal,
                config.batch_size,
                config.decode_batch_size,
                config.reply_tokens,
                lambda done, total: bar.update(task, completed=done, total=total),
            )

    def initial_beliefs(split: Split, cell: Cell) -> pd.DataFrame:
        asked = {c: vectors[c] for c in (BASELINE, cell)}
        return answer(f"initial-{split}", questions.items(split, initial=True), asked)

    validation = answer("validation", questions.items("validation"), vectors)
    ranked = best_first(
        validation, [c for c in grid if c.direction == config.direction], config.reader
    )
    chosen = ranked[0]
    if config.max_initial_drop is not None:
        asking = partial(initial_beliefs, "validation")
        chosen = choose(ranked, asking, config.max_initial_drop, config.reader)
    controls = tuple(
        c
        for c in grid
        if c.direction != config.direction and (c.k, c.alpha) == (chosen.k, chosen.alpha)
    )
    best = vectors[chosen]
    assert best is not None
    vector = config.folder / vector_name(config, best)
    if processes.first:
        if questions.lineage is not None:
            # K and alpha were chosen on these stories, whichever the run's own are.
            best = replace(best, fitted={**best.fitted, SEEN: questions.lineage.facts()})
        best.save(vector)
    test = None
    against_baseline: dict[str, dict[str, Any]] = {}
    gains: dict[str, Estimate] = {}
    if config.test:
        final = {cell: vectors[cell] for cell in (BASELINE, chosen, *controls)}
        test = answer("test", questions.items("test"), final)
        for cell in (chosen, *controls):
            against_baseline[cell.name] = compare(test, cell, config.reader)
    if config.max_initial_drop is not None:
        for split in SPLITS if config.test else SPLITS[:1]:
            gains[split] = initial_gain(initial_beliefs(split, chosen), chosen, config.reader)
    sweep = Sweep(
        validation=validation,
        test=test,
        chosen=chosen,
        ranked=tuple(ranked),
        controls=controls,
        against_baseline=against_baseline,
        initial=gains,
        run=probed.folder,
        vector=vector,
        lineage=questions.lineage,
        unseen=questions.unseen,
    )
    if processes.first:
        _save(config, about, sweep)
        with stage(console, "drawing the sweep"):
            picture.draw(picture.SweepConfig(config.folder))
        print_sweep(console, config, sweep)
    processes.wait()
    return sweep


def vector_name(config: SweepConfig, vector: SteeringVector) -> str:
    """Folder of a chosen vector: what it is for, and by the end of a hash which one it is.

    Folders of evaluations are named after it.
    """
    kind = f"order{config.order}-{config.setting}-{vector.direction.replace(':', '-')}"
    return f"{kind}-K{vector.k}-alpha{vector.alpha:g}-{vector.describe()['numbers'][-6:]}"


def compare(table: pd.DataFrame, cell: Cell, reader: str) -> dict[str, Any]:
    """A cell against the baseline on the same items: paired differences, and McNemar's p."""
    before = scores(table[table["cell"] == BASELINE.name], reader)
    after = scores(table[table["cell"] == cell.name], reader)
    differences = {m: asdict(e) for m, e in paired_difference(before, after).items()}
    return {"difference": differences, "mcnemar_both": mcnemar_both(before, after)}


def metrics_table(table: pd.DataFrame, split: str, reader: str) -> pd.DataFrame:
    """One row a cell and measure.

    Returns:
        Columns ``split, cell, direction, k, alpha, measure, value, low, high, n``; where the
        interval from low to high is over maps, ``story_low, story_high`` are over stories.
    """
    over_stories = cell_metrics(table, reader, "story") if over(table) == "map" else {}
    facts = table.drop_duplicates("cell").set_index("cell")[["direction", "k", "alpha"]]
    rows = []
    for name, metrics in cell_metrics(table, reader).items():
        for measure in BELIEF:
            row = {"split": split, "cell": name, **facts.loc[name], "measure": measure}
            rows.append(row | asdict(getattr(metrics, measure)))
            if over_stories:
                beside = getattr(over_stories[name], measure)
                rows[-1] |= {"story_low": beside.low, "story_high": beside.high}
    return pd.DataFrame(rows)


def _save(config: SweepConfig, about: dict[str, Any], sweep: Sweep) -> None:
    parts = {"validation": sweep.validation}
    if sweep.test is not None:
        parts["test"] = sweep.test
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
        saved["test"] = sweep.against_baseline
    tables = [metrics_table(answers, split, config.reader) for split, answers in parts.items()]
    for name, frames in ((METRICS, tables), (ANSWERS, list(parts.values()))):
        whole = pd.concat(frames, ignore_index=True)
        write_atomic(config.folder / name, whole.to_parquet(None, index=False))
    write_sealed(config.folder / RESULTS, saved, (METRICS, ANSWERS))


def print_sweep(console: Console, config: SweepConfig, sweep: Sweep) -> None:
    """The choice, the best settings and the controls, beside the model as it is.

    Rows are at most 100 columns wide; all settings are in ``sweep.parquet``.
    """
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    chosen = sweep.chosen
    tables = [("validation", sweep.validation, [BASELINE, *sweep.ranked[:TOP]])]
    if sweep.test is not None:
        tables.append(("test", sweep.test, [BASELINE]))
    for split, answers, cells in tables:
        rows = {cell: _label(cell, chosen) for cell in (*cells, chosen, *sweep.controls)}
        everything = config.full and split == "validation"
        if everything:
            facts = answers.drop_duplicates("cell")[["direction", "k", "alpha", "seed"]]
            found = [Cell(*row) for row in facts.itertuples(index=False)]
            rows = {cell: _label(cell, chosen if cell == chosen else None) for cell in found}
        metrics = cell_metrics(answers, config.reader)
        # Without edges and wide gaps rows with intervals have room.
        table = Table(
            title=escape(f"{config.model}, order {config.order}, {split} stories (%)"),
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            caption="95 % intervals over maps" if over(answers) == "map" else None,
        )
        table.add_column("setting", no_wrap=True)
        for column in BELIEF:
            table.add_column(column, justify="right", no_wrap=True)
        group = None
        for cell, label in rows.items():
            if everything and cell.direction not in (group, BASELINE.direction):
                group = cell.direction
                table.add_row(escape(f"{CONTROL_LABELS.get(group, group)}:"))
            estimates = (getattr(metrics[cell.name], column) for column in BELIEF)
            table.add_row(label, *(percent(asdict(estimate)) for estimate in estimates))
        console.print(table)
    console.print(f"chosen on validation stories: {_label(chosen)}, direction {chosen.direction}")
    for cell in (chosen, *sweep.controls):
        if cell.name in sweep.against_baseline:
            both = percent(sweep.against_baseline[cell.name]["difference"]["Both"])
            what = _label(cell, chosen).removesuffix(MARK)
            console.print(f"{what} minus {_label(BASELINE)}, Both: {both} points on test stories")
    for split, gain in sweep.initial.items():
        moved = percent(asdict(gain))
        console.print(f"{_label(chosen)}, initial belief: {moved} points on {split} stories")
    held = sweep.initial.get("validation")
    if held is not None and -held.value > (config.max_initial_drop or 0) + 1e-9:
        console.print("no K and alpha leaves the initial belief alone: this one changes it least")
    if not config.full:
        console.print("--full prints every setting")
    console.print(f"sweep folder: {escape(str(config.folder))}", soft_wrap=True)
    console.print(f"vector: {escape(str(sweep.vector))}", soft_wrap=True)
    names = ["order", "setting", "style", "data", "max_new_tokens", "split_seed", "data_seed"]
    options = config.model_options() | {name: getattr(config, name) for name in names}
    steered = EvalConfig(steer=sweep.vector, **options)
    console.print(f"next: {escape(command_line('sally-anne evaluate', steered))}", soft_wrap=True)


def _label(cell: Cell, chosen: Cell | None = None) -> str:
    """What a row is called; ``chosen`` is marked, and controls are named by what they control."""
    if cell == BASELINE:
        return "as it is"
    if chosen is not None and cell.direction != chosen.direction:
        return CONTROL_LABELS[cell.direction]
    alpha = repr(cell.alpha).removesuffix(".0")
    return f"K {cell.k}, alpha {alpha}{MARK if cell == chosen else ''}"


if __name__ == "__main__":
    no_command("sweep")
