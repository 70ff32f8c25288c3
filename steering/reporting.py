"""Results of a sweep: as tables and JSON in its folder, and printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from sally_anne.core.bootstrap import Estimate
from sally_anne.core.console import Console, percent, print_lines, print_table
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import RESULTS
from sally_anne.core.options import command_line
from sally_anne.core.run import Head
from sally_anne.data.samples import SEEN, Lineage
from sally_anne.figures.report import NAME
from sally_anne.figures.sweep import CONTROLS as CONTROL_LABELS
from sally_anne.figures.sweep import SIDES as TASK_LABELS
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.report import BELIEF
from sally_anne.harness.score import accuracy, belief_metrics, over, paired, scores
from sally_anne.harness.tasks import LeftOut
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.config import FOUND, ControlTask, SweepConfig
from sally_anne.steering.points import (
    BASELINE,
    ROUNDING,
    SweepPoint,
    by_kind,
    only_guessed,
    paired_scores,
    task_gain,
)

NOT_SPECIFIC = "not specific"
ANSWERS, METRICS = "answers.parquet", "sweep.parquet"
# Columns that describe a point, besides its name.
FACTS = ["direction", "rank_by", "k", "alpha"]
# Best settings that are printed, and the mark of the chosen one.
TOP, MARK = 2, " *"


@dataclass(frozen=True)
class Sweep:
    """Results of a finished sweep.

    Attributes:
        validation: answers of every point on validation stories.
        chosen: the best on validation stories that leaves the control tasks alone.
        controls: the same K and alpha with random directions or heads, as on validation stories.
        control_tasks: answers to control questions of the points that were tried for the choice,
            the choice and its controls, by kind and split.
        vector: folder of the chosen vector.
        lineage: what it has seen; None where the run does not say.
        unseen: how many test stories were left out as the run has seen them.
        chances: share of each kind of control questions that guessing gets right.
        test: answers of the baseline, the chosen point and the random controls on test stories, as
            those below None without a test.
        control_rank, left_out, worse: as of the functions of :mod:`steering.points`.
    """

    validation: pd.DataFrame
    chosen: SweepPoint
    controls: tuple[SweepPoint, ...]
    control_tasks: dict[ControlTask, dict[str, pd.DataFrame]]
    vector: Path
    lineage: Lineage | None
    unseen: LeftOut
    chances: dict[ControlTask, float]
    test: pd.DataFrame | None = None
    random_controls: tuple[SweepPoint, ...] = ()
    control_rank: dict[str, Any] | None = None
    left_out: list[dict[str, Any]] = field(default_factory=list)
    worse: Estimate | None = None

    def guessed(self, parser: str) -> dict[ControlTask, dict[str, float]]:
        """Accuracy and ``chance`` of the control tasks that the baseline can only guess."""
        return {
            task: {**asdict(right), "chance": self.chances[task]}
            for task, tables in self.control_tasks.items()
            if (right := only_guessed(tables["validation"], self.chances[task], parser))
        }

    def gains(self, parser: str) -> dict[ControlTask, dict[str, Estimate]]:
        """Change of accuracy on control questions at the chosen point, by kind and split."""
        return {
            task: {split: task_gain(table, self.chosen, parser) for split, table in tables.items()}
            for task, tables in self.control_tasks.items()
        }


def vector_name(config: SweepConfig, vector: SteeringVector) -> str:
    """Folder of a chosen vector, and of its evaluations; it ends with a hash of the vector."""
    kind = f"order{config.order}-{config.setting}-{vector.direction.replace(':', '-')}"
    return f"{kind}-K{vector.k}-alpha{vector.alpha:g}-{vector.describe()['numbers'][-6:]}"


def _metrics_table(
    table: pd.DataFrame, split: str, parser: str, task: ControlTask | None = None
) -> pd.DataFrame:
    """A row a point and measure: TB, FB, Both and invalid, or accuracy on one control task.

    Where ``low`` to ``high`` is over maps, belief measures also have intervals over stories.
    """
    rows: list[dict[str, Any]] = []
    by_map = task is None and over(table) == "map"
    for name, part in table.groupby("point", sort=False):
        scored = scores(part, parser)
        measures: dict[str, dict[str, Any]]
        if task is not None:
            measures = {task: asdict(accuracy(scored).overall)}
        else:
            measures = asdict(belief_metrics(scored))
        if by_map:
            for measure, story in asdict(belief_metrics(scored, unit="story")).items():
                measures[measure] |= {"story_low": story["low"], "story_high": story["high"]}
        about = {"split": split, "point": name, **part.iloc[0][FACTS]}
        rows += [{**about, "measure": measure, **own} for measure, own in measures.items()]
    return pd.DataFrame(rows)


def save_tables(
    folder: Path,
    parts: Mapping[str, pd.DataFrame],
    parser: str,
    tasks: Mapping[ControlTask, Mapping[str, pd.DataFrame]] | None = None,
) -> pd.DataFrame:
    """Write the answers by split, and the metrics of every point, which are returned."""
    tables = [_metrics_table(answers, split, parser) for split, answers in parts.items()]
    tables += [
        _metrics_table(answers, split, parser, task)
        for task, splits in (tasks or {}).items()
        for split, answers in splits.items()
    ]
    metrics = pd.concat(tables, ignore_index=True)
    answers = pd.concat(parts.values(), ignore_index=True)
    for name, table in ((METRICS, metrics), (ANSWERS, answers)):
        write_atomic(folder / name, table.to_parquet(None, index=False))
    return metrics


def save(
    config: SweepConfig, about: dict[str, Any], sweep: Sweep, probed: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Write tables and results; return the metrics and the results."""
    parser, parts = config.parser, {"validation": sweep.validation}
    saved: dict[str, Any] = {
        "config": asdict(config),
        "about": about,
        "chosen": asdict(sweep.chosen) | {"name": sweep.chosen.name},
        "run": str(probed),
        "vector": sweep.vector.name,
        SEEN: None if sweep.lineage is None else sweep.lineage.facts(),
        "unseen": asdict(sweep.unseen),
    }
    if sweep.test is not None:
        parts["test"] = sweep.test
        both = paired(*paired_scores(sweep.test, sweep.chosen, parser), beliefs=True)
        differences = {m: asdict(both[m]["difference"]) for m in BELIEF if m != "invalid"}
        test = {"difference": differences, "mcnemar_both": both["Both"]["p"]}
        saved["test"] = {sweep.chosen.name: test}
        saved["control_rank"], saved["left_out"] = sweep.control_rank, sweep.left_out
        saved["worse"] = None if sweep.worse is None else asdict(sweep.worse)
        saved[FOUND] = f"Both, less the baseline's: {percent(differences['Both'])} points on test "
        saved[FOUND] += "stories"
        if sweep.control_rank:
            saved[FOUND] += f"; {describe_rank(sweep.control_rank)}"
    saved["guessed"] = sweep.guessed(parser)
    for task, gains in sweep.gains(parser).items():
        saved[task] = {split: asdict(gain) for split, gain in gains.items()}
    metrics = save_tables(config.folder, parts, parser, sweep.control_tasks)
    write_json(config.folder / RESULTS, saved)
    return metrics, saved


def print_sweep(
    console: Console,
    config: SweepConfig,
    ranked: Sequence[SweepPoint],
    sweep: Sweep,
    metrics: pd.DataFrame,
    saved: dict[str, Any],
) -> None:
    """Print the best settings, the choice with its controls and costs, and what to do next."""
    chosen = sweep.chosen
    title = f"{config.model}, order {config.order},"
    best = (*ranked[:TOP], chosen)
    _print_points(console, f"{title} validation", "validation", best, sweep, metrics)
    if sweep.test is not None:
        _print_points(console, f"{title} test", "test", (chosen,), sweep, metrics)
    how = f"direction {chosen.direction}, heads by {chosen.rank_by.replace('_', ' ')}"
    lines = [f"chosen: {_label(chosen)}, {how}"]
    if sweep.test is not None:
        lines += saved[FOUND].split("; ")
        needed = [str(Head(r["layer"], r["head"])) for r in sweep.left_out if r["low"] > 0]
        falls = f"; Both falls without {', '.join(needed)}" if needed else ""
        lines.append(f"made worse: {percent(saved['worse'])} % of test stories{falls}")
    lines += [
        f"{TASK_LABELS[task]}, less the baseline's: {percent(gain)} points on {split} stories"
        for task in sweep.control_tasks
        for split, gain in [*saved[task].items()][-1:]
    ]
    guessed: Mapping[str, Any] = saved["guessed"]
    lines += [
        f"{TASK_LABELS[task]}: the baseline's {percent(right)} % is no more than guessing "
        f"({100 * right['chance']:.1f} %), and puts no condition on the choice"
        for task, right in guessed.items()
    ]
    if any(
        task not in guessed and -saved[task]["validation"]["value"] > most + ROUNDING
        for task, most in config.control_tasks.items()
    ):
        lines.append("no K and alpha leaves the side questions alone: this one is nearest to it")
    names = ["order", "setting", "style", "data", "max_new_tokens", "split_seed", "data_seed"]
    steered = EvalConfig(steer=sweep.vector, **config.model_options(*names))
    lines += [f"report: {config.folder / NAME}"]
    lines += [f"next: {command_line('sally-anne evaluate', steered)}"]
    print_lines(console, lines)


def _print_points(
    console: Console,
    title: str,
    split: str,
    points: Sequence[SweepPoint],
    sweep: Sweep,
    metrics: pd.DataFrame,
) -> None:
    """A table of the baseline, these points, and on test stories the random controls."""
    numbers = metrics[metrics["split"] == split].set_index(["point", "measure"])
    numbers = numbers[["value", "low", "high", "n"]]
    points = tuple(dict.fromkeys((BASELINE, *points)))
    # Where no reply is invalid there is no column for it.
    some = any(numbers["high"][point.name, "invalid"] for point in points)
    shown = BELIEF if some else BELIEF[:-1]
    rows: list[list[Any]] = [
        [_label(point, sweep.chosen), *(numbers.loc[point.name, m].to_dict() for m in shown)]
        for point in points
    ]
    unit = over(sweep.test if split == "test" else sweep.validation)
    note = "95 % intervals over maps" if unit == "map" else ""
    if split == "test" and (randoms := sweep.random_controls):
        shares = [[numbers["value"][point.name, m] for point in randoms] for m in shown]
        ranges = [by_kind(randoms, own) for own in shares]
        rows += [
            [f"{each['n']} {CONTROL_LABELS[kind]}", *(found[kind] for found in ranges)]
            for kind, each in ranges[0].items()
        ]
        note = "; ".join(filter(None, [note, "of random controls the lowest and the highest"]))
    print_table(console, f"{title} stories (%)", ["setting", *shown], rows, note)


def _label(point: SweepPoint, chosen: SweepPoint | None = None) -> str:
    """Name of a row; ``chosen`` is marked, and its random controls are named as such."""
    if point == BASELINE:
        return point.name
    if chosen is not None and point.direction != chosen.direction:
        return CONTROL_LABELS[point.direction]
    by = "" if point.rank_by == "probe_accuracy" else f" by {point.rank_by}"
    return f"K {point.k}{by}, alpha {point.strength}{MARK if point == chosen else ''}"


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
