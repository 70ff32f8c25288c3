"""What a sweep prints: its choice, the best settings and the controls, beside the plain model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sally_anne.core.commands import command_line
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.metrics import over
from sally_anne.harness.reporting import BELIEF, percent
from steering.choose import cell_metrics
from steering.config import SweepConfig
from steering.grid import BASELINE, Cell

if TYPE_CHECKING:
    from steering.pipeline import Sweep

# Best settings that are shown, the mark of the chosen one, and columns of the terminal.
TOP, MARK, WIDTH = 5, " *", 100
CONTROL_LABELS = {"random": "random directions", "random_heads": "random heads"}


def print_sweep(console: Console, config: SweepConfig, sweep: Sweep) -> None:
    """The choice, the best settings and the controls, beside the model as it is.

    Rows are at most 100 columns wide; all settings are in ``sweep.parquet``.
    """
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    chosen = sweep.chosen
    tables = [("validation", sweep.validation, [BASELINE, *sweep.ranked[:TOP]])]
    if sweep.test is not None:
        tables.append(("test", sweep.test, [BASELINE]))
    for split, answers, cells in tables:
        rows = {cell: _label(cell, chosen) for cell in (*cells, chosen, *sweep.controls)}
        everything = config.full and split == "validation"
        if everything:
            facts = answers.drop_duplicates("cell")[["direction", "k", "alpha", "seed"]]
            found = [Cell(*row) for row in facts.itertuples(index=False)]
            rows = {cell: _label(cell, chosen if cell == chosen else None) for cell in found}
        metrics = cell_metrics(answers, config.reader)
        # Without edges and wide gaps rows with intervals have room.
        table = Table(
            title=escape(f"{config.model}, order {config.order}, {split} stories (%)"),
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            caption="95 % intervals over maps" if over(answers) == "map" else None,
        )
        table.add_column("setting", no_wrap=True)
        for column in BELIEF:
            table.add_column(column, justify="right", no_wrap=True)
        group = None
        for cell, label in rows.items():
            if everything and cell.direction not in (group, BASELINE.direction):
                group = cell.direction
                table.add_row(escape(f"{CONTROL_LABELS.get(group, group)}:"))
            estimates = (getattr(metrics[cell.name], column) for column in BELIEF)
            table.add_row(label, *(percent(asdict(estimate)) for estimate in estimates))
        console.print(table)
    console.print(f"chosen on validation stories: {_label(chosen)}, direction {chosen.direction}")
    for cell in (chosen, *sweep.controls):
        if cell.name in sweep.against_baseline:
            both = percent(sweep.against_baseline[cell.name]["difference"]["Both"])
            what = _label(cell, chosen).removesuffix(MARK)
            console.print(f"{what} minus {_label(BASELINE)}, Both: {both} points on test stories")
    for split, gain in sweep.initial.items():
        moved = percent(asdict(gain))
        console.print(f"{_label(chosen)}, initial belief: {moved} points on {split} stories")
    fallen = sweep.initial.get("validation")
    if fallen is not None and -fallen.value > (config.fall or 0) + 1e-9:
        console.print("no K and alpha leaves the initial belief alone: this one changes it least")
    if not config.full:
        console.print("--full prints every setting")
    console.print(f"sweep folder: {escape(str(config.folder))}", soft_wrap=True)
    console.print(f"vector: {escape(str(sweep.vector))}", soft_wrap=True)
    names = ["order", "setting", "style", "data", "max_new_tokens", "split_seed", "data_seed"]
    options = config.model_options() | {name: getattr(config, name) for name in names}
    steered = EvalConfig(steer=sweep.vector, **options)
    console.print(f"next: {escape(command_line('sally-anne evaluate', steered))}", soft_wrap=True)


def _label(cell: Cell, chosen: Cell | None = None) -> str:
    """What a row is called; ``chosen`` is marked, and controls are named by what they control."""
    if cell == BASELINE:
        return "as it is"
    if chosen is not None and cell.direction != chosen.direction:
        return CONTROL_LABELS[cell.direction]
    alpha = repr(cell.alpha).removesuffix(".0")
    return f"K {cell.k}, alpha {alpha}{MARK if cell == chosen else ''}"
