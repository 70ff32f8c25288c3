"""``sally-anne evaluate``: ask a model, steered or not, the questions of a task."""

from __future__ import annotations

from sally_anne.core.processes import here
from sally_anne.figures.report import write_report
from sally_anne.harness.config import EvalConfig, check
from sally_anne.harness.dry_run import dry_run
from sally_anne.harness.evaluate import evaluate


def run(config: EvalConfig) -> None:
    """Carry out an evaluation; what is done already is not done again."""
    check(config)
    if config.dry_run:
        dry_run(config)
        return
    evaluate(config)
    if here().first:
        print(f"report: {write_report(config.folder)}")
