"""Side effects of a vector: on the next words after neutral prompts, and on any task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
from torch.nn.functional import kl_div

from sally_anne.core.bootstrap import draw_groups, estimate_mean
from sally_anne.core.console import Console, print_lines, print_table
from sally_anne.core.errors import SteeringError
from sally_anne.core.files import write_json
from sally_anne.core.folder import RESULTS, claims, save_config
from sally_anne.core.processes import in_batches, within_memory
from sally_anne.data.items import short_name
from sally_anne.harness.config import EvalConfig, check
from sally_anne.harness.evaluate import evaluate, require_fits
from sally_anne.harness.gridtom import Order
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.protocols import Prompting
from sally_anne.harness.score import differences, estimates, scores
from sally_anne.harness.tasks import TASKS, load_items, open_task
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.steering.config import SideEffectsConfig, neutral_prompts

# Tokens of a reply to a neutral prompt.
REPLY = 16


@claims("a measurement of side effects")
def run(config: SideEffectsConfig) -> dict[str, Any]:
    """Measure, print and save ``kl`` (nats) and of each task the accuracy, as of :func:`_compare`.

    ``prompting`` has the same of the unsteered model that is asked in another way.
    """
    evaluations = {task: evaluation(config, task) for task in config.tasks}
    for task, each in evaluations.items():
        ways: tuple[Prompting, ...] = ("direct", *config.prompting)
        for how in ways:
            check(replace(each, prompting=how))
        if not any(item.options and not item.hidden for item in load_items(each).items):
            why = "no question has options and a key; use `sally-anne evaluate`"
            raise SteeringError(f"--tasks {task}: {why}")
    if len({each.out for each in evaluations.values()}) < len(config.tasks):
        raise SteeringError("--tasks: two have the same name; ask them in two runs")
    vector = SteeringVector.load(config.vector, allow_mismatch=config.allow_mismatch)
    loaded = load_model(**config.opening())
    mismatch = require_fits(vector, loaded, config.alpha)
    plain, steered = SteeredModel(loaded), SteeredModel(loaded, vector, config.alpha)
    prompts, size = [*map(Prompt, neutral_prompts())], config.max_new_tokens or REPLY
    kl = divergences(plain, steered, prompts, size, config.batch_size)
    tables = {task: _answers(config, each, vector, loaded) for task, each in evaluations.items()}
    results: dict[str, Any] = {
        "kl": asdict(estimate_mean(kl, np.arange(len(kl)), draw_groups(len(kl)))),
        "tasks": {task: _compare(each, "steered") for task, each in tables.items()},
    }
    if config.prompting:
        results["prompting"] = {
            how: {task: _compare(each, how) for task, each in tables.items()}
            for how in config.prompting
        }
    save_config(config.folder, asdict(config), loaded)
    saved = {"config": asdict(config), "mismatch": mismatch, **results}
    write_json(config.folder / RESULTS, saved)
    _print(Console(), config, results)
    return results


def evaluation(config: SideEffectsConfig, task: str) -> EvalConfig:
    """The run of the harness that a task's name stands for; its ``out`` is without the model's."""
    # A file's name may hold what separates order and folder.
    name, _, folder = (task, "", "") if Path(task).is_file() else task.partition("=")
    order = ""
    if name.partition(":")[0] in TASKS:
        name, _, order = name.partition(":")
    options = config.model_options("batch_size", "max_new_tokens", "limit")
    if takes_order := "order" in open_task(name).options:
        order = order or "1"
        options |= {"order": order, "setting": config.setting}
    if order not in get_args(Order) if takes_order else order:
        raise SteeringError(f"--tasks {task}: gridtom has the orders {', '.join(get_args(Order))}")
    out = config.folder / "-".join(filter(None, [short_name(name), order]))
    return EvalConfig(task=name, data=Path(folder) if folder else None, out=out, **options)


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
    means = []
    for batch in in_batches(prompts, batch_size):
        replies = [reply.tokens for reply in plain.replies(batch, max_new_tokens)]
        before = plain.log_probs_along(batch, replies)
        after = steered.log_probs_along(batch, replies)
        for p, q in zip(before, after, strict=True):
            kl = kl_div(q.double(), p.double(), log_target=True, reduction="none")
            means.append(float(kl.sum(-1).mean()))
    return np.array(means)


def _answers(
    config: SideEffectsConfig, base: EvalConfig, vector: SteeringVector, loaded: LoadedModel
) -> dict[str, pd.DataFrame]:
    """Scores of one task by how it is answered: ``plain``, ``steered``, and each prompting."""
    assert base.out is not None
    ways: dict[str, dict[str, Any]] = {"plain": {}, "steered": {"steer": config.vector}}
    ways["steered"] |= {"alpha": config.alpha, "allow_mismatch": config.allow_mismatch}
    ways |= {how: {"prompting": how} for how in config.prompting}
    tables = {}
    for name, changes in ways.items():
        each = replace(base, out=base.out.with_name(f"{base.out.name}-{name}"), **changes)
        seen = None if each.steer else vector
        table = evaluate(each, loaded=loaded, same_stories_as=seen)
        tables[name] = scores(table[~table["hidden"]], "robust")
    return tables


def _compare(tables: dict[str, pd.DataFrame], name: str) -> dict[str, dict[str, Any]]:
    """Plain answers against those of this name, on the items that both have.

    Few-shot prompting may have fewer, where some stories are the examples.
    """
    after = tables[name]
    plain, steered = (
        tables[other][tables[other]["item_id"].isin(after["item_id"])]
        for other in ("plain", "steered")
    )
    new = "steered" if name == "steered" else "prompted"
    columns = {"plain": estimates(plain, False), new: estimates(after, False)}
    columns["difference"] = differences(plain, after, False)
    if name != "steered":
        columns["over_steered"] = differences(steered, after, False)
    return {
        measure: {column: asdict(found[measure]) for column, found in columns.items()}
        for measure in ("overall", "invalid")
    }


def _print(console: Console, config: SideEffectsConfig, results: dict[str, Any]) -> None:
    def rows(tasks: dict[str, Any]) -> list[list[Any]]:
        return [
            [f"{task}, {'right' if measure == 'overall' else measure} (%)", *points.values()]
            for task, measures in tasks.items()
            for measure, points in measures.items()
        ]

    kl = results["kl"]
    moved = f"{kl['value']:.4f} [{kl['low']:.4f}, {kl['high']:.4f}]"
    last = [f"KL on {kl['n']} neutral prompts (nats a token)", "0", moved, moved]
    title = f"{config.model}: side effects of {config.vector.name}"
    columns = ["what", "baseline", "steered", "difference"]
    print_table(console, title, columns, [*rows(results["tasks"]), last])
    for how, tasks in results.get("prompting", {}).items():
        columns = ["what", "baseline", how, "difference", "beyond steered"]
        print_table(console, f"{config.model}: {how} in its place", columns, rows(tasks))
    print_lines(console, [f"folder: {config.folder}"])
