"""What a sweep found: as tables and results in its folder, and printed."""

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
from sally_anne.data.lineage import SEEN, Lineage
from sally_anne.figures.report import NAME
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.report import BELIEF, TIGHT, percent, print_table
from sally_anne.harness.score import accuracy, mcnemar_both, over, paired_difference, scores
from sally_anne.harness.tasks import LeftOut
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.cells import (
    BASELINE,
    Cell,
    before_and_in,
    cell_metrics,
    only_guessed,
    side_gain,
)
from sally_anne.steering.controls import CONTROL_LABELS, SIDE_LABELS, in_words, of_heads, ranges
from sally_anne.steering.sweep import Side, SweepConfig

ANSWERS, METRICS = "answers.parquet", "sweep.parquet"
# Of a cell, beside its name.
FACTS = ["direction", "heads", "k", "alpha"]
# Best settings that are printed, the mark of the chosen one, and columns of the terminal.
TOP, MARK, WIDTH = 5, " *", 100


@dataclass(frozen=True)
class Sweep:
    """What a finished sweep found.

    Attributes:
        validation: answers of every cell on validation stories.
        test: answers of the baseline, the chosen cell and its controls on test stories, or None.
        chosen: the best on validation stories that leaves the initial belief alone.
        controls: the same K and alpha with other directions or heads, as on validation stories.
        draws: all of them on test stories.
        specificity: as of :func:`steering.controls.specificity`, or None.
        left_out: as of :func:`steering.controls.left_out`.
        worse: share of test stories made worse, or None.
        sides: answers to side questions, by kind and split: on validation stories of the baseline,
            of all cells that were tried for the choice and of the controls, on test stories of the
            baseline, the chosen cell and, fewer stories, the draws.
        vector: folder of the chosen vector.
        lineage: what it has seen; None where the run does not say.
        unseen: how many test stories were left out as the run has seen them.
        chances: share of each kind of side questions that guessing gets right.
    """

    validation: pd.DataFrame
    test: pd.DataFrame | None
    chosen: Cell
    controls: tuple[Cell, ...]
    sides: dict[Side, dict[str, pd.DataFrame]]
    vector: Path
    lineage: Lineage | None
    unseen: LeftOut
    chances: dict[Side, float]
    draws: tuple[Cell, ...] = ()
    specificity: dict[str, Any] | None = None
    left_out: list[dict[str, Any]] = field(default_factory=list)
    worse: Estimate | None = None

    def guessed(self, parser: str) -> dict[Side, dict[str, float]]:
        """Side questions that the model as it is can only guess: its accuracy and ``chance``.

        They say nothing of what steering costs, and put no condition on the choice.
        """
        found = {}
        for side, tables in self.sides.items():
            right = only_guessed(tables["validation"], self.chances[side], parser)
            if right is not None:
                found[side] = {**asdict(right), "chance": self.chances[side]}
        return found

    def gains(self, parser: str) -> dict[Side, dict[str, Estimate]]:
        """How the accuracy on side questions changes in the chosen cell, by kind and split."""
        return {
            side: {split: side_gain(table, self.chosen, parser) for split, table in tables.items()}
            for side, tables in self.sides.items()
        }


def vector_name(config: SweepConfig, vector: SteeringVector) -> str:
    """Folder of a chosen vector, and of its evaluations; the end of a hash says which it is."""
    kind = f"order{config.order}-{config.setting}-{vector.direction.replace(':', '-')}"
    return f"{kind}-K{vector.k}-alpha{vector.alpha:g}-{vector.describe()['numbers'][-6:]}"


def _compare(table: pd.DataFrame, cell: Cell, parser: str) -> dict[str, Any]:
    before, after = before_and_in(table, cell, parser)
    differences = {m: asdict(e) for m, e in paired_difference(before, after).items()}
    return {"difference": differences, "mcnemar_both": mcnemar_both(before, after)}


def _side_metrics(table: pd.DataFrame, split: str, side: Side, parser: str) -> pd.DataFrame:
    """One row a cell: how many side questions of one kind are answered rightly."""
    rows = []
    for name, own in table.groupby("cell", sort=False):
        facts = own.iloc[0][FACTS].to_dict()
        found = asdict(accuracy(scores(own, parser)).overall)
        rows.append({"split": split, "cell": name, **facts, "measure": side, **found})
    return pd.DataFrame(rows)


def _metrics_table(table: pd.DataFrame, split: str, parser: str) -> pd.DataFrame:
    """One row a cell and measure: where ``low`` to ``high`` is over maps, also over stories."""
    over_stories = cell_metrics(table, parser, "story") if over(table) == "map" else {}
    facts = table.drop_duplicates("cell").set_index("cell")[FACTS]
    rows = []
    for name, metrics in cell_metrics(table, parser).items():
        for measure in BELIEF:
            row = {"split": split, "cell": name, **facts.loc[name], "measure": measure}
            rows.append(row | asdict(getattr(metrics, measure)))
            if over_stories:
                beside = getattr(over_stories[name], measure)
                rows[-1] |= {"story_low": beside.low, "story_high": beside.high}
    return pd.DataFrame(rows)


def save(
    config: SweepConfig, about: dict[str, Any], sweep: Sweep, probed: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Write tables and results; gives the metrics and what the results say."""
    parts = {"validation": sweep.validation}
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
        cells = (sweep.chosen, *sweep.draws)
        saved["test"] = {c.name: _compare(sweep.test, c, config.parser) for c in cells}
        saved["specificity"], saved["left_out"] = sweep.specificity, sweep.left_out
        saved["worse"] = None if sweep.worse is None else asdict(sweep.worse)
    saved["guessed"] = sweep.guessed(config.parser)
    for side, gains in sweep.gains(config.parser).items():
        saved[side] = {split: asdict(gain) for split, gain in gains.items()}
    metrics = pd.concat(
        [
            *(_metrics_table(answers, split, config.parser) for split, answers in parts.items()),
            *(
                _side_metrics(answers, split, side, config.parser)
                for side, tables in sweep.sides.items()
                for split, answers in tables.items()
            ),
        ],
        ignore_index=True,
    )
    answers = pd.concat(parts.values(), ignore_index=True)
    for name, table in ((METRICS, metrics), (ANSWERS, answers)):
        write_atomic(config.folder / name, table.to_parquet(None, index=False))
    write_json(config.folder / RESULTS, saved)
    return metrics, saved


def print_sweep(
    console: Console,
    config: SweepConfig,
    shown: Sequence[Cell],
    sweep: Sweep,
    metrics: pd.DataFrame,
    saved: dict[str, Any],
) -> None:
    """The choice and its controls beside the model as it is, and of other settings ``shown``."""
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    chosen = sweep.chosen
    for split, answers in (("validation", sweep.validation), ("test", sweep.test)):
        if answers is None:
            continue
        listed = config.full and split == "validation"
        others = (shown if config.full else shown[:TOP]) if split == "validation" else ()
        controls = sweep.controls if split == "validation" else ()
        cells = dict.fromkeys((BASELINE, *others, chosen, *controls))
        found = metrics[metrics["split"] == split].set_index(["cell", "measure"])
        group = (BASELINE.direction, BASELINE.heads)
        rows: list[list[Any]] = []
        for cell in cells:
            if listed and cell.k and (cell.direction, cell.heads) != group:
                group = (cell.direction, cell.heads)
                rows.append([f"{CONTROL_LABELS.get(group[0], group[0])}{_by(cell)}:"])
            label = _label(cell) if listed and cell != chosen else _label(cell, chosen)
            rows.append([label, *(found.loc[cell.name, column].to_dict() for column in BELIEF)])
        if split == "test":
            values = found["value"]
            drawn = ranges(lambda *at, values=values: values[at], sweep.draws)  # type: ignore[misc]
            for kind, measures in drawn.items():
                name = f"{measures['Both']['n']} {CONTROL_LABELS[kind]}"
                rows.append([name, *(measures[column] for column in BELIEF)])
        notes = ["95 % intervals over maps"] if over(answers) == "map" else []
        if split == "test" and sweep.draws:
            notes.append("of draws the lowest and the highest")
        print_table(
            console,
            f"{config.model}, order {config.order}, {split} stories (%)",
            ["setting", *BELIEF],
            rows,
            "; ".join(notes) or None,
            **TIGHT,
        )
    console.print(f"chosen on validation stories: {_label(chosen)}, {_how(chosen)}")
    for line in in_words(sweep.specificity) if sweep.specificity else ():
        console.print(line, soft_wrap=True)
    if sweep.test is not None:
        both = percent(saved["test"][chosen.name]["difference"]["Both"])
        what = f"{_label(chosen)} minus {_label(BASELINE)}, Both"
        console.print(f"{what}: {both} points on test stories")
    if sweep.worse is not None:
        worse = percent(asdict(sweep.worse))
        told = f"made worse (an answer right before, wrong after): {worse} % of test stories"
        shares: dict[str, Any] = sweep.specificity["worse"] if sweep.specificity else {}
        beside = [f"{CONTROL_LABELS[kind]} {percent(share)}" for kind, share in shares.items()]
        console.print(told, soft_wrap=True)
        if beside:
            console.print(f"made worse by the draws: {'; '.join(beside)} %", soft_wrap=True)
    if sweep.left_out:
        heads = [[str(Head(row["layer"], row["head"])), row] for row in sweep.left_out]
        title = "one head left out"
        print_table(console, title, ["head", "loss of Both (points)"], heads, **TIGHT)
        console.print(of_heads(sweep.left_out, chosen.k), soft_wrap=True)
    _print_sides(console, config, sweep, metrics, saved)
    if not config.full:
        console.print("--full prints every setting")
    console.print(f"sweep folder: {escape(str(config.folder))}", soft_wrap=True)
    console.print(f"report: {escape(str(config.folder / NAME))}", soft_wrap=True)
    console.print(f"vector: {escape(str(sweep.vector))}", soft_wrap=True)
    names = ["order", "setting", "style", "data", "max_new_tokens", "split_seed", "data_seed"]
    steered = EvalConfig(steer=sweep.vector, **config.model_options(*names))
    console.print(f"next: {escape(command_line('sally-anne evaluate', steered))}", soft_wrap=True)


def _print_sides(
    console: Console,
    config: SweepConfig,
    sweep: Sweep,
    metrics: pd.DataFrame,
    saved: dict[str, Any],
) -> None:
    """What steering should leave alone: as it is, in the chosen cell and in its controls."""
    chosen, sides = sweep.chosen, list(sweep.sides)
    found = metrics.set_index(["split", "cell", "measure"])[["value", "low", "high", "n"]]
    for split in dict.fromkeys(split for tables in sweep.sides.values() for split in tables):
        own, draws = found.loc[split], sweep.draws if split == "test" else ()
        rows: list[list[Any]] = [
            [_label(cell, chosen), *(own.loc[cell.name, side].to_dict() for side in sides)]
            for cell in (BASELINE, chosen, *(() if draws else sweep.controls))
        ]
        values = own["value"]
        drawn = ranges(lambda *at, values=values: values[at], draws, sides)  # type: ignore[misc]
        for kind, measures in drawn.items():
            name = f"{measures[sides[0]]['n']} {CONTROL_LABELS[kind]}"
            rows.append([name, *(measures[side] for side in sides)])
        title, names = f"side questions, {split} stories (%)", [SIDE_LABELS[side] for side in sides]
        note = "of draws the lowest and the highest" if draws else None
        print_table(console, title, ["setting", *names], rows, note, **TIGHT)
    for side in sides:
        for split, gain in saved[side].items():
            moved = f"{SIDE_LABELS[side]}: {percent(gain)} points on {split} stories"
            console.print(f"{_label(chosen)}, {moved}")
    for side, right in saved["guessed"].items():
        console.print(
            f"{SIDE_LABELS[side]}: as it is, {percent(right)} % of the validation questions are "
            f"answered rightly, no more than by guessing ({100 * right['chance']:.1f} %): they put "
            "no condition on the choice, and do not say what steering costs",
            soft_wrap=True,
        )
    asked = {s: most for s, most in config.sides.items() if s not in saved["guessed"]}
    if any(-saved[s]["validation"]["value"] > most + 1e-9 for s, most in asked.items()):
        told = "no K and alpha leaves the side questions alone: this one is nearest to it"
        console.print(told)


def _label(cell: Cell, chosen: Cell | None = None) -> str:
    """What a row is called; ``chosen`` is marked, and controls are named by what they control."""
    if cell == BASELINE:
        return "as it is"
    if chosen is not None and cell.direction != chosen.direction:
        return CONTROL_LABELS[cell.direction]
    return f"K {cell.k}{_by(cell)}, alpha {cell.strength}{MARK if cell == chosen else ''}"


def _how(cell: Cell) -> str:
    return f"direction {cell.direction}, heads by {cell.heads}"


def _by(cell: Cell) -> str:
    """How heads are ranked, where it is not by their probes."""
    return "" if cell.heads == "probe" else f" by {cell.heads}"
