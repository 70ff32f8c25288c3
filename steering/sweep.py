"""A sweep: every point on validation stories, then the chosen one on test stories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import product
from typing import Any, Literal

import pandas as pd
from rich.markup import escape

from sally_anne.core.console import Bars, Console, stage
from sally_anne.core.errors import SteeringError
from sally_anne.core.folder import Journal, claims, require_own, save_config
from sally_anne.core.options import check_options, flag_name
from sally_anne.core.processes import AUTO, MOST, here, in_batches
from sally_anne.core.run import CONFIG, Run
from sally_anne.data.gridtom import samples
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.stories import StorySet
from sally_anne.data.items import Question
from sally_anne.data.samples import SEEN, Lineage
from sally_anne.figures.draw import draw_all
from sally_anne.figures.report import write_report
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.config import check as check_evaluation
from sally_anne.harness.evaluate import check_items, fitted_on, loads_of, tokens_of
from sally_anne.harness.gridtom import choose_stories, items_of, sample_note
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.identity import ALLOW_MISMATCH, ModelIdentity, require_same
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.estimate import Counter, Figure, Load, exact, needs, open_described, show
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import run as probe
from sally_anne.steering.config import CONTROLS, FOUND, ControlTask, RankBy, SweepConfig
from sally_anne.steering.fit import fit_vector, require_patching
from sally_anne.steering.points import (
    BASELINE,
    SweepPoint,
    answer_points,
    chance,
    choose,
    control_rank,
    default_grid,
    grid_of,
    left_out,
    made_worse,
    nothing_to_choose,
    paired_scores,
    random_controls,
    rank_points,
    spread,
    vectors_of,
    without_a_head,
)
from sally_anne.steering.reporting import (
    TASK_LABELS,
    Sweep,
    print_sweep,
    save,
    save_tables,
    vector_name,
)

# Fewer stories in all leave a split without any.
FEWEST_PROBED = 20
Split = Literal["validation", "test"]
SPLITS: tuple[Split, ...] = ("validation", "test")


def work(config: SweepConfig) -> None:
    """Carry out a sweep, show a finished one, or say what it would need."""
    if config.dry_run:
        dry_run(config)
    else:
        run(config)


@claims("a sweep")
def run(
    config: SweepConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> Sweep:
    """Do the whole sweep in ``config.folder``; what is there is not computed again.

    Started several times by a launcher, the processes share the items; the first one saves, draws
    and prints, and the others wait for it.
    """
    processes = here()
    device_map = processes.device_map(config.place)
    processes.begin()
    console = (console or Console()) if processes.first else Console(quiet=True)
    questions = Questions(config)
    source = run_for(config, questions.stories)
    if loaded is None:
        opening = config.opening() | {"device_map": device_map}
        loaded = load_model(**opening, videos=config.setting != "text")
    kinds = (None, *config.control_tasks)
    items = [item for each in product(SPLITS, kinds) for item in questions.items(*each)]
    for line in check_items(loaded, items, config.reply_tokens):
        console.print(escape(line))
    config, grid = with_grid(config, loaded)
    probed = probing_run(config, source, loaded, console)
    questions.leave_out(lineage_of(config, probed))
    if config.test and questions.unseen:
        console.print(str(questions.unseen), soft_wrap=True)

    @cache
    def fit(direction: str, k: int, seed: int, rank_by: RankBy) -> SteeringVector:
        control = direction in CONTROLS
        vector = fit_vector(
            probed,
            k,
            1.0,
            direction,
            config.label,
            seed=seed,
            towards=config.towards,
            rank_by=rank_by,
            norm_matched_to=fit(config.direction, k, 0, rank_by) if control else None,
        )
        allowed = {ALLOW_MISMATCH: True} if config.allow_mismatch else {}
        return replace(vector, fitted={**vector.fitted, **allowed})

    with stage(console, f"making {len(grid)} vectors"):
        vectors = vectors_of(grid, fit)
        widest = [fit(config.direction, max(config.k or ()), 0, by) for by in config.rank_by]
    if processes.first:
        save_config(config.folder, asdict(config), loaded)
    about = {
        **loaded.about,
        **{name: getattr(config, name) for name in ("order", "setting", "style", "label")},
        "max_new_tokens": config.reply_tokens,
        "data": questions.stories.fingerprint,
        **questions.drawn,
        "fitted": dict(widest[0].fitted),
        # Of the widest vectors, which hold those of all K.
        "vector": " ".join(vector.describe()["numbers"] for vector in widest),
        "controls": "steps as long as the vector's",
    }

    def answer(
        split: Split,
        points: Sequence[SweepPoint],
        task: ControlTask | None = None,
        stories: int | None = None,
    ) -> pd.DataFrame:
        items, name = questions.items(split, task), f"{task}-{split}" if task else split
        items = items if stories is None else spread(items, stories)
        journals = Journal(config.folder / f"{name}.jsonl", about, processes)
        with journals as journal, Bars(console) as bar:
            row = bar.add_task(f"{name}: {len(points)} settings x {len(items)} items", total=None)
            return answer_points(
                loaded,
                items,
                {point: vectors[point] for point in points},
                journal,
                config.batch_size,
                config.decode_batch_size,
                config.reply_tokens,
                lambda done, total: bar.update(row, completed=done, total=total),
            )

    validation = answer("validation", grid)
    steered = [point for point in grid if point.direction == config.direction]
    ranked = rank_points(validation, steered, config.parser)
    if why := nothing_to_choose(validation, ranked, config.parser):
        if processes.first:
            save_tables(config.folder, {"validation": validation}, config.parser)
        processes.wait()
        raise SteeringError(
            f"there is nothing to choose, and no vector is saved: {why}. The answers are in "
            f"{config.folder}; other values of --K and --alpha go on from there"
        )
    chances = {task: chance(questions.items("validation", task)) for task in config.control_tasks}
    chosen = choose(
        ranked,
        lambda point, task: answer("validation", (BASELINE, point), task),
        config.control_tasks,
        config.parser,
        chances,
    )
    controls = [replace(chosen, direction=kind, seed=config.seed) for kind in config.random_kinds]
    best = vectors[chosen]
    assert best is not None
    folder = config.folder / vector_name(config, best)
    randoms = random_controls(chosen, config.random_controls, config.seed) if controls else []
    tested: dict[str, Any] = {}
    if config.test:
        rests = without_a_head(chosen, best, config.leave_out)
        vectors |= {**vectors_of(randoms, fit), **rests}
        test = answer("test", (BASELINE, chosen))
        if more := (*randoms, *rests):
            further = answer("test", more, stories=config.control_stories)
            test = pd.concat([test, further], ignore_index=True)
        tested = {
            "test": test,
            "random_controls": tuple(randoms),
            "control_rank": control_rank(test, chosen, randoms, config.parser) if randoms else None,
            "left_out": left_out(test, chosen, rests, best.heads, config.parser),
            "worse": made_worse(*paired_scores(test, chosen, config.parser)),
        }
    tasks: dict[ControlTask, dict[str, pd.DataFrame]] = {}
    for task in config.control_tasks:
        tried = dict.fromkeys((BASELINE, *ranked[: ranked.index(chosen) + 1], *controls))
        tasks[task] = {"validation": answer("validation", tuple(tried), task)}
        if config.test:
            tables = [answer("test", (BASELINE, chosen), task)]
            if randoms:
                tables.append(answer("test", randoms, task, config.control_stories))
            tasks[task]["test"] = pd.concat(tables, ignore_index=True)
    sweep = Sweep(
        validation,
        chosen,
        tuple(controls),
        tasks,
        folder,
        questions.lineage,
        questions.unseen,
        chances,
        **tested,
    )
    if processes.first:
        metrics, saved = save(config, about, sweep, probed.folder)
        # K and alpha were chosen on the stories that were seen, whichever the run's own are.
        more = {name: saved[name] for name in (SEEN, FOUND) if saved.get(name)}
        replace(best, fitted={**best.fitted, **more}).save(folder)
        with stage(console, "drawing the sweep"):
            draw_all(config.folder)
            write_report(config.folder)
        print_sweep(console, config, ranked, sweep, metrics, saved)
    processes.wait()
    return sweep


def with_grid(config: SweepConfig, loaded: LoadedModel) -> tuple[SweepConfig, list[SweepPoint]]:
    """The options with every K and alpha, which may follow from the model, and the points."""
    geometry = find_geometry(loaded.skeleton)
    n_layers, n_heads = geometry.n_layers, geometry.n_heads
    ks, alphas = default_grid(n_layers, n_heads)
    ks, alphas = config.k or ks, config.alpha or alphas
    if max(ks) > n_layers * n_heads:
        raise SteeringError(
            f"--K {max(ks)}: {config.model} has {n_layers} x {n_heads} = {n_layers * n_heads} heads"
        )
    directions = (config.direction, *config.random_kinds)
    grid = grid_of(ks, alphas, directions, config.seed, config.rank_by)
    return replace(config, k=ks, alpha=alphas), grid


class Questions:
    """The stories that a sweep asks about, and their items.

    ``members`` are the splits of their numbers, by split; ``unseen`` is what was left out of the
    test stories, ``lineage`` what the chosen vector has seen; None where the run does not say.
    """

    def __init__(self, config: SweepConfig) -> None:
        check_options(config)
        for name in ("k", "alpha", "rank_by"):
            values = getattr(config, name)
            if values is not None and not any(values):
                raise SteeringError(f"{flag_name(name)} is empty or 0: there is nothing to sweep")
        names = ["order", "setting", "style", "limit", "data", "split_seed", "data_seed"]
        options = config.model_options(*names, "batch_size", "max_new_tokens")
        self._configs = {split: EvalConfig(split=split, **options) for split in SPLITS}
        check_evaluation(self._configs["test"])
        self.drawn = sample_note(self._configs["test"])
        self.stories = open_stories(config.data, config.data_seed)
        self.leave_out(Lineage())

    def leave_out(self, lineage: Lineage | None) -> None:
        """Ask about no story that a run of this lineage, None if unknown, has seen.

        What trained the probes does not validate; what trained, or chose heads, K or alpha, is not
        tested.
        """
        before = lineage or Lineage()
        validation, _ = choose_stories(self._configs["validation"], self.stories, before.train)
        after = before.chosen_on(self.stories.identity(i).content for i in validation)
        test, unseen = choose_stories(self._configs["test"], self.stories, after.seen)
        self.members: dict[Split, dict[int, str]] = {"validation": validation, "test": test}
        self.unseen = replace(unseen, known=False) if lineage is None else unseen
        self.lineage = None if lineage is None else after

    def items(self, split: Split, task: ControlTask | None = None) -> list[Question]:
        """The belief questions of a split, or its control questions of one kind."""
        config = self._configs[split]
        config = replace(config, order=task) if task else config
        return items_of(config, self.stories, self.members[split])


def lineage_of(config: SweepConfig, run: Run) -> Lineage | None:
    """Stories that a probing run, and what is baked into the model, has seen; None if unknown."""
    lineage = Lineage.read(fitted_on(config.model, run.saved), str(run.folder / CONFIG))
    if lineage is None and not config.allow_mismatch:
        raise SteeringError(
            f"{run.folder} does not say which stories it was fitted on: make it again with "
            "`sally-anne probe` and another --out, or pass --allow-mismatch"
        )
    return lineage


def run_for(config: SweepConfig, stories: StorySet) -> Run | ProbeConfig:
    """The probing run that a sweep takes, or the one that has to be made first.

    With ``--limit`` that is one of few stories, unless there is one of all already.
    """
    options = config.model_options("setting", "data", "batch_size", "split_seed", "data_seed")
    # Nulls and patching are not needed, unless heads are chosen by them.
    if "patching" not in config.rank_by:
        options |= {"permutations": 0, "patching": False}
    probing = ProbeConfig(order=1 if config.order == "1" else 2, **options)
    if config.limit is not None and not (probing.folder / CONFIG).exists():
        most = len(samples.assign(stories, config.split_seed))
        few = min(most, max(FEWEST_PROBED, 3 * config.limit))
        probing = replace(probing, stories=few)
    if config.run is None and not (probing.folder / CONFIG).exists():
        return probing
    run = Run.open(config.run or probing.folder)
    if "patching" in config.rank_by:
        require_patching(run)
    return run


def probing_run(
    config: SweepConfig, run: Run | ProbeConfig, loaded: LoadedModel, console: Console
) -> Run:
    """That of :func:`run_for`, of this very model, made now if it is not there."""
    if isinstance(run, ProbeConfig):
        console.print(f"first the probes: {escape(str(run.folder))}")
        probe(run, console)
        run = Run.open(run.folder)
    if not config.allow_mismatch:
        remedy = "make one with `sally-anne probe --out DIR` for --run, or pass --allow-mismatch"
        made_with = ModelIdentity.of_run(run.saved.get("model", {}))
        require_same(f"the probing run {run.folder}", made_with, loaded.identity, remedy)
    return run


def dry_run(config: SweepConfig, console: Console | None = None) -> dict[str, Figure]:
    """Print what the sweep would ask and need, by name, without the probing run."""
    questions = Questions(config)
    require_own(config.folder, "a sweep")
    # A run that is made for the sweep sees none of its test stories.
    if isinstance(run := run_for(config, questions.stories), Run):
        questions.leave_out(lineage_of(config, run))
    loaded = open_described(config, videos=config.setting != "text")
    config, grid = with_grid(config, loaded)
    counter = Counter(loaded)
    most = MOST if config.decode_batch_size == AUTO else config.decode_batch_size
    k, kinds = max(config.k or ()), len(config.random_kinds)
    rests = min(config.leave_out, k) if k > 1 else 0
    # Items and the points at which they are asked: the baseline and the chosen one; controls, and
    # on test stories the vector without each head, on fewer stories.
    parts: dict[str, tuple[list[Question], int]] = {}
    splits = SPLITS if config.test else SPLITS[:1]
    for split, task in product(splits, (None, *config.control_tasks)):
        name = f"{split}, {TASK_LABELS[task]}" if task else split
        items, count = questions.items(split, task), kinds
        swept = (split, task) == ("validation", None)
        parts[name] = items, len(grid) if swept else 2
        if split == "test":
            items = spread(items, config.control_stories)
            count = kinds * config.random_controls + (0 if task else rests)
        if count and not swept:
            parts[f"{name}, controls"] = items, count
    figures = [exact("points", len(grid), "K x alpha, controls, baseline")]
    loads: list[Load] = []
    for name, (items, count) in parts.items():
        # Each batch is read once; its rows at all points go on from there, so many at once.
        together = max(1, most // min(config.batch_size, len(items)))
        for batch in in_batches(items, config.batch_size):
            at_once = min(most, min(together, count) * len(batch))
            for load in loads_of(counter, batch, config.reply_tokens):
                rows = load.endings * count
                loads.append(replace(load, endings=rows[:at_once], later=rows[at_once:]))
        figures.append(exact(f"items, {name}", len(items), f"at {count} points"))
    answers = sum(load.rows for load in loads)
    more = "points x items; more if the first choices lower the accuracy on side questions"
    figures += [
        exact("answers", answers, more),
        exact("decode batch", most, "answers at once; auto takes fewer"),
        *tokens_of(counter, loads),
        *needs(loaded, loads, config.quantization).values(),
    ]
    return show(console or Console(), loaded.name, figures)
