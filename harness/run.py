"""``python -m harness.run``: ask a model, steered or not, the questions of a task."""

from __future__ import annotations

from typing import Any

from harness.command import run_command
from harness.config import EvalConfig
from harness.vectors import described, open_vector


def run(config: EvalConfig) -> None:
    """Carry out an evaluation, or show a finished one.

    Raises:
        HarnessError, SteeringError, ModelError, BenchmarkError, SallyAnneError: bad input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    from harness.pipeline import carry_out, check

    check(config)
    if config.dry_run:
        from harness.dry_run import dry_run

        dry_run(config)
        return
    vector: Any = None
    about = None
    if config.steer is not None:
        vector = open_vector(config.steer, config.force)
        about = described(vector)
    carry_out(config, vector, about_steering=about)


def main() -> None:
    """The command line."""
    run_command(EvalConfig, "python -m harness.run", run, together=True)


if __name__ == "__main__":
    main()
