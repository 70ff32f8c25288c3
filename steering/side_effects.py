"""Side effects of a vector: on the next words after neutral prompts, and on any task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from rich.console import Console as Printer
from rich.markup import escape

from sally_anne.core.bootstrap import draw_groups, estimate_mean
from sally_anne.core.console import Console
from sally_anne.core.errors import SteeringError
from sally_anne.core.files import reading, write_json
from sally_anne.core.folder import RESULTS, claims, save_config
from sally_anne.harness.config import EvalConfig, check
from sally_anne.harness.evaluate import evaluate, require_fits
from sally_anne.harness.gridtom import Order
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.report import print_table
from sally_anne.harness.score import accuracy, paired_accuracy, scores
from sally_anne.harness.tasks import TASKS, find_task, short_name
from sally_anne.hooks.batch_size import in_batches, within_memory
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.steering.config import SideEffectsConfig

# Tokens of a reply to a neutral prompt.
REPLY = 16


@claims("a measurement of side effects")
def run(config: SideEffectsConfig) -> dict[str, Any]:
    """Measure, print and save ``kl`` (nats; value, low, high, n) and ``tasks``.

    Of each task: accuracy and share of invalid replies without and with the vector, and their
    paired difference. ``prompting`` has the same by way and task, for the unsteered model that is
    asked in that way, and ``over_steered``, its difference from the steered one.
    """
    asked = {task: evaluation(config, task) for task in config.tasks}
    kept: dict[str, EvalConfig] = {}
    for task, each in asked.items():
        check(each)
        for how in config.prompting:
            check(replace(each, prompting=how))
        if kept.setdefault(_kept_as(each), each) != each:
            raise SteeringError(
                f"--tasks {task}: another one is kept as {_kept_as(each)} already; ask them in two "
                "runs, each with an --out of its own"
            )
    prompts = [Prompt(text) for text in read_prompts(config.prompts)]
    vector = SteeringVector.load(config.vector, allow_mismatch=config.allow_mismatch)
    loaded = load_model(**config.opening())
    mismatch = require_fits(vector, loaded, config.alpha)
    plain, steered = SteeredModel(loaded), SteeredModel(loaded, vector, config.alpha)
    kl = divergences(plain, steered, prompts, config.max_new_tokens or REPLY, config.batch_size)
    sheets = {task: _answers(config, each, vector, loaded) for task, each in asked.items()}
    found: dict[str, Any] = {
        "kl": asdict(estimate_mean(kl, np.arange(len(kl)), draw_groups(len(kl)))),
        "tasks": {task: _compare(each, "steered") for task, each in sheets.items()},
    }
    if config.prompting:
        found["prompting"] = {
            how: {task: _compare(each, how) for task, each in sheets.items()}
            for how in config.prompting
        }
    saved = {"config": asdict(config), "mismatch": mismatch, **found}
    save_config(config.folder, asdict(config))
    write_json(config.folder / RESULTS, saved)
    _print(Console(), config, found)
    return found


def evaluation(config: SideEffectsConfig, task: str) -> EvalConfig:
    """The run of the harness that a task's name stands for."""
    # A file's name may hold what parts the others.
    name, _, folder = (task, "", "") if Path(task).is_file() else task.partition("=")
    order = ""
    if name.partition(":")[0] in TASKS:
        name, _, order = name.partition(":")
    if order and (name != "gridtom" or order not in get_args(Order)):
        had = ", ".join(get_args(Order))
        raise SteeringError(f"--tasks {task}: gridtom has the orders {had}, others none")
    if name != "gridtom" and find_task(name).open_ended:
        raise SteeringError(
            f"--tasks {task}: its questions are open; ask them by `sally-anne evaluate`"
        )
    options = config.model_options("batch_size", "max_new_tokens", "limit")
    if name == "gridtom":
        options |= {"order": order or "1", "setting": config.setting}
    return EvalConfig(task=name, data=Path(folder) if folder else None, **options)  # type: ignore[arg-type]


def _kept_as(asked: EvalConfig) -> str:
    """A task in the names of its two folders."""
    name = short_name(asked.task)
    return f"{name}-{asked.order}" if asked.task == "gridtom" else name


def read_prompts(path: Path) -> list[str]:
    """One prompt a line; empty lines are left out."""
    with reading(path, SteeringError):
        lines = path.read_text(encoding="utf-8").splitlines()
    prompts = [line.strip() for line in lines if line.strip()]
    if not prompts:
        raise SteeringError(f"--prompts {path}: holds no prompt")
    return prompts


@within_memory("use a smaller --batch-size")
def divergences(
    plain: SteeredModel,
    steered: SteeredModel,
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    batch_size: int,
) -> np.ndarray:
    """KL(plain || steered) of the next token, in nats ``[n]``: the mean over a reply's tokens.

    Both models are read along the plain model's greedy reply.
    """
    found = []
    for batch in in_batches(prompts, batch_size):
        replies = [reply.tokens for reply in plain.replies(batch, max_new_tokens)]
        before = plain.log_probs_along(batch, replies)
        after = steered.log_probs_along(batch, replies)
        for p, q in zip(before, after, strict=True):
            kl = torch.nn.functional.kl_div(
                q.double(), p.double(), log_target=True, reduction="none"
            )
            found.append(float(kl.sum(-1).mean()))
    return np.array(found)


def _answers(
    config: SideEffectsConfig, asked: EvalConfig, vector: SteeringVector, loaded: LoadedModel
) -> dict[str, pd.DataFrame]:
    """Scores of one task by how it is answered: ``plain``, ``steered``, and each prompting."""
    kept = config.folder / _kept_as(asked)

    def run(name: str, **changes: Any) -> pd.DataFrame:
        each = replace(asked, out=kept.with_name(f"{kept.name}-{name}"), **changes)
        return evaluate(each, loaded=loaded, same_stories_as=None if each.steer else vector)

    steered = {
        "steer": config.vector,
        "alpha": config.alpha,
        "allow_mismatch": config.allow_mismatch,
    }
    tables = {"plain": run("plain"), "steered": run("steered", **steered)}
    keyed = ~tables["plain"]["hidden"]
    if "robust_correct" not in tables["plain"] or not keyed.any():
        raise SteeringError(
            f"--tasks {asked.task}: no replies can be scored without a judge or key"
        )
    tables |= {how: run(how, prompting=how) for how in config.prompting}
    return {name: scores(table[~table["hidden"]], "robust") for name, table in tables.items()}


def _compare(sheets: dict[str, pd.DataFrame], name: str) -> dict[str, dict[str, Any]]:
    """Plain answers against those of this name, on the items that both have.

    Few-shot prompting may have fewer, where some stories are the examples.
    """
    after = sheets[name]
    plain, steered = (
        sheets[other][sheets[other]["item_id"].isin(after["item_id"])]
        for other in ("plain", "steered")
    )
    accuracies = {"plain": accuracy(plain)}
    accuracies["steered" if name == "steered" else "prompted"] = accuracy(after)
    gains = {"difference": paired_accuracy(plain, after)}
    if name != "steered":
        gains["over_steered"] = paired_accuracy(steered, after)
    return {
        measure: {
            **{which: asdict(getattr(each, measure)) for which, each in accuracies.items()},
            **{gain: asdict(estimates[measure]) for gain, estimates in gains.items()},
        }
        for measure in ("overall", "invalid")
    }


def _rows(tasks: dict[str, Any]) -> list[list[Any]]:
    return [
        [f"{task}, {'right' if measure == 'overall' else measure} (%)", *points.values()]
        for task, measures in tasks.items()
        for measure, points in measures.items()
    ]


def _print(console: Printer, config: SideEffectsConfig, found: dict[str, Any]) -> None:
    rows = _rows(found["tasks"])
    kl = found["kl"]
    moved = f"{kl['value']:.4f} [{kl['low']:.4f}, {kl['high']:.4f}]"
    rows.append([f"KL on {kl['n']} neutral prompts (nats a token)", "0", moved, moved])
    title = f"{config.model}: side effects of {config.vector.name}"
    print_table(console, title, ["what", "baseline", "steered", "difference"], rows)
    for how, tasks in found.get("prompting", {}).items():
        columns = ["what", "baseline", how, "difference", "beyond steered"]
        print_table(console, f"{config.model}: {how} in its place", columns, _rows(tasks))
    console.print(f"folder: {escape(str(config.folder))}", soft_wrap=True)
