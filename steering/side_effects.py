"""Side effects of a vector: on the next words after neutral prompts, and on any task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
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
from sally_anne.harness.score import differences, estimates, scores
from sally_anne.harness.tasks import TASKS, load_items, open_task
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.steering.config import SideEffectsConfig, neutral_prompts

# Tokens of a reply to a neutral prompt.
REPLY = 16


@claims("a measurement of side effects")
def run(config: SideEffectsConfig) -> dict[str, Any]:
    """Measure, print and save ``kl`` (nats) and what becomes of the accuracy in each task."""
    evaluations = {task: evaluation(config, task) for task in config.tasks}
    for task, each in evaluations.items():
        check(each)
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
    results: dict[str, Any] = {
        "kl": asdict(estimate_mean(kl, np.arange(len(kl)), draw_groups(len(kl)))),
        "tasks": {task: _compare(config, one, vector, loaded) for task, one in evaluations.items()},
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


def _compare(
    config: SideEffectsConfig, base: EvalConfig, vector: SteeringVector, loaded: LoadedModel
) -> dict[str, dict[str, Any]]:
    """One task's shares of right and of invalid answers, plain, steered, and the difference."""
    assert base.out is not None
    tables = []
    for steer in (None, config.vector):
        name = f"{base.out.name}-{'steered' if steer else 'plain'}"
        each = replace(base, out=base.out.with_name(name), steer=steer)
        if steer:
            each = replace(each, alpha=config.alpha, allow_mismatch=config.allow_mismatch)
        table = evaluate(each, loaded=loaded, same_stories_as=None if steer else vector)
        tables.append(scores(table[~table["hidden"]], "robust"))
    plain, steered = tables
    found = {"plain": estimates(plain, False), "steered": estimates(steered, False)}
    found["difference"] = differences(plain, steered, False)
    return {
        measure: {name: asdict(own[measure]) for name, own in found.items()}
        for measure in ("overall", "invalid")
    }


def _print(console: Console, config: SideEffectsConfig, results: dict[str, Any]) -> None:
    rows = [
        [f"{task}, {'right' if measure == 'overall' else measure} (%)", *points.values()]
        for task, measures in results["tasks"].items()
        for measure, points in measures.items()
    ]
    kl = results["kl"]
    moved = f"{kl['value']:.4f} [{kl['low']:.4f}, {kl['high']:.4f}]"
    rows.append([f"KL on {kl['n']} neutral prompts (nats a token)", "0", moved, moved])
    title = f"{config.model}: side effects of {config.vector.name}"
    print_table(console, title, ["what", "baseline", "steered", "difference"], rows)
    print_lines(console, [f"folder: {config.folder}"])
