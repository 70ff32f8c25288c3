"""A sweep: every cell on validation stories, then the chosen one on test stories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import product

import pandas as pd
from rich.markup import escape

from sally_anne.core.console import Bars, Console, stage
from sally_anne.core.folder import Journal, claims, save_config
from sally_anne.core.processes import here
from sally_anne.data.lineage import SEEN
from sally_anne.figures.draw import draw_all
from sally_anne.figures.report import write_report
from sally_anne.harness.evaluate import check_items
from sally_anne.hooks.identity import ALLOW_MISMATCH
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.steering.cells import (
    BASELINE,
    Cell,
    Vectors,
    before_and_in,
    best_first,
    chance,
    choose,
    run_cells,
    vectors_of,
)
from sally_anne.steering.controls import (
    draws_of,
    left_out,
    made_worse,
    specificity,
    spread,
    without_a_head,
)
from sally_anne.steering.fit import CONTROLS, fit_vector
from sally_anne.steering.prepare import (
    SPLITS,
    Questions,
    Split,
    check,
    dry_run,
    lineage_of,
    probing_run,
    run_for,
    with_grid,
)
from sally_anne.steering.reporting import Sweep, print_sweep, save, vector_name
from sally_anne.steering.sweep import Heads, Side, SweepConfig


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
    check(config)
    questions = Questions(config)
    there = run_for(config, questions.stories)
    if loaded is None:
        opening = config.opening() | {"device_map": device_map}
        loaded = load_model(**opening, videos=config.setting != "text")
    kinds = (None, *config.sides)
    items = [item for each in product(SPLITS, kinds) for item in questions.items(*each)]
    for line in check_items(loaded, items, config.reply_tokens):
        console.print(escape(line))
    config, grid = with_grid(config, loaded)
    probed = probing_run(config, there, loaded, console)
    questions.leave_out(lineage_of(config, probed))
    if config.test and questions.unseen:
        console.print(str(questions.unseen), soft_wrap=True)

    @cache
    def fit(direction: str, k: int, seed: int, heads: Heads) -> SteeringVector:
        drawn = direction in CONTROLS and direction != config.direction
        vector = fit_vector(
            probed,
            k,
            1.0,
            direction,
            config.label,
            seed=seed,
            towards=config.towards,
            heads=heads,
            like=fit(config.direction, k, 0, heads) if drawn else None,
        )
        return (
            replace(vector, fitted={**vector.fitted, ALLOW_MISMATCH: True})
            if config.allow_mismatch
            else vector
        )

    with stage(console, f"making {len(grid)} vectors"):
        vectors = vectors_of(grid, fit)
        seed = config.seed if config.direction in CONTROLS else 0
        widest = [fit(config.direction, max(config.k or ()), seed, by) for by in config.heads]
    if processes.first:
        save_config(config.folder, asdict(config))
    about = {
        **loaded.about,
        "order": config.order,
        "setting": config.setting,
        "style": config.style,
        "max_new_tokens": config.reply_tokens,
        "label": config.label,
        "data": questions.stories.fingerprint,
        **questions.drawn,
        "fitted": dict(widest[0].fitted),
        # Of the widest vectors, which hold those of all K.
        "vector": " ".join(vector.describe()["numbers"] for vector in widest),
        "controls": "steps as long as the vector's",
    }

    def answer(
        split: Split, asked: Sequence[Cell], side: Side | None = None, stories: int | None = None
    ) -> pd.DataFrame:
        items, name = questions.items(split, side), f"{side}-{split}" if side else split
        items = items if stories is None else spread(items, stories)
        journals = Journal(config.folder / f"{name}.jsonl", about, processes)
        with journals as journal, Bars(console) as bar:
            task = bar.add_task(f"{name}: {len(asked)} settings x {len(items)} items", total=None)
            return run_cells(
                loaded,
                items,
                {cell: vectors[cell] for cell in asked},
                journal,
                config.batch_size,
                config.decode_batch_size,
                config.reply_tokens,
                lambda done, total: bar.update(task, completed=done, total=total),
            )

    validation = answer("validation", grid)
    ranked = best_first(
        validation, [c for c in grid if c.direction == config.direction], config.parser
    )
    chances = {side: chance(questions.items("validation", side)) for side in config.sides}
    chosen = choose(
        ranked,
        lambda cell, side: answer("validation", (BASELINE, cell), side),
        config.sides,
        config.parser,
        chances,
    )
    controls = tuple(
        c
        for c in grid
        if c.direction != config.direction
        and (c.k, c.alpha, c.heads) == (chosen.k, chosen.alpha, chosen.heads)
    )
    best = vectors[chosen]
    assert best is not None
    vector = config.folder / vector_name(config, best)
    if processes.first:
        if questions.lineage is not None:
            # K and alpha were chosen on these stories, whichever the run's own are.
            best = replace(best, fitted={**best.fitted, SEEN: questions.lineage.facts()})
        best.save(vector)
    test: pd.DataFrame | None = None
    draws: list[Cell] = []
    rests: Vectors = {}
    if config.test:
        test = answer("test", (BASELINE, chosen))
        draws = draws_of(chosen, config.draws, config.seed) if controls else []
        rests = without_a_head(chosen, best, config.leave_out)
        vectors |= {**vectors_of(draws, fit), **rests}
        if draws or rests:
            drawn = answer("test", (*draws, *rests), stories=config.control_stories)
            test = pd.concat([test, drawn], ignore_index=True)
    sides: dict[Side, dict[str, pd.DataFrame]] = {}
    for side in config.sides:
        tried = dict.fromkeys((BASELINE, *ranked[: ranked.index(chosen) + 1], *controls))
        sides[side] = {"validation": answer("validation", tuple(tried), side)}
        if config.test:
            tables = [answer("test", (BASELINE, chosen), side)]
            if draws:
                tables.append(answer("test", draws, side, config.control_stories))
            sides[side]["test"] = pd.concat(tables, ignore_index=True)
    sweep = Sweep(
        validation,
        test,
        chosen,
        controls,
        sides,
        vector,
        questions.lineage,
        questions.unseen,
        chances,
    )
    if test is not None:
        sweep = replace(
            sweep,
            draws=tuple(draws),
            specificity=specificity(test, chosen, draws, config.parser) if draws else None,
            left_out=left_out(test, chosen, rests, best.heads, config.parser),
            worse=made_worse(*before_and_in(test, chosen, config.parser)),
        )
    if processes.first:
        metrics, saved = save(config, about, sweep, probed.folder)
        with stage(console, "drawing the sweep"):
            draw_all(config.folder)
            write_report(config.folder)
        print_sweep(console, config, grid if config.full else ranked, sweep, metrics, saved)
    processes.wait()
    return sweep


def work(config: SweepConfig) -> None:
    """Carry out a sweep, show a finished one, or say what it would need."""
    if config.dry_run:
        dry_run(config)
    else:
        run(config)
