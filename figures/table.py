"""The table of a finished run as CSV, LaTeX or Markdown: of heads, answers, a sweep and others.

sally-anne table RUN --format latex
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from sally_anne.core.errors import ChoiceError, MissingRunFileError
from sally_anne.core.options import Natural

if TYPE_CHECKING:
    import pandas as pd

TABLE1 = "sally-anne table1"
# Tables that are shown as they are kept, and what makes them.
KEPT = {
    "sweep.parquet": "sally-anne sweep",
    "transfer.parquet": "sally-anne transfer",
    "localisation.parquet": "sally-anne localisation",
}


@dataclass(frozen=True)
class TableConfig:
    """Print the table of a finished run, to be put into a paper or a spreadsheet."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder of probe, sweep, evaluate, table1, transfer or localisation."""
    format: Literal["csv", "latex", "markdown"] = "markdown"
    """What is printed; csv has all digits."""
    columns: tuple[str, ...] = ()
    """Columns to print, in this order; all by default."""
    rows: int | None = None
    """Only the first so many rows; heads stand best first."""
    digits: Natural = 3
    """Digits after the point in latex and markdown."""


def table_of(folder: Path) -> pd.DataFrame:
    """The table of a run folder, a row a head, measure, setting or cell.

    Raises:
        RunFolderError, AlteredError: it holds no finished run, or is damaged.
    """
    import pandas as pd

    from sally_anne.core.run_folder import RESULTS
    from sally_anne.figures.command import run_table
    from sally_anne.figures.correlations import TABLE as ANSWERS
    from sally_anne.figures.report.evaluation import measures
    from sally_anne.hooks.saved_run import HEADS, Run, saved_results

    if (folder / HEADS).exists():
        run = Run.open(folder)
        return run.ranked(run.labels[0]) if run.labels else run.heads
    for name, made_by in KEPT.items():
        if (folder / name).exists():
            return run_table(folder, name, made_by)
    found = saved_results(folder / RESULTS, TABLE1) or {}
    if (folder / ANSWERS).exists():
        return pd.DataFrame(measures(found.get("results", {})))
    if isinstance(found.get("rows"), list):
        return pd.json_normalize(found["rows"])
    raise MissingRunFileError(
        f"{folder} holds no table of a finished run: `sally-anne table --help` says of which"
    )


def text_of(table: pd.DataFrame, config: TableConfig) -> str:
    """The rows and columns that are asked for; a ChoiceError names a column that is not there."""
    if missing := [name for name in config.columns if name not in table]:
        raise ChoiceError(
            f"{config.run} has no column {missing[0]!r}; it has {', '.join(map(str, table))}"
        )
    shown = table[list(config.columns) or list(table)].head(config.rows or len(table))
    form = f".{config.digits}f"
    # Whole numbers stay whole beside others.
    whole = shown.astype(object)
    writers: dict[str, Callable[[], str]] = {
        "csv": lambda: shown.to_csv(index=False),
        "latex": lambda: shown.to_latex(index=False, escape=True, float_format=f"%{form}"),
        "markdown": lambda: whole.to_markdown(index=False, floatfmt=form) + "\n",
    }
    return writers[config.format]()


def run(config: TableConfig) -> None:
    """Print the table."""
    print(text_of(table_of(config.run), config), end="")
