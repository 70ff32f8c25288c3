"""An evaluation from config to table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pandas as pd
from rich.markup import escape

from hooks.batch_size import AUTO
from hooks.vector import SteeringVector
from sally_anne.core.commands import no_command
from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.options import spelled
from sally_anne.core.processes import here
from sally_anne.core.run_folder import EVALUATION, claims, save_config
from sally_anne.harness.agreement import agreement, read_labels
from sally_anne.harness.config import DEFAULT_BATCH, EvalConfig, check_steered
from sally_anne.harness.endpoint_judge import HIDDEN, EndpointJudge, public
from sally_anne.harness.evaluate import ask, check_items
from sally_anne.harness.journal import Journal, fingerprint
from sally_anne.harness.judge import LocalJudge, judge_answers
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.reporting import (
    asked_readers,
    doubts,
    print_breakdown,
    print_cells,
    print_results,
    save,
)
from sally_anne.harness.results import break_down, counts, summarise, write_submission
from sally_anne.harness.tasks import short_name
from sally_anne.harness.vectors import fitted_on, open_vector, require_fits
from sally_anne.harness.work import Work, prepare
from sally_anne.models.families import check_videos
from sally_anne.models.loading import LoadedModel, load_model

ANSWERS, TABLE = "answers.jsonl", "answers.parquet"
SUBMISSION = "submission.json"


@claims(EVALUATION)
def run(
    config: EvalConfig,
    vector: SteeringVector | None = None,
    console: Console | None = None,
    loaded: LoadedModel | None = None,
    beside: SteeringVector | None = None,
) -> pd.DataFrame:
    """Do the whole evaluation in ``config.folder``; what is there is not asked again.

    Started several times by a launcher, the processes share the items; then the first judges open
    replies, saves and prints, and the others wait for it.

    ``vector`` steers in place of the one in ``config.steer``; ``loaded`` is the model if it is
    loaded already. Of ``beside``, which does not steer here, the test stories that it was fitted on
    are left out, so that the run can be compared with one that it steers. Bad input is named before
    long work. What is returned is :func:`sally_anne.harness.results.score` of the items.
    """
    processes = here()
    device_map = processes.device_map(config.place)
    processes.begin()
    console = (console or Console()) if processes.first else Console(quiet=True)
    check(config)
    if vector is None and config.steer is not None:
        vector = open_vector(config.steer, config.force)
    fitted = vector or beside
    work = prepare(config, fitted_on(config.model, None if fitted is None else fitted.fitted))
    if work.unseen:
        console.print(str(work.unseen), soft_wrap=True)
    judge = _judge(config, work, device_map) if processes.first else None
    human = None if config.human is None else read_labels(config.human)
    videos = any(item.clip for item in work.items)
    if loaded is None:
        loaded = load_model(**config.opening() | {"device_map": device_map}, videos=videos)
    if videos:
        check_videos(loaded.family, loaded.name)
    for line in check_items(loaded, work.items, config.reply_tokens):
        console.print(escape(line))
    steered = SteeredModel(loaded, vector, config.alpha)
    about = {
        **steered.about,
        "task": short_name(config.task),
        "max_new_tokens": config.reply_tokens,
        "options": config.options,
        **work.about,
    }
    forced = require_fits(vector, loaded, config.alpha) if vector else ""
    kept = Journal(config.folder / ANSWERS, about, processes)
    with kept as journal, Bars(console) as bar:
        if processes.first:
            save_config(config.folder, saved_config(config))
        what = config.order if config.task == "gridtom" else work.about["view"]
        task = bar.add_task(escape(f"{config.model} {config.task} {what}"), total=None)
        table = ask(
            steered,
            work.items,
            journal,
            config.batch_size,
            config.reply_tokens,
            config.options,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    if not processes.first:
        processes.wait()
        return pd.read_parquet(config.folder / TABLE)
    if judge is not None:
        # Each judge keeps its own, and none asks the model again for what it has said.
        own = fingerprint(sorted(judge.about.items()))[:8]
        with Journal(config.folder / f"verdicts-{own}.jsonl", judge.about | about) as journal:
            size = DEFAULT_BATCH if config.batch_size == AUTO else config.batch_size
            table = judge_answers(table, judge, journal, size)
    agreed = None if human is None else agreement(table, human)
    number = counts(table, work.missing)
    if config.task == "gridtom":
        results = summarise(table, config.order)
    else:
        results = break_down(table, work.breakdowns, work.cells)
    if config.task == "moments":
        write_submission(table, config.folder / SUBMISSION, work.missing)
    saved = {
        "config": saved_config(config),
        "counts": number,
        "results": results,
        "about": about,
        "agreement": agreed,
        "unseen": None if work.unseen is None else asdict(work.unseen),
        "forced": forced,
    }
    texts = [item.text for item in work.items]
    save(console, config.folder / TABLE, table, saved, loaded, texts)
    printed = asked_readers(results, work.items)
    for line in doubts(printed, number, config.reply_tokens):
        console.print(line, soft_wrap=True)
    if config.task == "gridtom":
        print_results(console, printed, config)
        if reworded := number.get("reworded"):
            console.print(
                f"{reworded} of {number['asked']} questions ask for the first room, where their "
                "own wording has two right answers: an agent that walks into two rooms"
            )
    else:
        print_breakdown(console, printed, number, config, work.missing)
        print_cells(console, printed, work.cells)
    if agreed:
        console.print(
            f"judge and people agree on {100 * agreed['agreement']:.1f} % of {agreed['n']} replies "
            f"(kappa {agreed['kappa']:.2f})"
        )
    console.print(f"run folder: {escape(str(config.folder))}", soft_wrap=True)
    processes.wait()
    return table


def saved_config(config: EvalConfig) -> dict[str, Any]:
    """The options as a run's folder keeps them; an address of a judge without its secrets."""
    judge = public(config.judge) if config.judge and "://" in config.judge else config.judge
    return asdict(config) | {"judge": judge}


def check(config: EvalConfig) -> None:
    """Raise OptionError or HarnessError, which names the option, if the options alone are wrong."""
    check_steered(config)
    if config.human is not None and config.judge is None:
        raise HarnessError("--human is compared with a judge: give one with --judge")
    _check_judge(config)
    own = ("view", "window", "frames", "template", "judge")
    others = ("order", "setting", "style", "data_seed", "split_seed")
    gridtom = config.task == "gridtom"
    for option in own if gridtom else others:
        if getattr(config, option) != getattr(EvalConfig, option):
            whose = "tasks other than gridtom" if gridtom else "--task gridtom"
            raise HarnessError(f"{spelled(option)} is for {whose}")


def _check_judge(config: EvalConfig) -> None:
    """That no option of a judge is given that would do nothing, and no address is incomplete."""
    judge = config.judge
    if judge and HIDDEN in judge:
        raise HarnessError(
            f"--judge {judge} lacks its secrets, which no run folder keeps: give --judge again"
        )
    if judge and "://" in judge:
        if not config.judge_model:
            raise HarnessError("--judge with an address needs --judge-model")
        return
    why = f" at an address; --judge {judge} is a model" if judge else ": give one with --judge"
    for name in ("judge_model", "judge_key", *(() if judge else ("judge_words",))):
        if getattr(config, name) != getattr(EvalConfig, name):
            raise HarnessError(f"{spelled(name)} is for a judge{why}")


def _judge(
    config: EvalConfig, work: Work, device_map: str | None
) -> LocalJudge | EndpointJudge | None:
    """Who reads replies to open questions, if anybody does."""
    if config.judge is None:
        return None
    if any(item.options for item in work.items):
        raise HarnessError(f"--judge is for open questions; {config.task} offers options")
    words = config.judge_words
    if "://" not in config.judge:
        own = {"name": config.judge, "device_map": device_map, "revision": None}
        # A judge reads, and is shown no frames.
        return LocalJudge.open(**config.opening() | own | {"max_pixels": None}, words=words)
    place = (config.judge, config.judge_model)
    if config.judge_key is None:
        return EndpointJudge(*place, words=words)
    return EndpointJudge.with_key_from(config.judge_key, *place, words=words)


if __name__ == "__main__":
    no_command("evaluate")
