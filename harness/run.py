"""``python -m harness.run``: ask a model, steered or not, the questions of a task."""

from __future__ import annotations

from typing import Any

from harness.command import run_command
from harness.config import EvalConfig


def run(config: EvalConfig) -> None:
    """Carry out an evaluation, or show a finished one.

    Raises:
        HarnessError, SteeringError, ModelError, BenchmarkError, SallyAnneError: bad input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    from harness.pipeline import carry_out, check

    check(config)
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
    run_command(EvalConfig, "python -m harness.run", run, _expected, together=True)


def _expected() -> tuple[type[Exception], ...]:
    # Upwards, as a vector may be given.
    from steering.failures import expected_errors

    return expected_errors()


if __name__ == "__main__":
    main()
