"""``python -m harness.limp.run``: MuMA-ToM by inverse planning with a local model."""

from __future__ import annotations

from typing import Any

from harness.command import run_command
from harness.limp.config import LimpConfig


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
        # Upwards, and only here: the room itself knows a vector by what it does alone.
        from steering.saving import describe, load_vector

        vector = load_vector(config.steer)
        about = describe(vector)
    carry_out(config, vector, about_steering=about)


def main() -> None:
    """The command line."""
    run_command(LimpConfig, "python -m harness.limp.run", run, _expected)


def _expected() -> tuple[type[Exception], ...]:
    # Upwards, as a vector may be given.
    from steering.failures import expected_errors

    return expected_errors()


if __name__ == "__main__":
    main()
