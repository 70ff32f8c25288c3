"""A sweep: every point on validation stories or pairs, then the chosen one on those that test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from rich.markup import escape

from sally_anne.core.bootstrap import Estimate
from sally_anne.core.console import Console, counting, percent, print_lines, print_table, stage
from sally_anne.core.errors import SteeringError
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import RESULTS, Journal, claims, require_own, save_config
from sally_anne.core.options import check_options, flag_name
from sally_anne.core.processes import here
from sally_anne.core.run import CONFIG, Head, Run
from sally_anne.data.samples import SEEN, Lineage
from sally_anne.figures.config import FiguresConfig
from sally_anne.figures.draw import ANSWERS, SWEEP, draw
from sally_anne.figures.page import after_sweep
from sally_anne.figures.report import NAME, write_report
from sally_anne.figures.sweep import ROUNDING, SIDES, aim, amount, cautions, lost, tested
from sally_anne.harness.score import over
from sally_anne.harness.tasks import LeftOut
from sally_anne.hooks.identity import ALLOW_MISMATCH, ModelIdentity, require_same
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.estimate import Figure, exact, open_described, show
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.processor import RAW
from sally_anne.probing.activations import reopen
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import run as probe
from sally_anne.steering.config import CONTROLS, FOUND, OF_PROBES, RankBy, SweepConfig
from sally_anne.steering.fit import fit_vector, read_patched, require_patching
from sally_anne.steering.pairs import Pairs
from sally_anne.steering.points import (
    BASELINE,
    Measure,
    SweepPoint,
    ends,
    random_controls,
    vectors_of,
    with_grid,
    without_a_head,
)
from sally_anne.steering.questions import Questions

# Options that mean nothing where pairs are read, and where stories are asked about.
OF_STORIES = "protocol parser max_new_tokens contrast max_initial_drop max_reality_drop"
OF_PAIRS = "max_text_drop max_other_drop"
NOT_SPECIFIC = "not specific"
# Columns that describe a point, besides its name.
FACTS = ["direction", "rank_by", "k", "alpha"]
# Answers by what they are to (None: the questions or pairs that settings are chosen by) and split.
Tables = Mapping[tuple[str | None, str], pd.DataFrame]


class NothingToChooseError(SteeringError):
    """No setting is better than the baseline on what chooses."""


@dataclass(frozen=True)
class Sweep:
    """Results of a finished sweep.

    ``tables`` are answers of every point on validation items; of the baseline, the chosen point and
    the random controls on test items; and the same of what steering should leave alone, of the
    points that were tried for the choice, the choice and its controls.
    """

    measure: Measure
    tables: Tables
    chosen: SweepPoint
    vector: Path  # folder of the chosen vector
    lineage: Lineage | None  # what that has seen; None where the run does not say
    unseen: LeftOut  # test stories that were left out, as the run has seen them
    gains: dict[str, dict[str, Estimate]]  # of what steering should leave alone, by task and split
    random_controls: list[SweepPoint]
    control_rank: dict[str, Any] | None  # as of the measure, as the last two
    left_out: list[dict[str, Any]]
    worse: Estimate | None

    @property
    def test(self) -> pd.DataFrame:
        """Answers to test items."""
        return self.tables[None, "test"]


def work(config: SweepConfig) -> None:
    """Carry out a sweep, show a finished one, or say what it would need."""
    if config.run is not None:
        config = of_run(config, Run.open(config.run))
    (dry_run if config.dry_run else run)(config)


def of_run(config: SweepConfig, run: Run) -> SweepConfig:
    """The options with task, samples and position of a probing run; SteeringError for others."""
    own = {n: getattr(SweepConfig, n) for n in ("task", "samples", "position", *OF_PROBES[:-1])}
    own |= {name: value for name in own if (value := run.config.get(name)) is not None}
    for name, value in own.items():
        given = str(getattr(config, name))
        if given not in (str(getattr(SweepConfig, name)), str(value)):
            raise SteeringError(f"{flag_name(name)} {given}: {run.folder} is of {value}")
    own["samples"] = own["samples"] and Path(own["samples"])
    pairs = own["samples"] or own["task"] != SweepConfig.task
    frame = {name: run.config[name] for name in ("setting", "prompt")} if pairs else {}
    return replace(config, **own, **frame)


def opened(config: SweepConfig) -> Questions | Pairs:
    """What a sweep asks; an OptionError or SteeringError for options that do not go with it."""
    check_options(config)
    for name in ("k", "alpha", "rank_by"):
        values = getattr(config, name)
        if values is not None and not any(values):
            raise SteeringError(f"{flag_name(name)} is empty or 0: there is nothing to sweep")
    for name in (OF_STORIES if config.on_pairs else OF_PAIRS).split():
        if getattr(config, name) != getattr(SweepConfig, name):
            there = "pairs" if config.on_pairs else "stories"
            raise SteeringError(f"{flag_name(name)} does not go with a sweep over {there}")
    if config.direction == "patched_mean" and {"y_p", "y_o"} & {*config.also}:
        raise SteeringError("--also: of patched_mean there is one direction, whatever the label")
    return Pairs(config) if config.on_pairs else Questions(config)


def run_for(config: SweepConfig, asked: Questions | Pairs) -> Run | ProbeConfig:
    """The probing run that a sweep takes, or the one that has to be made first."""
    probing = asked.source
    if config.run is None and not _finished(probing.folder):
        return probing
    run = Run.open(config.run or probing.folder)
    if "patching" in config.rank_by:
        require_patching(run)
    return run


def _finished(folder: Path) -> bool:
    """Whether a probing run is there with all that it was to do; it names its figures last."""
    if not (folder / CONFIG).exists():
        return False
    run = Run.open(folder)
    figures = run.results.get("figures")
    return bool(figures) if run.config.get("figures") else figures is not None


def probing_run(
    config: SweepConfig, run: Run | ProbeConfig, loaded: LoadedModel, console: Console
) -> Run:
    """A finished run of this very model; one that is only described is made, or ended, now."""
    if isinstance(run, ProbeConfig):
        if config.position is None and loaded.prompt == RAW:  # it has no turns
            run = replace(run, position="statement")
        if not _finished(run.folder):
            console.print(f"first the probes: {escape(str(run.folder))}")
            # What was killed goes on with its own options.
            probe(reopen(run.folder).probing if (run.folder / CONFIG).exists() else run, console)
        run = Run.open(run.folder)
    if not config.allow_mismatch:
        remedy = "make one with `sally-anne probe --out DIR` for --run, or pass --allow-mismatch"
        made_with = ModelIdentity.of_run(run.saved.get("model", {}))
        require_same(f"the probing run {run.folder}", made_with, loaded.identity, remedy)
    return run


@claims("a sweep")
def run(
    config: SweepConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> Sweep:
    """Do the whole sweep in ``config.folder``; what is there is not computed again.

    Processes of a launcher share the items; the first one saves and prints, the others wait.
    """
    processes = here()
    device_map = processes.device_map(config.place)
    processes.begin()
    console = (console or Console()) if processes.first else Console(quiet=True)
    asked = opened(config)
    measure, source = asked.measure, run_for(config, asked)
    if loaded is None:
        loaded = load_model(**config.opening() | {"device_map": device_map}, videos=asked.shows)
    console.print(f"{escape(loaded.described)}: {config.part}, setting {config.setting}")
    asked.check(loaded)
    config, grid = with_grid(config, loaded)
    probed = probing_run(config, source, loaded, console)
    asked.leave_out(probed)
    if asked.unseen:
        print_lines(console, [str(asked.unseen)])
    patched = None
    if "patched_mean" in (config.direction, *config.also):
        where = reopen(probed.folder), asked.about["label"], console, loaded
        patched = read_patched(*where, kept=config.folder / "patched")

    @cache
    def fit(direction: str, k: int, seed: int, rank_by: RankBy) -> SteeringVector:
        own: dict[str, Any] = {"seed": seed, "towards": config.towards, "rank_by": rank_by}
        if direction in CONTROLS:
            own["norm_matched_to"] = fit(config.direction, k, 0, rank_by)
        label = asked.about["label"]
        if direction in probed.labels:
            own["towards"], label, direction = None, direction, config.direction
        vector = fit_vector(probed, k, 1.0, direction, label, patched=patched, **own)
        allowed = {ALLOW_MISMATCH: True} if config.allow_mismatch else {}
        site = config.steer_site or vector.site
        return replace(vector, site=site, fitted={**vector.fitted, **allowed})

    with stage(console, f"making {len(grid)} vectors"):
        vectors = vectors_of(grid, fit)
        widest = [fit(config.direction, max(config.k or ()), 0, by) for by in config.rank_by]
    if processes.first:
        save_config(config.folder, asdict(config), loaded)
    # The widest vectors hold those of all K.
    numbers = " ".join(vector.describe()["numbers"] for vector in widest)
    about = {**loaded.about, **asked.about, "fitted": dict(widest[0].fitted), "vector": numbers}
    if (site := widest[0].site) != probed.config.get("site", probed.store.meta.site):
        about["steer_site"] = site

    def answer(
        split: str, points: Sequence[SweepPoint], task: str | None = None, most: int | None = None
    ) -> pd.DataFrame:
        items, name = asked.items(split, task, most), f"{task}-{split}" if task else split
        journals = Journal(config.folder / f"{name}.jsonl", about, processes)
        what = f"{name}: {len(points)} settings x {len(items)} items"
        with journals as journal, counting(console, what) as show:
            own = {point: vectors[point] for point in points}
            return asked.answer(loaded, items, task, own, journal, show)

    validation = answer("validation", grid)
    steered = [point for point in grid if point.direction == config.direction]
    ranked = measure.rank(validation, steered)
    if why := measure.nothing_to_choose(validation, ranked[0]):
        if processes.first:
            save_tables(config.folder, measure, {(None, "validation"): validation})
        processes.wait()
        remedy = f"Other values of --alpha go on from {config.folder}, of --K with another --out"
        raise NothingToChooseError(f"nothing to choose, no vector is saved: {why}. {remedy}")
    chosen = measure.choose(
        ranked, lambda point, task: answer("validation", (BASELINE, point), task), config.tasks
    )
    best = vectors[chosen]
    assert best is not None
    name = f"{config.part}-{best.direction.replace(':', '-')}-K{best.k}-alpha{best.alpha:g}"
    folder = config.folder / f"{name}-{best.describe()['numbers'][-6:]}"
    count = config.random_controls if config.controls else 0
    randoms = random_controls(chosen, count, config.seed)
    rests = without_a_head(chosen, best, config.leave_out)
    vectors |= {**vectors_of(randoms, fit), **rests}
    test = answer("test", grid if config.curves == "test" else (BASELINE, chosen))
    if more := (*randoms, *rests):
        test = pd.concat([test, answer("test", more, most=config.control_stories)])
        test = test.drop_duplicates(["point", "item_id"], ignore_index=True)
    tables: dict[tuple[str | None, str], pd.DataFrame] = {(None, "validation"): validation}
    tables[None, "test"] = test
    gains: dict[str, dict[str, Estimate]] = {}
    controls = random_controls(chosen, int(config.controls), config.seed)
    for task in config.tasks:
        tried = dict.fromkeys((BASELINE, *ranked[: ranked.index(chosen) + 1], *controls))
        tables[task, "validation"] = answer("validation", tuple(tried), task)
        own = [answer("test", (BASELINE, chosen), task)]
        own += [answer("test", randoms, task, config.control_stories)] if randoms else []
        tables[task, "test"] = pd.concat(own, ignore_index=True)
        splits = ("validation", "test")
        gains[task] = {s: measure.gain(tables[task, s], chosen, task) for s in splits}
    rank = measure.control_rank(test, chosen, randoms) if randoms else None
    left_out = measure.left_out(test, chosen, rests, best.heads)
    found = gains, randoms, rank, left_out, measure.worse(*ends(test, chosen))
    sweep = Sweep(measure, tables, chosen, folder, asked.lineage, asked.unseen, *found)
    if processes.first:
        metrics, saved = save(config, about, sweep, probed.folder)
        # K and alpha were chosen on the stories that were seen, whichever the run's own are.
        facts = {name: saved[name] for name in (SEEN, FOUND) if saved.get(name)}
        replace(best, fitted={**best.fitted, **facts}).save(folder)
        with stage(console, "drawing the sweep"):
            draw(FiguresConfig(config.folder))
            write_report(config.folder)
        print_sweep(console, config, sweep, metrics, saved)
    processes.wait()
    return sweep


def dry_run(config: SweepConfig, console: Console | None = None) -> dict[str, Figure]:
    """Print what the sweep would ask and need, by name, without the probing run."""
    asked = opened(config)
    require_own(config.folder, "a sweep")
    # A run that is made for the sweep sees none of its test stories.
    if isinstance(run := run_for(config, asked), Run):
        asked.leave_out(run)
    loaded = open_described(config, videos=asked.shows)
    config, grid = with_grid(config, loaded)
    kinds, few = len(CONTROLS) if config.controls else 0, config.control_stories
    rests = min(config.leave_out, k) if (k := max(config.k or ())) > 1 else 0
    # Items and the points at which they are asked: the baseline and the chosen one; controls, and
    # on test stories the vector without each head, on fewer stories.
    parts: dict[str, tuple[list[Any], int]] = {}
    for split, task in product(("validation", "test"), (None, *config.tasks)):
        name, test = f"{split}, {SIDES[task]}" if task else split, split == "test"
        swept = not task and (not test or config.curves == "test")
        parts[name] = asked.items(split, task), len(grid) if swept else 2
        count = config.random_controls if test else int(task is not None)
        more = kinds * count + (rests if test and not task else 0)
        parts[f"{name}, controls"] = asked.items(split, task, few if test else None), more
    parts = {name: part for name, part in parts.items() if part[1]}
    figures = [exact("points", len(grid), "K x alpha, controls, baseline")]
    figures += [
        exact(f"items, {name}", len(items), f"points: {count}")
        for name, (items, count) in parts.items()
    ]
    return show(console or Console(), loaded.name, [*figures, *asked.needs(loaded, parts)])


def save_tables(folder: Path, measure: Measure, tables: Tables) -> pd.DataFrame:
    """Write the answers, and the metrics of every point, which are returned: a row a measure."""
    rows: list[dict[str, Any]] = []
    for (task, split), table in tables.items():
        for name, part in table.groupby("point", sort=False):
            about = {"split": split, "point": name, **part.iloc[0][FACTS]}
            own = measure.of(part, task)
            rows += [{**about, "measure": each, **asdict(one)} for each, one in own.items()]
    metrics = pd.DataFrame(rows)
    answers = pd.concat([t for (task, _), t in tables.items() if not task], ignore_index=True)
    for name, table in ((SWEEP, metrics), (ANSWERS, answers)):
        write_atomic(folder / name, table.to_parquet(None, index=False))
    return metrics


def save(
    config: SweepConfig, about: dict[str, Any], sweep: Sweep, probed: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Write tables and results; return the metrics and the results."""
    measure, chosen, rank = sweep.measure, sweep.chosen, sweep.control_rank
    changes = measure.change(*ends(sweep.test, chosen))
    difference = {name: asdict(one) for name, one in changes.items()}
    gain = amount(difference[measure.main], measure.main)
    found = f"{measure.main}, less the baseline's: {gain} on test {measure.noun}"
    guessed = {t: measure.guessed(sweep.tables[t, "validation"], t) for t in sweep.gains}
    saved: dict[str, Any] = {
        "config": asdict(config) | {"label": about["label"]},
        "about": about,
        "chosen": asdict(chosen) | {"name": chosen.name},
        "run": str(probed),
        "vector": sweep.vector.name,
        SEEN: sweep.lineage and sweep.lineage.facts(),
        "unseen": asdict(sweep.unseen),
        "test": {chosen.name: {"difference": difference}},
        "control_rank": rank,
        "left_out": sweep.left_out,
        "worse": sweep.worse and asdict(sweep.worse),
        FOUND: f"{found}; {describe_rank(rank)}" if rank else found,
        "guessed": {task: one for task, one in guessed.items() if one},
    }
    for task, gains in sweep.gains.items():
        saved[task] = {split: asdict(gain) for split, gain in gains.items()}
    metrics = save_tables(config.folder, measure, sweep.tables)
    write_json(config.folder / RESULTS, saved)
    return metrics, saved


def print_sweep(
    console: Console,
    config: SweepConfig,
    sweep: Sweep,
    metrics: pd.DataFrame,
    saved: dict[str, Any],
) -> None:
    """Print the choice next to the baseline and its controls, its costs, and what to do next."""
    measure, chosen, noun = sweep.measure, sweep.chosen, sweep.measure.noun
    points = tested(metrics, saved["chosen"])

    def cell(one: dict[str, Any], name: str) -> Any:
        return one if measure.unit == "%" else amount(one, name).rpartition(" ")[0]

    setting = f"K {chosen.k}, alpha {chosen.alpha:g}"
    rows = [
        [setting if name == "chosen" else name, *(cell(own[m], m) for m in measure.columns)]
        for name, own in points.items()
    ]
    notes = ["95 % intervals over maps"] if over(sweep.test) == "map" else []
    notes += ["of random controls the lowest and the highest"] if sweep.random_controls else []
    what = config.part if config.on_pairs else f"order {config.order}"
    title = f"{config.model}, {what}, test {noun} ({measure.unit})"
    print_table(console, title, ["setting", *measure.columns], rows, "; ".join(notes))
    how = f"direction {chosen.direction}, heads by {chosen.rank_by.replace('_', ' ')}"
    lines = [f"chosen: {setting}, {how}, {aim(saved)[0]}", *saved[FOUND].split("; ")]
    if sweep.worse:
        lines += [f"made worse: {percent(saved['worse'])} % of test {noun}"]
    if needed := [str(Head(r["layer"], r["head"])) for r in sweep.left_out if r["low"] > 0]:
        lines += [f"{measure.main} falls without {', '.join(needed)}"]
    lines += [f"cost: {lost(task, 'test', saved[task]['test'], noun)}" for task in sweep.gains]
    lines += [*cautions(saved), f"report: {config.folder / NAME}"]
    print_lines(console, [*lines, f"next: {after_sweep(asdict(config), sweep.vector)}"])


def describe_rank(rank: Mapping[str, Any]) -> str:
    """Rank among random controls, and what follows."""
    why = "too few random controls (--random-controls 20)"
    if rank["rank"] > 1:
        why = "random controls with steps of the same length do as well"
    elif rank["gain"] <= ROUNDING:
        why = "the baseline does as well"
    specific = rank["beats_controls"]
    conclusion = "above all its controls" if specific else f"{NOT_SPECIFIC}: {why}"
    return f"rank {rank['rank']} of {rank['of']}, {conclusion}"
