"""An evaluation from config to table."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from typing import Any, cast

import pandas as pd
from rich.markup import escape

from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import Journal, claims, fingerprint, save_config
from sally_anne.core.options import spelled
from sally_anne.core.processes import here
from sally_anne.harness.agreement import agreement, read_labels
from sally_anne.harness.baselines import Asked, print_published
from sally_anne.harness.config import DEFAULT_BATCH, EvalConfig, check_steered
from sally_anne.harness.endpoint import options as endpoint
from sally_anne.harness.endpoint.address import key_from
from sally_anne.harness.endpoint.limits import Budget
from sally_anne.harness.endpoint.model import kept_in, open_endpoint, said_usage
from sally_anne.harness.endpoint_judge import SETTINGS, EndpointJudge
from sally_anne.harness.evaluate import ask, check_items
from sally_anne.harness.judge import LocalJudge, judge_answers, judge_template
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.protocols import PROTOCOLS, protocol_of
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
from sally_anne.harness.views import HEARD
from sally_anne.harness.work import Work, prepare
from sally_anne.hooks.batch_size import AUTO
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.families import check_senses
from sally_anne.models.loading import LoadedModel, load_model

ANSWERS, TABLE = "answers.jsonl", "answers.parquet"
SUBMISSION = "submission.json"


@claims("an evaluation")
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
        vector = open_vector(config.steer, config.allow_mismatch)
    fitted = vector or beside
    work = prepare(config, fitted_on(config.model, None if fitted is None else fitted.fitted))
    if work.unseen:
        console.print(str(work.unseen), soft_wrap=True)
    for line in filter(None, (work.said, work.drawn)):
        console.print(escape(str(line)), soft_wrap=True)
    budget = Budget(config.endpoint_limit)
    judge = _judge(config, work, device_map, budget) if processes.first else None
    human = None if config.human is None else read_labels(config.human)
    videos = any(item.clip for item in work.items)
    sounds = any(item.sound for item in work.items)
    distant = None if config.endpoint is None else open_endpoint(config, budget)
    if loaded is None and distant is None:
        opening = config.opening() | {"device_map": device_map}
        loaded = load_model(**opening, videos=videos, sounds=sounds)
    if loaded is not None:
        check_senses(loaded.family, loaded.name, videos, sounds)
    room = (config.reply_tokens, config.retold_tokens)
    for line in check_items(loaded, work.items, *room) if loaded else ():
        console.print(escape(line))
    model = distant or SteeredModel(cast(LoadedModel, loaded), vector, config.alpha)
    about = {
        **model.about,
        "task": short_name(config.task),
        "max_new_tokens": config.reply_tokens,
        "options": config.options,
        **work.about,
    }
    mismatch = require_fits(vector, loaded, config.alpha) if vector and loaded else ""
    kept = Journal(config.folder / ANSWERS, about, processes)
    replies = distant.endpoint.keeping(kept_in(config.folder)) if distant else nullcontext()
    with kept as journal, replies, Bars(console) as bar:
        if processes.first:
            save_config(config.folder, endpoint.saved(config))
        what = config.order if config.task == "gridtom" else work.about["view"]
        task = bar.add_task(escape(f"{endpoint.named(config)} {config.task} {what}"), total=None)
        table = ask(
            model,
            work.items,
            journal,
            config.batch_size,
            config.reply_tokens,
            config.options,
            lambda done, total: bar.update(task, completed=done, total=total),
            config.retold_tokens,
        )
    if not processes.first:
        processes.wait()
        return pd.read_parquet(config.folder / TABLE)
    if judge is not None:
        # Each judge keeps its own, and none asks the model again for what it has said.
        own = fingerprint(sorted(judge.about.items()))[:8]
        verdicts = (
            judge.endpoint.keeping(kept_in(config.folder, f"judge-{own}"))
            if isinstance(judge, EndpointJudge)
            else nullcontext()
        )
        kept = Journal(config.folder / f"verdicts-{own}.jsonl", judge.about | about)
        with kept as journal, verdicts:
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
    asked = {"model": distant and distant.endpoint} | (
        {"judge": judge.endpoint} if isinstance(judge, EndpointJudge) else {}
    )
    used = {role: one.usage for role, one in asked.items() if one}
    saved = {
        "config": endpoint.saved(config),
        "counts": number,
        "results": results,
        "about": about,
        "agreement": agreed,
        "unseen": None if work.unseen is None else asdict(work.unseen),
        "drawn": None if work.drawn is None else asdict(work.drawn),
        "mismatch": mismatch,
        "endpoints": used,
    }
    texts = [text for item in work.items for text in (item.before, item.text) if text]
    save(console, config.folder / TABLE, table, saved, loaded, texts)
    printed = asked_readers(results, work.items)
    for line in doubts(printed, number, config.reply_tokens):
        console.print(line, soft_wrap=True)
    if work.departs:
        console.print(escape(f"beside the authors' protocol: {work.departs}"), soft_wrap=True)
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
    if printed:
        scored = number["asked"] - number["hidden"]
        print_published(console, [Asked(endpoint.saved(config), about, scored)])
    if agreed:
        console.print(
            f"judge and people agree on {100 * agreed['agreement']:.1f} % of {agreed['n']} replies "
            f"(kappa {agreed['kappa']:.2f})"
        )
    for role, usage in used.items():
        console.print(said_usage(role, usage), soft_wrap=True)
    console.print(f"run folder: {escape(str(config.folder))}", soft_wrap=True)
    processes.wait()
    return table


def check(config: EvalConfig) -> None:
    """Raise OptionError or HarnessError, which names the option, if the options alone are wrong."""
    check_steered(config)
    if config.human is not None and config.judge is None:
        raise HarnessError("--human is compared with a judge: give one with --judge")
    endpoint.check_endpoint(config)
    if config.endpoint is not None and config.view in HEARD:
        raise HarnessError(
            f"--view {config.view} does not go with --endpoint: sounds are not sent there"
        )
    endpoint.check_second(config, "judge")
    for name in ("judge_words", "judge_template") if config.judge is None else ():
        if getattr(config, name) != getattr(EvalConfig, name):
            raise HarnessError(f"{spelled(name)} is for a judge: give one with --judge")
    _check_prompting(config)
    _check_protocol(config)
    own = ("view", "window", "frames", "judge")
    others = ("order", "setting", "style", "data_seed", "split_seed")
    gridtom = config.task == "gridtom"
    for option in own if gridtom else others:
        if getattr(config, option) != getattr(EvalConfig, option):
            whose = "tasks other than gridtom" if gridtom else "--task gridtom"
            raise HarnessError(f"{spelled(option)} is for {whose}")


def _check_protocol(config: EvalConfig) -> None:
    """That nothing else says how the authors' own protocol puts questions."""
    if config.protocol == "sally-anne":
        return
    for name in ("template", "prompting", "style"):
        if getattr(config, name) != getattr(EvalConfig, name):
            raise HarnessError(
                f"--protocol {config.protocol} has a prompt of its own, and {spelled(name)} asks "
                "for another; leave one out"
            )
    if (known := PROTOCOLS.get(protocol_of(config.task, config.order))) is None:
        raise HarnessError(
            f"--protocol official: of {config.task} none is known; there are those of "
            f"{', '.join(PROTOCOLS)}"
        )
    if config.task == "gridtom" and config.order == "reality":
        raise HarnessError(
            "--order reality: the authors of GridToM ask nothing about it; leave out --protocol "
            "official"
        )
    if config.task == "gridtom" and config.setting not in known.templates:
        raise HarnessError(
            f"--setting {config.setting}: the authors of GridToM show {', '.join(known.templates)} "
            f"with --order {config.order}; leave out --protocol official"
        )


def _check_prompting(config: EvalConfig) -> None:
    """That nothing else says how questions are put."""
    for name in ("shots", "shots_seed") if config.prompting != "few-shot" else ():
        if getattr(config, name) != getattr(EvalConfig, name):
            raise HarnessError(f"{spelled(name)} is for --prompting few-shot")
    if config.prompting == "cot" and config.options:
        raise HarnessError(
            "--options scores the options as the beginning of a reply, where --prompting cot has "
            "thoughts; leave one of them out"
        )
    if config.template is None:
        return
    for name, worded in (("prompting", ("cot", "simtom")), ("style", ("json",))):
        if (value := getattr(config, name)) in worded:
            raise HarnessError(
                f"{spelled(name)} {value} has words of its own, and --template gives others; "
                "leave one of them out"
            )


def _judge(
    config: EvalConfig, work: Work, device_map: str | None, budget: Budget
) -> LocalJudge | EndpointJudge | None:
    """Who reads replies to open questions, if anybody does."""
    if config.judge is None:
        return None
    if any(item.options for item in work.items):
        raise HarnessError(f"--judge is for open questions; {config.task} offers options")
    how: dict[str, Any] = {"words": config.judge_words}
    if config.judge_template is not None:
        how["template"] = judge_template(config.judge_template, config.judge_words)
    if "://" not in config.judge:
        own = {"name": config.judge, "device_map": device_map, "revision": None}
        # A judge reads, and is shown no frames.
        return LocalJudge.open(**config.opening() | own | {"max_pixels": None}, **how)
    return EndpointJudge(
        config.judge,
        config.judge_model,
        key_from(config.judge_key, "--judge-key"),
        **how,
        at_once=DEFAULT_BATCH if config.batch_size == AUTO else config.batch_size,
        settings=SETTINGS | endpoint.request_fields(config),
        timeout=config.endpoint_timeout,
        rate=config.endpoint_rate,
        prices=config.judge_prices,
        budget=budget,
    )
