"""``python -m harness.limp.run``: MuMA-ToM by inverse planning with a local model."""

from __future__ import annotations

from typing import Any

from harness.command import run_command
from harness.limp.config import LimpConfig
from harness.vectors import described, open_vector


def run(config: LimpConfig) -> None:
    """Carry out a run, or show a finished one.

    Raises:
        HarnessError, SteeringError, ModelError, BenchmarkError, SallyAnneError: bad input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    from harness.limp.pipeline import carry_out

    config.check()
    vector: Any = None
    about = None
    if config.steer is not None:
        vector = open_vector(config.steer, config.force)
        about = described(vector)
    carry_out(config, vector, about_steering=about)


def main() -> None:
    """The command line."""
    run_command(LimpConfig, "python -m harness.limp.run", run)


if __name__ == "__main__":
    main()
