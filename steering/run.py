"""``python -m steering.run --run RUN``: a steering vector from a probing run."""

from __future__ import annotations

from harness.command import run_command
from steering.config import VectorConfig
from steering.failures import expected_errors


def run(config: VectorConfig) -> None:
    """Make and save a vector.

    Raises:
        SteeringError, ProbingError, SallyAnneError: bad input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    from hooks.run_folder import VECTOR, require_own
    from steering.fit import fit_vector
    from steering.saving import save_vector

    require_own(config.folder, VECTOR)
    vector = fit_vector(
        config.run,
        config.k,
        config.alpha,
        config.direction,
        config.label,
        config.positions,
        config.seed,
    )
    print(f"the vector is in {save_vector(vector, config.folder)}")


def main() -> None:
    """The command line."""
    run_command(VectorConfig, "python -m steering.run", run, expected_errors, resumes=False)


if __name__ == "__main__":
    main()
