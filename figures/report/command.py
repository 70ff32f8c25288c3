"""``sally-anne report RUN...``: a finished run as one page that needs no network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sally_anne.core.errors import ChoiceError


@dataclass(frozen=True)
class ReportConfig:
    """Write a finished run as one page to look at, click on and share; it needs no network."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders; of several also an index is written, which compares them."""
    out: Path | None = None
    """File to write; RUN/report.html, or that of the folder that several share, if not given."""


def run(config: ReportConfig) -> None:
    """Write the page and print its path."""
    from sally_anne.figures.report.write import write_index, write_report

    if not config.runs:
        raise ChoiceError("give the folder of a run, as `sally-anne probe` leaves it")
    if len(config.runs) == 1:
        print(write_report(config.runs[0], config.out))
    else:
        print(write_index(config.runs, config.out))
