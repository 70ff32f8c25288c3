"""An evaluation from config to table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd
from rich.markup import escape

from hooks.batch_size import AUTO
from hooks.vector import SteeringVector
from sally_anne.core.commands import no_command
from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic, write_sealed
from sally_anne.core.processes import here
from sally_anne.core.run_folder import EVALUATION, RESULTS, claims, save_config
from sally_anne.harness.agreement import agreement, read_labels
from sally_anne.harness.config import DEFAULT_BATCH, EvalConfig, check_steered
from sally_anne.harness.endpoint_judge import HIDDEN, EndpointJudge, public
from sally_anne.harness.evaluate import ask, check_items
from sally_anne.harness.journal import Journal
from sally_anne.harness.judge import judge_answers
from sally_anne.harness.local_judge import LocalJudge
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.reporting import asked_readers, print_breakdown, print_results
from sally_anne.harness.results import break_down, counts, summarise, write_submission
from sally_anne.harness.tasks import short_name
from sally_anne.harness.vectors import fitted_on, open_vector, require_fits
from sally_anne.harness.work import Work, prepare
from sally_anne.models.families import check_videos
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.processor import unknown_words

ANSWERS, TABLE = "answers.jsonl", "answers.parquet"
VERDICTS, SUBMISSION = "verdicts.jsonl", "submission.json"


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

    Args:
        config: what to do.
        vector: steers in place of the one in ``config.steer``.
        console: for progress and tables.
        loaded: the model if it is loaded already.
        beside: a vector that does not steer here: the test stories that it was fitted on are left
            out, so that the run can be compared with one that it steers.

    Returns:
        The scored items, see :func:`sally_anne.harness.results.score`.

    Raises:
        HarnessError, SteeringError, ModelError, BenchmarkError, SallyAnneError: bad input, named
            before long work wherever it can be known.
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
    about = {
        "model": loaded.source,
        "revision": loaded.revision,
        "dtype": loaded.dtype,
        **loaded.changes,
        "task": short_name(config.task),
        "max_new_tokens": config.reply_tokens,
        "options": config.options,
        "steering": vector and vector.describe(),
        "alpha": config.alpha,
        **work.about,
    }
    forced = require_fits(vector, loaded, config.alpha) if vector else ""
    unknown = unknown_words(loaded, (item.text for item in work.items))
    kept = Journal(config.folder / ANSWERS, about, processes)
    with kept as journal, Bars(console) as bar:
        if processes.first:
            save_config(config.folder, saved_config(config))
        what = config.order if config.task == "gridtom" else work.about["view"]
        task = bar.add_task(escape(f"{config.model} {config.task} {what}"), total=None)
        table = ask(
            SteeredModel(loaded, vector, config.alpha),
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
        with Journal(config.folder / VERDICTS, judge.about | about) as journal:
            size = DEFAULT_BATCH if config.batch_size == AUTO else config.batch_size
            table = judge_answers(table, judge, journal, size)
    facts = {
        "about": about,
        "unknown_words": asdict(unknown),
        "agreement": None if human is None else agreement(table, human),
        "unseen": None if work.unseen is None else asdict(work.unseen),
        "forced": forced,
    }
    _finish(config, work, table, facts, console, unknown.warning(loaded.name))
    processes.wait()
    return table


def saved_config(config: EvalConfig) -> dict[str, Any]:
    """The options as a run's folder keeps them; an address of a judge without its secrets."""
    judge = public(config.judge) if config.judge and "://" in config.judge else config.judge
    return asdict(config) | {"judge": judge}


def check(config: EvalConfig) -> None:
    """What is wrong with the options alone.

    Raises:
        OptionError, HarnessError: names the option.
    """
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
            raise HarnessError(f"--{option.replace('_', '-')} is for {whose}")


def _check_judge(config: EvalConfig) -> None:
    """That no option of a judge is given that would do nothing, and no address is incomplete."""
    judge = config.judge
    if judge and HIDDEN in judge:
        raise HarnessError(
            f"--judge {judge} lacks its secrets, which no run folder keeps: give --judge again"
        )
    fields = ["judge_model", "judge_key"] if judge else ["judge_model", "judge_key", "judge_words"]
    if judge and "://" in judge:
        if not config.judge_model:
            raise HarnessError("--judge with an address needs --judge-model")
        return
    for name in fields:
        if getattr(config, name) != getattr(EvalConfig, name):
            option = f"--{name.replace('_', '-')}"
            if judge is None:
                raise HarnessError(f"{option} is for a judge: give one with --judge")
            raise HarnessError(f"{option} is for a judge at an address; --judge {judge} is a model")


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
    if config.judge_key is None:
        return EndpointJudge(config.judge, config.judge_model, words=words)
    return EndpointJudge.with_key_from(
        config.judge_key, config.judge, config.judge_model, words=words
    )


def _finish(
    config: EvalConfig,
    work: Work,
    table: pd.DataFrame,
    facts: Mapping[str, Any],
    console: Console,
    warning: str,
) -> None:
    """Numbers, files, tables; ``facts`` are saved beside the numbers."""
    number = counts(table, work.missing)
    if config.task == "gridtom":
        results = summarise(table, config.order)
    else:
        results = break_down(table, work.breakdowns)
    if config.task == "moments":
        write_submission(table, config.folder / SUBMISSION, work.missing)
    write_atomic(config.folder / TABLE, table.to_parquet(None, index=False))
    saved = {"config": saved_config(config), "counts": number, "results": results, **facts}
    write_sealed(config.folder / RESULTS, saved, (TABLE,))
    if warning:
        console.print(escape(warning), soft_wrap=True)
    printed = asked_readers(results, (item.text for item in work.items))
    if config.task == "gridtom":
        print_results(console, printed, config)
    else:
        print_breakdown(console, printed, number, config, work.missing)
    if agreed := facts["agreement"]:
        console.print(
            f"judge and people agree on {100 * agreed['agreement']:.1f} % of {agreed['n']} replies "
            f"(kappa {agreed['kappa']:.2f})"
        )
    console.print(f"run folder: {escape(str(config.folder))}", soft_wrap=True)


if __name__ == "__main__":
    no_command("evaluate")
