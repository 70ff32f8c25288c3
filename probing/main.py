"""``sally-anne probe`` and ``report``: find the heads that tell belief from fact; write pages."""

from __future__ import annotations

from pathlib import Path

from sally_anne.figures.config import ReportConfig
from sally_anne.probing.config import ProbeConfig


def run(config: ProbeConfig) -> None:
    """Do a probing run and draw its figures and its page, or show a finished one."""
    # Heavy libraries are imported here, so that --help answers at once.
    if config.dry_run:
        from sally_anne.probing.dry_run import dry_run

        dry_run(config)
        return
    from sally_anne.core.processes import here
    from sally_anne.figures.report import NAME
    from sally_anne.probing.pipeline import run as work

    work(config, draw=draw_run)
    page = config.folder / NAME
    if here().first and page.exists():
        print(f"report: {page}")


def draw_run(folder: Path) -> list[Path]:
    """Draw all figures of a finished run and write its page; return the paths."""
    from sally_anne.figures.draw import draw_all
    from sally_anne.figures.report import write_report
    from sally_anne.probing.sources import samples_of

    return [*draw_all(folder), write_report(folder, reopen=samples_of)]


def report(config: ReportConfig) -> None:
    """Write the pages of finished runs of any kind and print the path of the one to open."""
    from sally_anne.figures.report import report as write
    from sally_anne.probing.sources import samples_of

    write(config, samples_of)
