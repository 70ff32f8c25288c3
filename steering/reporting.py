"""Results of a sweep: as tables and JSON in its folder, and printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
from sally_anne.figures.sweep import ROUNDING, aim, amount, cautions, lost, tested
from sally_anne.harness.score import over
from sally_anne.harness.tasks import LeftOut
from sally_anne.steering.config import FOUND, SweepConfig
from sally_anne.steering.points import Measure, SweepPoint, ends

NOT_SPECIFIC = "not specific"
ANSWERS, METRICS = "answers.parquet", "sweep.parquet"
# Columns that describe a point, besides its name.
FACTS = ["direction", "rank_by", "k", "alpha"]
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
        gains: change of what steering should leave alone at the chosen point, by task and split.
        control_rank, left_out, worse: as of the measure; the rank is None without controls.
    """

    measure: Measure
    tables: Tables
    chosen: SweepPoint
    vector: Path
    lineage: Lineage | None
    unseen: LeftOut
    gains: dict[str, dict[str, Estimate]]
    random_controls: list[SweepPoint]
    control_rank: dict[str, Any] | None
    left_out: list[dict[str, Any]]
    worse: Estimate | None

    @property
    def test(self) -> pd.DataFrame:
        """Answers to test items."""
        return self.tables[None, "test"]


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
    measure, chosen, rank = sweep.measure, sweep.chosen, sweep.control_rank
    changes = measure.change(*ends(sweep.test, chosen))
    difference = {name: asdict(one) for name, one in changes.items()}
    gain = amount(difference[measure.main], measure.main)
    found = f"{measure.main}, less the baseline's: {gain} on test {measure.noun}"
    guessed = {t: measure.guessed(sweep.tables[t, "validation"], t) for t in sweep.gains}
    saved: dict[str, Any] = {
        "config": asdict(config) | {"label": about["label"]},
        "about": about,
        "chosen": asdict(chosen) | {"name": chosen.name},
        "run": str(probed),
        "vector": sweep.vector.name,
        SEEN: sweep.lineage and sweep.lineage.facts(),
        "unseen": asdict(sweep.unseen),
        "test": {chosen.name: {"difference": difference}},
        "control_rank": rank,
        "left_out": sweep.left_out,
        "worse": sweep.worse and asdict(sweep.worse),
        FOUND: f"{found}; {describe_rank(rank)}" if rank else found,
        "guessed": {task: one for task, one in guessed.items() if one},
    }
    for task, gains in sweep.gains.items():
        saved[task] = {split: asdict(gain) for split, gain in gains.items()}
    metrics = save_tables(config.folder, measure, sweep.tables)
    write_json(config.folder / RESULTS, saved)
    return metrics, saved


def print_sweep(
    console: Console,
    config: SweepConfig,
    sweep: Sweep,
    metrics: pd.DataFrame,
    saved: dict[str, Any],
) -> None:
    """Print the choice next to the baseline and its controls, its costs, and what to do next."""
    measure, chosen, noun = sweep.measure, sweep.chosen, sweep.measure.noun
    points = tested(metrics, saved["chosen"])
    shown = list(measure.columns)
    if "invalid" in shown and not any(own["invalid"]["high"] for own in points.values()):
        shown.remove("invalid")

    def cell(one: dict[str, Any], name: str) -> Any:
        return one if measure.unit == "%" else amount(one, name).rpartition(" ")[0]

    setting = f"K {chosen.k}, alpha {chosen.strength}"
    rows = [
        [setting if name == "chosen" else name, *(cell(own[m], m) for m in shown)]
        for name, own in points.items()
    ]
    notes = ["95 % intervals over maps"] if over(sweep.test) == "map" else []
    notes += ["of random controls the lowest and the highest"] if sweep.random_controls else []
    what = config.part if config.on_pairs else f"order {config.order}"
    title = f"{config.model}, {what}, test {noun} ({measure.unit})"
    print_table(console, title, ["setting", *shown], rows, "; ".join(notes))
    how = f"direction {chosen.direction}, heads by {chosen.rank_by.replace('_', ' ')}"
    lines = [f"chosen: {setting}, {how}, {aim(saved)[0]}", *saved[FOUND].split("; ")]
    if sweep.worse:
        lines += [f"made worse: {percent(saved['worse'])} % of test {noun}"]
    if needed := [str(Head(r["layer"], r["head"])) for r in sweep.left_out if r["low"] > 0]:
        lines += [f"{measure.main} falls without {', '.join(needed)}"]
    lines += [f"cost: {lost(task, 'test', saved[task]['test'], noun)}" for task in sweep.gains]
    lines += [*cautions(saved), f"report: {config.folder / NAME}"]
    print_lines(console, [*lines, f"next: {after_sweep(asdict(config), sweep.vector)}"])


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
