"""``python -m steering.sweep``: steer with every K and alpha in one process."""

from __future__ import annotations

from sally_anne.core.commands import command
from steering.config import SweepConfig


def run(config: SweepConfig) -> None:
    """Carry out a sweep, or show a finished one.

    Raises:
        SteeringError, HarnessError, ProbingError, ModelError, BenchmarkError, SallyAnneError: bad
            input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    if config.dry_run:
        from steering.dry_run import dry_run

        dry_run(config)
        return
    from steering.pipeline import run as work

    work(config)


main = command("sally-anne sweep", SweepConfig, run, resumes=True, together=True)


if __name__ == "__main__":
    main()
