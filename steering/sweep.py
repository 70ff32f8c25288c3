"""``sally-anne sweep``: steer with every K and alpha in one process."""

from __future__ import annotations

from sally_anne.core.commands import command
from steering.config import SweepConfig


def run(config: SweepConfig) -> None:
    """Carry out a sweep, show a finished one, or say what it would need.

    Raises:
        SallyAnneError: bad input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    from steering import pipeline, prepare

    if config.dry_run:
        prepare.dry_run(config)
    else:
        pipeline.run(config)


main = command("sally-anne sweep", SweepConfig, run, resumes=True, together=True)


if __name__ == "__main__":
    main()
