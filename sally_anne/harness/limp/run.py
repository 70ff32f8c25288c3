"""``python -m sally_anne.harness.limp.run``: MuMA-ToM by inverse planning with a local model."""

from __future__ import annotations

from typing import Any

from sally_anne.harness.command import run_command
from sally_anne.harness.limp.config import LimpConfig
from sally_anne.harness.vectors import described, open_vector


def run(config: LimpConfig) -> None:
    """Carry out a run, or show a finished one.

    Raises:
        HarnessError, SteeringError, ModelError, BenchmarkError, SallyAnneError: bad input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    from sally_anne.harness.limp.pipeline import run as work

    config.check()
    vector: Any = None
    about = None
    if config.steer is not None:
        vector = open_vector(config.steer, config.force)
        about = described(vector)
    work(config, vector, about_steering=about)


def main() -> None:
    """The command line."""
    run_command(LimpConfig, "python -m sally_anne.harness.limp.run", run)


if __name__ == "__main__":
    main()
