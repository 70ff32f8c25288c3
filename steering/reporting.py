"""Results of a sweep: as tables and JSON in its folder, and printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from rich.markup import escape

from sally_anne.core.bootstrap import Estimate
from sally_anne.core.console import Console
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import RESULTS
from sally_anne.core.head import Head
from sally_anne.core.options import command_line
from sally_anne.data.samples import SEEN, Lineage
from sally_anne.figures.report import NAME
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.report import BELIEF, TIGHT, percent, print_table
from sally_anne.harness.score import accuracy, mcnemar_both, over, paired_difference, scores
from sally_anne.harness.tasks import LeftOut
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.config import ControlTask, SweepConfig
from sally_anne.steering.points import (
    BASELINE,
    ROUNDING,
    SweepPoint,
    by_kind,
    only_guessed,
    paired_scores,
    point_metrics,
    task_gain,
)

CONTROL_LABELS = {"random": "random directions", "random_heads": "random heads"}
TASK_LABELS: dict[ControlTask, str] = {"initial": "initial belief", "reality": "reality"}
NOT_SPECIFIC = "not specific"
ANSWERS, METRICS = "answers.parquet", "sweep.parquet"
# Columns that describe a point, besides its name.
FACTS = ["direction", "rank_by", "k", "alpha"]
# Best settings that are printed, the mark of the chosen one, and columns of the terminal.
TOP, MARK, WIDTH = 5, " *", 100


@dataclass(frozen=True)
class Sweep:
    """Results of a finished sweep.

    Attributes:
        validation: answers of every point on validation stories.
        chosen: the best on validation stories that leaves the control tasks alone.
        controls: the same K and alpha with random directions or heads, as on validation stories.
        control_tasks: answers to control questions, by kind and split: on validation stories of the
            baseline, the points tried for the choice and the controls; on test stories of the
            baseline, the chosen point and, on fewer stories, the random controls.
        vector: folder of the chosen vector.
        lineage: what it has seen; None where the run does not say.
        unseen: how many test stories were left out as the run has seen them.
        chances: share of each kind of control questions that guessing gets right.
        test: answers of the baseline, the chosen point and its controls on test stories, or None.
        random_controls: all of them on test stories.
        control_rank: as of :func:`steering.points.control_rank`, or None.
        left_out: as of :func:`steering.points.left_out`.
        worse: share of test stories made worse, or None.
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
    facts = table.drop_duplicates("point").set_index("point")[FACTS]
    measures: dict[str, dict[str, dict[str, Any]]]
    if task is not None:
        measures = {
            str(name): {task: asdict(accuracy(scores(part, parser)).overall)}
            for name, part in table.groupby("point", sort=False)
        }
    else:
        measures = {n: asdict(metrics) for n, metrics in point_metrics(table, parser).items()}
        if over(table) == "map":
            for name, metrics in point_metrics(table, parser, "story").items():
                for measure, story in asdict(metrics).items():
                    ends = {"story_low": story["low"], "story_high": story["high"]}
                    measures[name][measure] |= ends
    rows = [
        {"split": split, "point": name, **facts.loc[name], "measure": measure, **estimate}
        for name, own in measures.items()
        for measure, estimate in own.items()
    ]
    return pd.DataFrame(rows)


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
        saved["test"] = {}
        for point in (sweep.chosen, *sweep.random_controls):
            pair = paired_scores(sweep.test, point, parser)
            differences = {m: asdict(e) for m, e in paired_difference(*pair).items()}
            saved["test"][point.name] = {
                "difference": differences,
                "mcnemar_both": mcnemar_both(*pair),
            }
        saved["control_rank"], saved["left_out"] = sweep.control_rank, sweep.left_out
        saved["worse"] = None if sweep.worse is None else asdict(sweep.worse)
    saved["guessed"] = sweep.guessed(parser)
    for task, gains in sweep.gains(parser).items():
        saved[task] = {split: asdict(gain) for split, gain in gains.items()}
    tables = [_metrics_table(answers, split, parser) for split, answers in parts.items()]
    tables += [
        _metrics_table(answers, split, parser, task)
        for task, splits in sweep.control_tasks.items()
        for split, answers in splits.items()
    ]
    metrics = pd.concat(tables, ignore_index=True)
    answers = pd.concat(parts.values(), ignore_index=True)
    for name, table in ((METRICS, metrics), (ANSWERS, answers)):
        write_atomic(config.folder / name, table.to_parquet(None, index=False))
    write_json(config.folder / RESULTS, saved)
    return metrics, saved


def print_sweep(
    console: Console,
    config: SweepConfig,
    listed: Sequence[SweepPoint],
    sweep: Sweep,
    metrics: pd.DataFrame,
    saved: dict[str, Any],
) -> None:
    """Print the choice, its controls and the baseline, and the best of the ``listed`` settings."""
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    chosen, tasks = sweep.chosen, list(sweep.control_tasks)
    title = f"{config.model}, order {config.order},"
    best = [*(listed if config.full else listed[:TOP]), chosen, *sweep.controls]
    for split in ("validation", "test") if sweep.test is not None else ("validation",):
        points = best if split == "validation" else [chosen]
        _print_points(console, f"{title} {split}", split, points, sweep, metrics, BELIEF)
    how = f"direction {chosen.direction}, heads by {chosen.rank_by.replace('_', ' ')}"
    lines = [f"chosen on validation stories: {_label(chosen)}, {how}"]
    ranked = sweep.control_rank
    lines += describe_rank(ranked) if ranked else []
    if sweep.test is not None:
        both = percent(saved["test"][chosen.name]["difference"]["Both"])
        difference = f"{_label(chosen)} minus {_label(BASELINE)}, Both: {both}"
        lines.append(f"{difference} points on test stories")
        worse = f"{percent(saved['worse'])} % of test stories"
        lines.append(f"made worse (right before, wrong after): {worse}")
        if ranked:
            shares = ranked["worse"].items()
            each = "; ".join(f"{CONTROL_LABELS[kind]} {percent(share)}" for kind, share in shares)
            lines.append(f"made worse by the random controls: {each} %")
    _print_lines(console, lines)
    if sweep.left_out:
        heads = [[str(Head(row["layer"], row["head"])), row] for row in sweep.left_out]
        columns = ["head", "loss of Both (points)"]
        print_table(console, "one head left out", columns, heads, **TIGHT)
        _print_lines(console, [needed_heads(sweep.left_out, chosen.k)])
    for split in dict.fromkeys(
        split for tables in sweep.control_tasks.values() for split in tables
    ):
        randoms = split == "test" and sweep.random_controls
        points = [chosen, *(() if randoms else sweep.controls)]
        _print_points(console, f"side questions, {split}", split, points, sweep, metrics, tasks)
    lines = [
        f"{_label(chosen)}, {TASK_LABELS[task]}: {percent(gain)} points on {split} stories"
        for task in tasks
        for split, gain in saved[task].items()
    ]
    lines += [
        f"{TASK_LABELS[task]}: at baseline, {percent(right)} % of the validation questions are "
        f"answered rightly, no more than by guessing ({100 * right['chance']:.1f} %): they put "
        "no condition on the choice, and do not say what steering costs"
        for task, right in saved["guessed"].items()
    ]
    limits = {t: most for t, most in config.control_tasks.items() if t not in saved["guessed"]}
    if any(-saved[t]["validation"]["value"] > most + ROUNDING for t, most in limits.items()):
        lines.append("no K and alpha leaves the side questions alone: this one is nearest to it")
    if not config.full:
        lines.append("--full prints every setting")
    names = ["order", "setting", "style", "data", "max_new_tokens", "split_seed", "data_seed"]
    steered = EvalConfig(steer=sweep.vector, **config.model_options(*names))
    paths: dict[str, Any] = {
        "sweep folder": config.folder,
        "report": config.folder / NAME,
        "vector": sweep.vector,
        "next": command_line("sally-anne evaluate", steered),
    }
    lines += [f"{what}: {escape(str(value))}" for what, value in paths.items()]
    _print_lines(console, lines)


def _print_lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)


def _print_points(
    console: Console,
    title: str,
    split: str,
    points: Sequence[SweepPoint],
    sweep: Sweep,
    metrics: pd.DataFrame,
    measures: Sequence[str],
) -> None:
    """A table of the baseline, these points, and on test stories the random controls."""
    numbers = metrics[metrics["split"] == split].set_index(["point", "measure"])
    numbers = numbers[["value", "low", "high", "n"]]
    rows: list[list[Any]] = [
        [_label(point, sweep.chosen), *(numbers.loc[point.name, m].to_dict() for m in measures)]
        for point in dict.fromkeys((BASELINE, *points))
    ]
    answers = sweep.test if split == "test" else sweep.validation
    beliefs = list(measures) == list(BELIEF)
    notes = ["95 % intervals over maps"] if beliefs and over(answers) == "map" else []
    if split == "test" and sweep.random_controls:
        ranges = [
            by_kind(
                sweep.random_controls,
                [numbers["value"][point.name, m] for point in sweep.random_controls],
            )
            for m in measures
        ]
        rows += [
            [f"{each['n']} {CONTROL_LABELS[kind]}", *(found[kind] for found in ranges)]
            for kind, each in ranges[0].items()
        ]
        notes.append("of random controls the lowest and the highest")
    names = [TASK_LABELS.get(measure, measure) for measure in measures]  # type: ignore[call-overload]
    note = "; ".join(notes) or None
    print_table(console, f"{title} stories (%)", ["setting", *names], rows, note, **TIGHT)


def _label(point: SweepPoint, chosen: SweepPoint | None = None) -> str:
    """Name of a row; ``chosen`` is marked, and random controls are named as such."""
    if point == BASELINE:
        return point.name
    by = "" if point.rank_by == "probe_accuracy" else f" by {point.rank_by}"
    label = f"K {point.k}{by}, alpha {point.strength}"
    if chosen is None or point.direction == chosen.direction:
        return f"{label}{MARK if point == chosen else ''}"
    control = CONTROL_LABELS[point.direction]
    same = (point.k, point.alpha, point.rank_by) == (chosen.k, chosen.alpha, chosen.rank_by)
    return control if same else f"{control}, {label}"


def describe_rank(rank: Mapping[str, Any]) -> list[str]:
    """Rank and conclusion, then the gains of the controls, as rich's markup."""
    if rank["beats_controls"]:
        conclusion = "above all its controls"
    else:
        if rank["rank"] > 1:
            why = "random controls with steps of the same length do as well"
        elif rank["gain"] <= ROUNDING:
            why = "the baseline does as well"
        else:
            why = "too few random controls (--random-controls 20)"
        conclusion = f"[bold]{NOT_SPECIFIC}[/bold]: {why}"
    return [
        f"rank {rank['rank']} of {rank['of']}, {conclusion}",
        f"Both minus baseline on {rank['stories']} test stories: {100 * rank['gain']:.1f} points",
        *(
            f"{kind['n']} {CONTROL_LABELS[name]}: {percent(kind)}, mean and lowest to highest"
            for name, kind in rank["kinds"].items()
        ),
    ]


def needed_heads(losses: Sequence[Mapping[str, Any]], k: int) -> str:
    """Which of the chosen heads are needed."""
    needed = [str(Head(row["layer"], row["head"])) for row in losses if row["low"] > 0]
    tried = "all" if len(losses) == k else f"the best {len(losses)}"
    result = f"Both falls without {', '.join(needed)}" if needed else "no single one is needed"
    return f"left out one at a time ({tried} of {k} heads), {result}"
