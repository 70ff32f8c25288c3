"""``sally-anne limp``: MuMA-ToM by inverse planning with a local model."""

from __future__ import annotations

from sally_anne.core.commands import command
from sally_anne.harness.config import LimpConfig


def run(config: LimpConfig) -> None:
    """Carry out a run; what is done already is not done again.

    Raises:
        HarnessError, SteeringError, ModelError, BenchmarkError, SallyAnneError: bad input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    from sally_anne.harness.limp.pipeline import run as work

    work(config)


main = command("sally-anne limp", LimpConfig, run, resumes=True)


if __name__ == "__main__":
    main()
