"""Results of a sweep: as tables and JSON in its folder, and printed."""

from __future__ import annotations

from collections.abc import Sequence
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
from sally_anne.steering.controls import (
    CONTROL_LABELS,
    TASK_LABELS,
    describe_rank,
    needed_heads,
    ranges,
)
from sally_anne.steering.points import (
    BASELINE,
    SweepPoint,
    only_guessed,
    paired_scores,
    point_metrics,
    task_gain,
)

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
        test: answers of the baseline, the chosen point and its controls on test stories, or None.
        chosen: the best on validation stories that leaves the control tasks alone.
        controls: the same K and alpha with random directions or heads, as on validation stories.
        control_tasks: answers to control questions, by kind and split: on validation stories of the
            baseline, the points tried for the choice and the controls; on test stories of the
            baseline, the chosen point and, on fewer stories, the random controls.
        vector: folder of the chosen vector.
        lineage: what it has seen; None where the run does not say.
        unseen: how many test stories were left out as the run has seen them.
        chances: share of each kind of control questions that guessing gets right.
        random_controls: all of them on test stories.
        control_rank: as of :func:`steering.controls.control_rank`, or None.
        left_out: as of :func:`steering.controls.left_out`.
        worse: share of test stories made worse, or None.
    """

    validation: pd.DataFrame
    test: pd.DataFrame | None
    chosen: SweepPoint
    controls: tuple[SweepPoint, ...]
    control_tasks: dict[ControlTask, dict[str, pd.DataFrame]]
    vector: Path
    lineage: Lineage | None
    unseen: LeftOut
    chances: dict[ControlTask, float]
    random_controls: tuple[SweepPoint, ...] = ()
    control_rank: dict[str, Any] | None = None
    left_out: list[dict[str, Any]] = field(default_factory=list)
    worse: Estimate | None = None

    def guessed(self, parser: str) -> dict[ControlTask, dict[str, float]]:
        """Accuracy and ``chance`` of the control tasks that the baseline can only guess."""
        rights = {
            task: only_guessed(tables["validation"], self.chances[task], parser)
            for task, tables in self.control_tasks.items()
        }
        return {
            task: {**asdict(right), "chance": self.chances[task]}
            for task, right in rights.items()
            if right is not None
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


def _task_metrics(table: pd.DataFrame, split: str, task: ControlTask, parser: str) -> pd.DataFrame:
    """Accuracy on one kind of control questions, a row a point."""
    rows = []
    for name, part in table.groupby("point", sort=False):
        about = {"split": split, "point": name, **part.iloc[0][FACTS].to_dict(), "measure": task}
        rows.append(about | asdict(accuracy(scores(part, parser)).overall))
    return pd.DataFrame(rows)


def _metrics_table(table: pd.DataFrame, split: str, parser: str) -> pd.DataFrame:
    """A row a point and measure; where ``low`` to ``high`` is over maps, also over stories."""
    over_stories = point_metrics(table, parser, "story") if over(table) == "map" else {}
    facts = table.drop_duplicates("point").set_index("point")[FACTS]
    rows = []
    for name, metrics in point_metrics(table, parser).items():
        for measure in BELIEF:
            row = {"split": split, "point": name, **facts.loc[name], "measure": measure}
            row |= asdict(getattr(metrics, measure))
            if over_stories:
                story = getattr(over_stories[name], measure)
                row |= {"story_low": story.low, "story_high": story.high}
            rows.append(row)
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
        _task_metrics(answers, split, task, parser)
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
    chosen = sweep.chosen
    for split, answers in (("validation", sweep.validation), ("test", sweep.test)):
        if answers is None:
            continue
        full = config.full and split == "validation"
        points = [BASELINE, chosen]
        if split == "validation":
            best = listed if config.full else listed[:TOP]
            points = [BASELINE, *best, chosen, *sweep.controls]
        numbers = metrics[metrics["split"] == split].set_index(["point", "measure"])
        group = (BASELINE.direction, BASELINE.rank_by)
        rows: list[list[Any]] = []
        for point in dict.fromkeys(points):
            if full and point.k and (point.direction, point.rank_by) != group:
                group = (point.direction, point.rank_by)
                rows.append([f"{CONTROL_LABELS.get(group[0], group[0])}{_by(point)}:"])
            label = _label(point) if full and point != chosen else _label(point, chosen)
            rows.append([label, *(numbers.loc[point.name, m].to_dict() for m in BELIEF)])
        notes = ["95 % intervals over maps"] if over(answers) == "map" else []
        if split == "test" and sweep.random_controls:
            rows += _control_rows(numbers["value"], sweep.random_controls, BELIEF)
            notes.append("of random controls the lowest and the highest")
        title = f"{config.model}, order {config.order}, {split} stories (%)"
        print_table(console, title, ["setting", *BELIEF], rows, "; ".join(notes) or None, **TIGHT)
    how = f"direction {chosen.direction}, heads by {chosen.rank_by.replace('_', ' ')}"
    console.print(f"chosen on validation stories: {_label(chosen)}, {how}")
    for line in describe_rank(sweep.control_rank) if sweep.control_rank else ():
        console.print(line, soft_wrap=True)
    if sweep.test is not None:
        both = percent(saved["test"][chosen.name]["difference"]["Both"])
        difference = f"{_label(chosen)} minus {_label(BASELINE)}, Both: {both}"
        console.print(f"{difference} points on test stories")
    if sweep.worse is not None:
        worse = f"{percent(asdict(sweep.worse))} % of test stories"
        console.print(f"made worse (right before, wrong after): {worse}", soft_wrap=True)
        shares: dict[str, Any] = sweep.control_rank["worse"] if sweep.control_rank else {}
        if shares:
            each = "; ".join(f"{CONTROL_LABELS[k]} {percent(share)}" for k, share in shares.items())
            console.print(f"made worse by the random controls: {each} %", soft_wrap=True)
    if sweep.left_out:
        heads = [[str(Head(row["layer"], row["head"])), row] for row in sweep.left_out]
        columns = ["head", "loss of Both (points)"]
        print_table(console, "one head left out", columns, heads, **TIGHT)
        console.print(needed_heads(sweep.left_out, chosen.k), soft_wrap=True)
    _print_tasks(console, config, sweep, metrics, saved)
    if not config.full:
        console.print("--full prints every setting")
    names = ["order", "setting", "style", "data", "max_new_tokens", "split_seed", "data_seed"]
    steered = EvalConfig(steer=sweep.vector, **config.model_options(*names))
    for what, value in {
        "sweep folder": config.folder,
        "report": config.folder / NAME,
        "vector": sweep.vector,
        "next": command_line("sally-anne evaluate", steered),
    }.items():
        console.print(f"{what}: {escape(str(value))}", soft_wrap=True)


def _print_tasks(
    console: Console,
    config: SweepConfig,
    sweep: Sweep,
    metrics: pd.DataFrame,
    saved: dict[str, Any],
) -> None:
    """Control tasks at the baseline, the chosen point and its controls."""
    chosen, tasks = sweep.chosen, list(sweep.control_tasks)
    table = metrics.set_index(["split", "point", "measure"])[["value", "low", "high", "n"]]
    splits = [split for tables in sweep.control_tasks.values() for split in tables]
    for split in dict.fromkeys(splits):
        numbers, randoms = table.loc[split], sweep.random_controls if split == "test" else ()
        rows: list[list[Any]] = [
            [_label(point, chosen), *(numbers.loc[point.name, t].to_dict() for t in tasks)]
            for point in (BASELINE, chosen, *(() if randoms else sweep.controls))
        ]
        rows += _control_rows(numbers["value"], randoms, tasks)
        title, names = f"side questions, {split} stories (%)", [TASK_LABELS[task] for task in tasks]
        note = "of random controls the lowest and the highest" if randoms else None
        print_table(console, title, ["setting", *names], rows, note, **TIGHT)
    for task in tasks:
        for split, gain in saved[task].items():
            change = f"{TASK_LABELS[task]}: {percent(gain)} points on {split} stories"
            console.print(f"{_label(chosen)}, {change}")
    for task, right in saved["guessed"].items():
        console.print(
            f"{TASK_LABELS[task]}: at baseline, {percent(right)} % of the validation questions are "
            f"answered rightly, no more than by guessing ({100 * right['chance']:.1f} %): they put "
            "no condition on the choice, and do not say what steering costs",
            soft_wrap=True,
        )
    limits = {t: most for t, most in config.control_tasks.items() if t not in saved["guessed"]}
    if any(-saved[t]["validation"]["value"] > most + 1e-9 for t, most in limits.items()):
        console.print("no K and alpha leaves the side questions alone: this one is nearest to it")


def _control_rows(
    values: pd.Series, randoms: Sequence[SweepPoint], measures: Sequence[str]
) -> list[list[Any]]:
    """A row a kind of random control: mean, lowest and highest of each measure."""
    found = ranges(lambda point, measure: values[point, measure], randoms, measures)
    return [
        [f"{each[measures[0]]['n']} {CONTROL_LABELS[kind]}", *(each[m] for m in measures)]
        for kind, each in found.items()
    ]


def _label(point: SweepPoint, chosen: SweepPoint | None = None) -> str:
    """Name of a row; ``chosen`` is marked, and controls are named by what they control."""
    if point == BASELINE:
        return point.name
    if chosen is not None and point.direction != chosen.direction:
        return CONTROL_LABELS[point.direction]
    return f"K {point.k}{_by(point)}, alpha {point.strength}{MARK if point == chosen else ''}"


def _by(point: SweepPoint) -> str:
    """How heads are ranked, unless by probe accuracy."""
    return "" if point.rank_by == "probe_accuracy" else f" by {point.rank_by}"
