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
from sally_anne.core.run import Head
from sally_anne.data.samples import SEEN, Lineage
from sally_anne.figures.page import after_sweep
from sally_anne.figures.report import NAME
from sally_anne.figures.sweep import ENDS, ROUNDING, aim, amount, cautions, lost, tested
from sally_anne.harness.score import over
from sally_anne.harness.tasks import LeftOut
from sally_anne.steering.config import FOUND, SweepConfig
from sally_anne.steering.points import BASELINE, Measure, SweepPoint, ends

NOT_SPECIFIC = "not specific"
ANSWERS, METRICS = "answers.parquet", "sweep.parquet"
# Columns that describe a point, besides its name.
FACTS = ["direction", "rank_by", "k", "alpha"]
# Best settings that are printed, and the mark of the chosen one.
TOP, MARK = 2, " *"
# Answers by what they are to (None: the questions or pairs that settings are chosen by) and split.
Tables = Mapping[tuple[str | None, str], pd.DataFrame]


@dataclass(frozen=True)
class Sweep:
    """Results of a finished sweep.

    Attributes:
        measure: how good a setting is, by the tables.
        tables: answers of every point on validation items; of the baseline, the chosen point and
            the random controls on test items; and the same of what steering should leave alone, of
            the points that were tried for the choice, the choice and its controls.
        chosen: the best on validation items that leaves the tasks alone.
        vector: folder of the chosen vector.
        lineage: what it has seen; None where the run does not say.
        unseen: how many test stories were left out as the run has seen them.
        control_rank, left_out, worse: as of the measure; None or empty without a test.
    """

    measure: Measure
    tables: Tables
    chosen: SweepPoint
    vector: Path
    lineage: Lineage | None
    unseen: LeftOut
    random_controls: tuple[SweepPoint, ...] = ()
    control_rank: dict[str, Any] | None = None
    left_out: list[dict[str, Any]] = field(default_factory=list)
    worse: Estimate | None = None

    @property
    def test(self) -> pd.DataFrame | None:
        """Answers to test items; None without a test."""
        return self.tables.get((None, "test"))

    @property
    def tasks(self) -> list[str]:
        """What steering should leave alone."""
        return list(dict.fromkeys(task for task, _ in self.tables if task))

    @property
    def gains(self) -> dict[str, dict[str, Estimate]]:
        """Change of each task at the chosen point, by task and split."""
        found: dict[str, dict[str, Estimate]] = {task: {} for task in self.tasks}
        for (task, split), table in self.tables.items():
            if task:
                found[task][split] = self.measure.gain(table, self.chosen, task)
        return found


def save_tables(folder: Path, measure: Measure, tables: Tables) -> pd.DataFrame:
    """Write the answers, and the metrics of every point, which are returned: a row a measure."""
    rows: list[dict[str, Any]] = []
    for (task, split), table in tables.items():
        for name, part in table.groupby("point", sort=False):
            about = {"split": split, "point": name, **part.iloc[0][FACTS]}
            own = measure.of(part, task)
            rows += [{**about, "measure": each, **asdict(one)} for each, one in own.items()]
    metrics = pd.DataFrame(rows)
    answers = pd.concat([t for (task, _), t in tables.items() if not task], ignore_index=True)
    for name, table in ((METRICS, metrics), (ANSWERS, answers)):
        write_atomic(folder / name, table.to_parquet(None, index=False))
    return metrics


def save(
    config: SweepConfig, about: dict[str, Any], sweep: Sweep, probed: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Write tables and results; return the metrics and the results."""
    measure = sweep.measure
    saved: dict[str, Any] = {
        "config": asdict(config) | {"label": about["label"]},
        "about": about,
        "chosen": asdict(sweep.chosen) | {"name": sweep.chosen.name},
        "run": str(probed),
        "vector": sweep.vector.name,
        SEEN: None if sweep.lineage is None else sweep.lineage.facts(),
        "unseen": asdict(sweep.unseen),
    }
    if sweep.test is not None:
        two = ends(sweep.test, sweep.chosen)
        changes = {name: asdict(one) for name, one in measure.change(*two).items()}
        saved["test"] = {sweep.chosen.name: {"difference": changes}}
        saved["control_rank"], saved["left_out"] = sweep.control_rank, sweep.left_out
        saved["worse"] = None if sweep.worse is None else asdict(sweep.worse)
        gain = amount(changes[measure.main], measure.main)
        saved[FOUND] = f"{measure.main}, less the baseline's: {gain} on test {measure.noun}"
        if sweep.control_rank:
            saved[FOUND] += f"; {describe_rank(sweep.control_rank)}"
    guessed = {t: measure.guessed(sweep.tables[t, "validation"], t) for t in sweep.tasks}
    saved["guessed"] = {task: one for task, one in guessed.items() if one}
    for task, gains in sweep.gains.items():
        saved[task] = {split: asdict(gain) for split, gain in gains.items()}
    metrics = save_tables(config.folder, measure, sweep.tables)
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
    chosen, main, noun = sweep.chosen, sweep.measure.main, sweep.measure.noun
    points, own = {}, metrics[metrics["split"] == "validation"].groupby("point")
    for point in dict.fromkeys((BASELINE, *ranked[:TOP], chosen)):
        numbers = own.get_group(point.name).set_index("measure")[list(ENDS)]
        points[_label(point, chosen)] = numbers.to_dict("index")
    _print_points(console, config, "validation", points, sweep)
    if sweep.test is not None:
        points = tested(metrics, saved["chosen"])
        points = {_label(chosen, chosen) if n == "chosen" else n: p for n, p in points.items()}
        _print_points(console, config, "test", points, sweep)
    how = f"direction {chosen.direction}, heads by {chosen.rank_by.replace('_', ' ')}"
    lines = [f"chosen: {_label(chosen)}, {how}, {aim(saved)[0]}"]
    if sweep.test is not None:
        lines += saved[FOUND].split("; ")
        worse, needed = saved["worse"], [r for r in sweep.left_out if r["low"] > 0]
        heads = ", ".join(str(Head(r["layer"], r["head"])) for r in needed)
        both = [f"made worse: {percent(worse)} % of test {noun}"] if worse else []
        both += [f"{main} falls without {heads}"] if needed else []
        lines += filter(None, ["; ".join(both)])
    for task in sweep.tasks:
        split, gain = [*saved[task].items()][-1]
        lines += [f"cost: {lost(task, split, gain, noun)}"]
    lines += cautions(saved)
    lines += [f"report: {config.folder / NAME}"]
    print_lines(console, [*lines, f"next: {after_sweep(asdict(config), sweep.vector)}"])


def _print_points(
    console: Console,
    config: SweepConfig,
    split: str,
    points: Mapping[str, Mapping[str, Any]],
    sweep: Sweep,
) -> None:
    """A table of points by their names, each with its estimates by measure."""
    measure = sweep.measure
    shown = list(measure.columns)
    if "invalid" in shown and not any(own["invalid"]["high"] for own in points.values()):
        shown.remove("invalid")
    rows = [[name, *(measure.cell(own[m]) for m in shown)] for name, own in points.items()]
    note = "95 % intervals over maps" if over(sweep.tables[None, split]) == "map" else ""
    if split == "test" and sweep.random_controls:
        note = "; ".join(filter(None, [note, "of random controls the lowest and the highest"]))
    what = config.part if config.on_pairs else f"order {config.order}"
    title = f"{config.model}, {what}, {split} {measure.noun} ({measure.unit})"
    print_table(console, title, ["setting", *shown], rows, note)


def _label(point: SweepPoint, chosen: SweepPoint | None = None) -> str:
    """Name of a row; ``chosen`` is marked."""
    if point == BASELINE:
        return point.name
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
