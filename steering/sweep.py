"""``python -m steering.sweep``: steer with every K and alpha in one process."""

from __future__ import annotations

import sys

from steering.config import SweepConfig


def run(config: SweepConfig) -> None:
    """Carry out a sweep, or show a finished one.

    Raises:
        SteeringError, HarnessError, ProbingError, ModelError, GridToMError, SallyAnneError: bad
            input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    from steering.pipeline import carry_out

    carry_out(config)


def main() -> None:
    """The command line."""
    import tyro

    config = tyro.cli(SweepConfig, prog="python -m steering.sweep")
    from steering.failures import expected_errors

    try:
        run(config)
    except expected_errors() as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print(f"\nstopped; the same command goes on from {config.folder}", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
