"""``sally-anne probe``: find the heads that tell belief from fact."""

from __future__ import annotations

from sally_anne.probing.config import ProbeConfig


def run(config: ProbeConfig) -> None:
    """Do a probing run and draw its figures and its page, or show a finished one."""
    # Heavy libraries are imported here, so that --help answers at once.
    if config.dry_run:
        from sally_anne.probing.dry_run import dry_run

        dry_run(config)
        return
    from sally_anne.core.processes import here
    from sally_anne.figures.report.write import NAME, draw_run
    from sally_anne.probing.pipeline import run as work

    work(config, draw=draw_run)
    page = config.folder / NAME
    if here().first and page.exists():
        print(f"report: {page}")
