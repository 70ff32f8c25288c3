"""``sally-anne report RUN``: a finished run as one page that needs no network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sally_anne.core.commands import command


@dataclass(frozen=True)
class ReportConfig:
    """Write a finished run as one page to look at, click on and share; it needs no network."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder."""
    out: Path | None = None
    """File to write; RUN/report.html if not given."""


def run(config: ReportConfig) -> None:
    """Write the page and print its path."""
    from figures.report.write import write_report

    print(write_report(config.run, config.out))


main = command("sally-anne report", ReportConfig, run, libraries=False)

if __name__ == "__main__":
    main()
