"""``sally-anne compare A B``: finished evaluations of the same questions, pair by pair."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from sally_anne.core.errors import ChoiceError
from sally_anne.core.folder import claims

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

TABLE = "comparison.parquet"


@dataclass(frozen=True)
class CompareConfig:
    """Compare finished evaluations of the same questions: each later run against the first."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders, as `sally-anne evaluate` leaves them; the first is what the others are compared
    with."""
    reader: str | None = None
    """Who read the replies, e.g. robust or judge; by default all readers that the runs share."""
    out: Path | None = None
    """Folder to write to; runs/compare/FIRST-against-SECOND if not given."""

    @property
    def folder(self) -> Path:
        """Where the comparison is written."""
        first, second, *more = (path.resolve().name for path in self.runs)
        others = f"-and-{len(more)}-more" if more else ""
        return self.out or Path("runs/compare") / f"{first}-against-{second}{others}"


def run(config: CompareConfig) -> None:
    """Compare, print, save and draw."""
    if len(config.runs) < 2:
        raise ChoiceError("give two run folders or more, as `sally-anne evaluate` leaves them")
    work(config)


@claims("a comparison of evaluations")
def work(config: CompareConfig, console: Console | None = None) -> pd.DataFrame:
    """Do it in ``config.folder``; the table is that of :func:`.paired.compare`."""
    from rich.markup import escape

    from sally_anne.core.console import Console
    from sally_anne.core.files import write_atomic, write_json
    from sally_anne.core.folder import RESULTS, save_config
    from sally_anne.figures.comparison import draw_comparison
    from sally_anne.harness.baselines import as_saved, print_published
    from sally_anne.harness.compare.paired import compare, shared_readers
    from sally_anne.harness.compare.printed import print_comparison, understood
    from sally_anne.harness.compare.runs import differences, open_run, share

    console = console or Console()
    shared = share([open_run(folder) for folder in config.runs])
    table = compare(shared, shared_readers(shared, config.reader))
    asked = [run.asked for run in shared.runs]
    save_config(config.folder, asdict(config))
    write_atomic(config.folder / TABLE, table.to_parquet(None, index=False))
    saved = {
        "config": asdict(config),
        "labels": shared.labels,
        "differences": differences(shared.runs),
        "left_out": shared.said,
        "items": len(shared.tables[0]),
        "results": table.to_dict("records"),
        "published": as_saved(asked),
    }
    write_json(config.folder / RESULTS, saved)
    print_comparison(console, shared, table)
    print_published(console, asked)
    drawn = draw_comparison(understood(table), [shared.runs[0].task], config.folder)
    console.print(f"comparison: {escape(str(config.folder))} ({drawn[0].name})", soft_wrap=True)
    return table
